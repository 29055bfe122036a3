package machine

import (
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// challenge is a challenge to which the client has not responded; without a nonce: none.
type challenge struct {
	nonce   string
	expires time.Time
}

// handshake is the state of a machine before session.accepted. It is dropped then, with the
// credentials of the client in it.
type handshake struct {
	m           *Machine
	deadline    time.Time      // zero: none
	maxDeadline time.Time      // latest deadline after repeated challenges
	request     arcp.MessageID // message to answer
	open        arcp.SessionOpenPayload
	attachTo    arcp.SessionID // session_id of session.open; "": none
	resuming    bool           // the pending request is a ResumeRequest, not an EstablishRequest
	challenge   challenge
	early       []arcp.MessageID // ids of messages before session.accepted; see drop
	warnedEarly bool             // one of them was reported as a warning
}

func newHandshake(now time.Time, m *Machine) *handshake {
	h := &handshake{m: m}
	if m.cfg.Handshake > 0 {
		h.deadline = now.Add(m.cfg.Handshake)
		h.maxDeadline = h.deadline.Add(m.cfg.ChallengeTTL)
	}
	return h
}

// receive handles a message before session.accepted.
func (h *handshake) receive(now time.Time, env *arcp.Envelope) {
	switch {
	case !h.expects(env.Type):
		h.drop(env)
	case !h.m.recentIDs.add(env.ID):
		h.m.report("duplicate_id", env.Type, "")
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

// maxEarly bounds handshake.early.
const maxEarly = 64

// drop drops a message before session.accepted (§5.1). Its id does not count as a duplicate
// later: the client sends the message again, because finish refuses it.
func (h *handshake) drop(env *arcp.Envelope) {
	h.m.out.Incidents = append(h.m.out.Incidents, Incident{
		Reason: "before_accepted",
		Type:   env.Type,
		Detail: h.m.phase.String(),
		Warn:   !h.warnedEarly,
	})
	h.warnedEarly = true
	if spec := arcp.Lookup(env.Type); spec != nil && spec.Quiet || len(h.early) == maxEarly || slices.Contains(h.early, env.ID) {
		return
	}
	h.early = append(h.early, env.ID)
}

// finish refuses the dropped messages, which the client can now send again, and drops the
// handshake.
func (h *handshake) finish() {
	for _, id := range h.early {
		h.m.nack(id, arcp.CodeFailedPrecondition, "sent before session.accepted; send it again")
	}
	h.m.handshake = nil
}

// acceptVersion sets the version of the session, or rejects an unsupported one.
func (h *handshake) acceptVersion(env *arcp.Envelope) bool {
	h.request = env.ID
	if !arcp.SupportedVersion(env.ARCP) {
		h.reject(env, arcp.ReasonVersion, arcp.CodeUnimplemented,
			"protocol version "+excerpt(env.ARCP)+" is not supported; this runtime speaks 1.x")
		return false
	}
	h.m.version = env.ARCP
	return true
}

// receiveResume handles session.resume (§5.10).
func (h *handshake) receiveResume(env *arcp.Envelope) {
	if !h.acceptVersion(env) {
		return
	}
	p, err := arcp.DecodeComplete[arcp.SessionResumePayload](env)
	if err != nil {
		h.rejectPayload(env, err)
		return
	}
	h.m.phase = Establishing
	h.resuming, h.m.requestedWindow = true, p.AckWindow
	h.m.out.Request = ResumeRequest{Token: p.ResumeToken, After: p.LastEventSeq, Version: h.m.version}
}

// Resumed completes a ResumeRequest. An invalid token counts as a failed authentication.
func (m *Machine) Resumed(now time.Time, r ResumeResult) {
	if m.phase == Establishing && m.handshake.resuming {
		m.handshake.resumed(now, r)
	}
}

func (h *handshake) resumed(now time.Time, r ResumeResult) {
	h.resuming = false
	switch {
	case r.Refused != nil && r.Refused.Retryable:
		h.refuseSession(r.Refused)
		return
	case r.Refused != nil:
		h.fail(h.request, &Refusal{Code: r.Refused.Code, Message: r.Refused.Message, Final: true})
		return
	}
	m := h.m
	h.adoptSession(r.Attached)
	m.negotiate.restoreListed(&m.cfg.Offer, m.singleAttempt)
	m.identity = r.Identity
	m.accept(now)
	m.send(arcp.SessionResumed, h.request, arcp.SessionResumedPayload{SessionID: m.id, ResumeToken: r.ResumeToken,
		ReplayedFrom: r.After, Replayed: r.Replayed, AckWindow: m.Window()})
	h.finish()
}

// refuseSession sends session.rejected for a reason other than the credentials. The client may
// try again on the same connection.
func (h *handshake) refuseSession(refused *arcp.Error) {
	h.m.phase = Opening
	h.sendRejected(h.request, refused)
	if h.m.singleAttempt {
		h.m.close(ClosePolicy, refused.Message)
	}
}

// sendRejected sends session.rejected, which has no session_id.
func (h *handshake) sendRejected(request arcp.MessageID, refused *arcp.Error) {
	h.m.send(arcp.SessionRejected, request, refused)
	h.m.out.Send[len(h.m.out.Send)-1].SessionID = ""
}

// adoptSession sets the id and the features of an existing session.
func (h *handshake) adoptSession(a Attached) {
	h.m.id = a.Session
	h.m.negotiate.features = a.Negotiated
}

// receiveOpen handles session.open: it negotiates, and requests the authentication.
func (h *handshake) receiveOpen(env *arcp.Envelope) {
	h.challenge = challenge{}
	h.m.phase = Opening
	if !h.acceptVersion(env) {
		return
	}
	open, err := arcp.DecodeComplete[arcp.SessionOpenPayload](env)
	if err != nil {
		h.rejectPayload(env, err)
		return
	}
	m := h.m
	h.open, h.attachTo, m.requestedWindow = open, env.SessionID, open.Capabilities.AckWindow
	m.negotiate = negotiate(&m.cfg.Offer, &open.Capabilities)
	if m.singleAttempt {
		m.negotiate.addListed()
	}
	if len(m.negotiate.unsupported) > 0 {
		h.reject(env, "capability", arcp.CodeUnimplemented, "required capability not supported: "+excerpt(m.negotiate.unsupported))
		return
	}
	m.phase = Authenticating
	m.out.Request = AuthenticateRequest{h.credentials()}
}

// credentials returns the credentials of session.open.
func (h *handshake) credentials() Credentials {
	return Credentials{Scheme: h.open.Auth.Scheme, Token: h.open.Auth.Token, Principal: h.open.Client.Principal,
		Fingerprint: h.open.Client.Fingerprint, Anonymous: h.m.negotiate.has(arcp.FeatureAnonymous)}
}

// receiveAuthenticate handles session.authenticate, the response to a challenge.
func (h *handshake) receiveAuthenticate(now time.Time, env *arcp.Envelope) {
	h.request = env.ID
	p, err := arcp.DecodePayload[arcp.SessionAuthenticatePayload](env)
	sent := h.challenge
	h.challenge = challenge{} // a challenge is valid for one response
	switch {
	case err != nil:
		h.fail(env.ID, &Refusal{Message: "session.authenticate: " + err.Error()})
	case sent.nonce == "" || !now.Before(sent.expires):
		h.fail(env.ID, &Refusal{Message: "the challenge has been used or has expired; send session.open again"})
	default:
		h.m.phase = Authenticating
		h.m.out.Request = VerifyRequest{h.credentials(), sent.nonce, p.Response}
	}
}

// Authenticated completes an AuthenticateRequest or a VerifyRequest.
func (m *Machine) Authenticated(now time.Time, d CredentialDecision) {
	if m.phase == Authenticating {
		m.handshake.authenticated(now, d)
	}
}

func (h *handshake) authenticated(now time.Time, d CredentialDecision) {
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
		m.negotiate.restrict(&m.identity, h.open.Client.Kind)
		m.out.Request = EstablishRequest{Identity: m.identity, Client: h.open.Client, Version: m.version,
			Negotiated: m.negotiate.features, Attach: h.attachTo, After: h.open.LastEventSeq}
	}
}

// sendChallenge sends a challenge and extends the deadline to its expiry, at most to
// maxDeadline.
func (h *handshake) sendChallenge(now time.Time, nonce string) {
	h.m.phase = Challenged
	h.challenge = challenge{nonce, now.Add(h.m.cfg.ChallengeTTL)}
	if !h.deadline.IsZero() {
		h.deadline = earliest(h.challenge.expires, h.maxDeadline)
	}
	h.m.send(arcp.SessionChallenge, h.request, arcp.SessionChallengePayload{Challenge: nonce})
}

// fail refuses credentials. The client may send others until maxFailures are refused on the
// connection.
func (h *handshake) fail(request arcp.MessageID, r *Refusal) {
	m := h.m
	m.failures++
	code := r.Code
	if code == "" {
		code = arcp.CodeUnauthenticated
	}
	m.phase = Opening
	if refused := arcp.Errorf(code, "%s", r.Message); r.Final {
		h.sendRejected(request, refused)
	} else {
		m.send(arcp.SessionUnauthenticated, request, refused)
	}
	if m.failures >= maxFailures || m.singleAttempt {
		m.close(ClosePolicy, "too many authentication failures")
	}
}

// reject refuses session.open or session.resume for a reason other than the credentials.
func (h *handshake) reject(env *arcp.Envelope, reason string, code arcp.Code, message string) {
	h.m.out.Incidents = append(h.m.out.Incidents, Incident{Reason: reason, Type: env.Type, Detail: message, Rejected: true})
	h.fail(h.request, &Refusal{Code: code, Message: message, Final: true})
}

// rejectPayload rejects a payload that cannot be decoded.
func (h *handshake) rejectPayload(env *arcp.Envelope, err error) {
	e := arcp.PayloadError(env.Type, err)
	h.reject(env, arcp.ReasonPayload, e.Code, e.Message)
}

// Established completes an EstablishRequest.
func (m *Machine) Established(now time.Time, e SessionResult) {
	if m.phase == Establishing && !m.handshake.resuming {
		m.handshake.established(now, e)
	}
}

func (h *handshake) established(now time.Time, e SessionResult) {
	m := h.m
	if e.Refused != nil {
		h.refuseSession(e.Refused)
		return
	}
	if e.Attached != nil {
		h.adoptSession(*e.Attached)
		if h.open.LastEventSeq == nil {
			m.positionDeadline = now.Add(positionWait)
		}
	}
	m.accept(now)
	m.send(arcp.SessionAccepted, h.request, m.acceptedPayload(now, e))
	h.finish()
}
