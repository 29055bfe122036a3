package machine

import (
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// challenge is a challenge that was sent.
type challenge struct {
	nonce   string
	expires time.Time
}

// handshake is the state of a machine until its session is accepted. It has the token of the
// client, and is dropped then.
type handshake struct {
	m         *Machine
	deadline  time.Time      // zero: none
	latest    time.Time      // bound to which challenges may move the deadline
	request   arcp.MessageID // correlation of the next answer
	open      arcp.SessionOpenPayload
	session   arcp.SessionID // that the open names
	resuming  bool           // the question is Resume
	challenge challenge
	early     []arcp.MessageID // of messages that came before the session was accepted
	warned    bool             // of one of them
}

func newHandshake(now time.Time, m *Machine) *handshake {
	h := &handshake{m: m}
	if m.cfg.Handshake > 0 {
		h.deadline = now.Add(m.cfg.Handshake)
		h.latest = h.deadline.Add(m.cfg.ChallengeTTL)
	}
	return h
}

// receive handles a message that comes before the session is accepted.
func (h *handshake) receive(now time.Time, env *arcp.Envelope) {
	switch {
	case !h.expects(env.Type):
		h.drop(env)
	case !h.m.recentIDs.add(env.ID):
		h.m.note("duplicate_id", env.Type, "")
	case env.Type == arcp.SessionOpen:
		h.receiveOpen(env)
	case env.Type == arcp.SessionResume:
		h.receiveResume(env)
	default:
		h.receiveAuthenticate(now, env)
	}
}

// expects reports whether a message belongs to the current phase of the handshake.
func (h *handshake) expects(t arcp.Type) bool {
	switch t {
	case arcp.SessionOpen:
		return h.m.phase == Opening || h.m.phase == Challenged
	case arcp.SessionResume:
		return h.m.phase == Opening
	}
	return t == arcp.SessionAuthenticate && h.m.phase == Challenged
}

// maxEarly bounds the messages that came before the session was accepted and are
// answered when it is.
const maxEarly = 64

// drop drops a message that comes before the session is accepted (§5.1). Its id is not
// remembered as seen: the client sends it again.
func (h *handshake) drop(env *arcp.Envelope) {
	h.m.out.Notes = append(h.m.out.Notes, Note{Reason: "before_accepted", Type: env.Type, Detail: h.m.phase.String(), Warn: !h.warned})
	h.warned = true
	if spec := arcp.Lookup(env.Type); spec != nil && spec.Quiet || len(h.early) == maxEarly || slices.Contains(h.early, env.ID) {
		return
	}
	h.early = append(h.early, env.ID)
}

// finish tells the client which messages it has to send again now that the session is
// accepted, and drops the handshake.
func (h *handshake) finish() {
	for _, id := range h.early {
		h.m.nack(id, arcp.CodeFailedPrecondition, "sent before session.accepted; send it again")
	}
	h.m.handshake = nil
}

// begin takes over the client's version, or refuses another major one.
func (h *handshake) begin(env *arcp.Envelope) bool {
	h.request = env.ID
	if !arcp.SupportedVersion(env.ARCP) {
		h.reject(env, arcp.ReasonVersion, arcp.CodeUnimplemented, "protocol version "+excerpt(env.ARCP)+" is not supported; this runtime speaks 1.x")
		return false
	}
	h.m.version = env.ARCP
	return true
}

// receiveResume handles a token instead of credentials (§5.10).
func (h *handshake) receiveResume(env *arcp.Envelope) {
	if !h.begin(env) {
		return
	}
	p, err := arcp.DecodeComplete[arcp.SessionResumePayload](env)
	if err != nil {
		h.rejectPayload(env, err)
		return
	}
	h.m.phase = Establishing
	h.resuming, h.m.window = true, p.AckWindow
	h.m.out.Question = Resume{Token: p.ResumeToken, After: p.LastEventSeq, Version: h.m.version}
}

// Resumed completes Resume. A token that is not good counts as a failed authentication.
func (m *Machine) Resumed(now time.Time, r Resumed) {
	if m.phase == Establishing && m.handshake.resuming {
		m.handshake.resumed(now, r)
	}
}

func (h *handshake) resumed(now time.Time, r Resumed) {
	h.resuming = false
	switch {
	case r.Refused != nil && r.Refused.Retryable:
		h.unavailable(r.Refused)
		return
	case r.Refused != nil:
		h.fail(h.request, &Refusal{Code: r.Refused.Code, Message: r.Refused.Message, Final: true})
		return
	}
	m := h.m
	h.attach(r.Attached)
	m.negotiate.restoreMentioned(&m.cfg.Offer)
	m.identity = r.Identity
	m.enter(now)
	m.send(arcp.SessionResumed, h.request, arcp.SessionResumedPayload{SessionID: m.id, ResumeToken: r.ResumeToken,
		ReplayedFrom: r.After, Replayed: r.Replayed, AckWindow: m.Window()})
	h.finish()
}

// unavailable refuses a session for a reason other than the client's credentials: the client
// may try again.
func (h *handshake) unavailable(refused *arcp.Error) {
	h.m.phase = Opening
	h.sendRejected(h.request, refused)
}

// sendRejected sends session.rejected, which has no session.
func (h *handshake) sendRejected(corr arcp.MessageID, refused *arcp.Error) {
	h.m.send(arcp.SessionRejected, corr, refused)
	h.m.out.Send[len(h.m.out.Send)-1].SessionID = ""
}

// attach takes over a session that exists, with the features that it negotiated.
func (h *handshake) attach(a Attached) {
	h.m.id = a.Session
	h.m.negotiate.features = a.Negotiated
}

func (h *handshake) receiveOpen(env *arcp.Envelope) {
	h.challenge = challenge{}
	h.m.phase = Opening
	if !h.begin(env) {
		return
	}
	open, err := arcp.DecodeComplete[arcp.SessionOpenPayload](env)
	if err != nil {
		h.rejectPayload(env, err)
		return
	}
	m := h.m
	h.open, h.session, m.window = open, env.SessionID, open.Capabilities.AckWindow
	m.negotiate = negotiate(&m.cfg.Offer, &open.Capabilities)
	if len(m.negotiate.unsupported) > 0 {
		h.reject(env, "capability", arcp.CodeUnimplemented, "required capability not supported: "+excerpt(m.negotiate.unsupported))
		return
	}
	m.phase = Authenticating
	m.out.Question = h.credentials()
}

func (h *handshake) credentials() Authenticate {
	return Authenticate{Scheme: h.open.Auth.Scheme, Token: h.open.Auth.Token, Principal: h.open.Client.Principal,
		Fingerprint: h.open.Client.Fingerprint, Anonymous: h.m.negotiate.has(arcp.FeatureAnonymous)}
}

func (h *handshake) receiveAuthenticate(now time.Time, env *arcp.Envelope) {
	h.request = env.ID
	p, err := arcp.DecodePayload[arcp.SessionAuthenticatePayload](env)
	sent := h.challenge
	h.challenge = challenge{} // it is used up by any answer
	switch {
	case err != nil:
		h.fail(env.ID, &Refusal{Message: "session.authenticate: " + err.Error()})
	case sent.nonce == "" || !now.Before(sent.expires):
		h.fail(env.ID, &Refusal{Message: "the challenge has been used or has expired; send session.open again"})
	default:
		h.m.phase = Authenticating
		h.m.out.Question = Verify{h.credentials(), sent.nonce, p.Response}
	}
}

// Judge completes Authenticate or Verify.
func (m *Machine) Judge(now time.Time, d CredentialDecision) {
	if m.phase == Authenticating {
		m.handshake.judge(now, d)
	}
}

func (h *handshake) judge(now time.Time, d CredentialDecision) {
	m := h.m
	switch {
	case d.Refused != nil:
		if h.fail(h.request, d.Refused); m.phase != Closed && d.Challenge != "" && !d.Refused.Final {
			h.sendChallenge(now, d.Challenge)
		}
	case d.Challenge != "":
		h.sendChallenge(now, d.Challenge)
	default:
		m.phase = Establishing
		m.identity = *d.Identity
		m.negotiate.allow(&m.identity, h.open.Client.Kind)
		m.out.Question = Establish{Identity: m.identity, Client: h.open.Client, Version: m.version,
			Negotiated: m.negotiate.features, Attach: h.session, After: h.open.LastEventSeq}
	}
}

// sendChallenge sends a challenge and gives the client time to answer it. Repeated challenges
// do not move the deadline past latest.
func (h *handshake) sendChallenge(now time.Time, nonce string) {
	h.m.phase = Challenged
	h.challenge = challenge{nonce, now.Add(h.m.cfg.ChallengeTTL)}
	if !h.deadline.IsZero() {
		h.deadline = earliest(h.challenge.expires, h.latest)
	}
	h.m.send(arcp.SessionChallenge, h.request, arcp.SessionChallengePayload{Challenge: nonce})
}

// fail refuses credentials. The client may try again with better ones, three times on a
// connection.
func (h *handshake) fail(corr arcp.MessageID, r *Refusal) {
	m := h.m
	m.failures++
	code := r.Code
	if code == "" {
		code = arcp.CodeUnauthenticated
	}
	m.phase = Opening
	if refused := arcp.Errorf(code, "%s", r.Message); r.Final {
		h.sendRejected(corr, refused)
	} else {
		m.send(arcp.SessionUnauthenticated, corr, refused)
	}
	if m.failures >= maxFailures {
		m.close(ClosePolicy, "too many authentication failures")
	}
}

// reject refuses an open or a resume for a reason other than credentials.
func (h *handshake) reject(env *arcp.Envelope, reason string, code arcp.Code, message string) {
	h.m.out.Notes = append(h.m.out.Notes, Note{Reason: reason, Type: env.Type, Detail: message, Rejected: true})
	h.fail(h.request, &Refusal{Code: code, Message: message, Final: true})
}

// rejectPayload rejects a payload that cannot be decoded.
func (h *handshake) rejectPayload(env *arcp.Envelope, err error) {
	e := arcp.PayloadError(env.Type, err)
	h.reject(env, arcp.ReasonPayload, e.Code, e.Message)
}

// Established completes Establish.
func (m *Machine) Established(now time.Time, e Established) {
	if m.phase == Establishing && !m.handshake.resuming {
		m.handshake.established(now, e)
	}
}

func (h *handshake) established(now time.Time, e Established) {
	m := h.m
	if e.Refused != nil {
		h.unavailable(e.Refused)
		return
	}
	if e.Attached != nil {
		h.attach(*e.Attached)
		if h.open.LastEventSeq == nil {
			m.position = now.Add(positionWait)
		}
	}
	m.enter(now)
	m.send(arcp.SessionAccepted, h.request, m.accepted(now, e))
	h.finish()
}
