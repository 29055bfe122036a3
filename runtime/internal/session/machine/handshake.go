package machine

import (
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

type challenge struct {
	nonce   string
	expires time.Time
}

// handshake is what the machine keeps until the session is accepted.
type handshake struct {
	deadline  time.Time      // zero: none
	latest    time.Time      // where challenges may move the deadline to
	request   arcp.MessageID // what the next answer correlates to
	open      arcp.SessionOpenPayload
	session   arcp.SessionID // that the open names
	resuming  bool           // the question is Resume
	challenge challenge
	early     []arcp.MessageID // of messages that came before the session was accepted
	warned    bool             // of one of them
}

func newHandshake(now time.Time, cfg *Config) *handshake {
	h := new(handshake)
	if cfg.Handshake > 0 {
		h.deadline = now.Add(cfg.Handshake)
		h.latest = h.deadline.Add(cfg.ChallengeTTL)
	}
	return h
}

// receiveEarly handles a frame that came before the session was accepted.
func (m *Machine) receiveEarly(now time.Time, env *arcp.Envelope) {
	switch {
	case !m.expects(env.Type):
		m.tooEarly(env)
	case !m.seen.add(env.ID):
		m.note("duplicate_id", env.Type, "")
	case env.Type == arcp.SessionOpen:
		m.receiveOpen(now, env)
	case env.Type == arcp.SessionResume:
		m.receiveResume(env)
	default:
		m.receiveAuthenticate(now, env)
	}
}

// expects reports whether a message belongs to the handshake, now.
func (m *Machine) expects(t arcp.Type) bool {
	switch t {
	case arcp.SessionOpen:
		return m.phase == Opening || m.phase == Challenged
	case arcp.SessionResume:
		return m.phase == Opening
	}
	return t == arcp.SessionAuthenticate && m.phase == Challenged
}

// maxEarly bounds the messages that came before the session was accepted and are
// answered when it is.
const maxEarly = 64

// tooEarly drops a message that came before the session was accepted (§5.1). Its id is
// not remembered as seen: the client sends it again.
func (m *Machine) tooEarly(env *arcp.Envelope) {
	m.out.Notes = append(m.out.Notes, Note{Reason: "before_accepted", Type: env.Type, Detail: m.phase.String(), Warn: !m.handshake.warned})
	m.handshake.warned = true
	if spec := arcp.Lookup(env.Type); spec != nil && spec.Quiet || len(m.handshake.early) == maxEarly || slices.Contains(m.handshake.early, env.ID) {
		return
	}
	m.handshake.early = append(m.handshake.early, env.ID)
}

// endHandshake tells the client what it has to send again, now that the session is
// accepted, and forgets the handshake with its token.
func (m *Machine) endHandshake() {
	for _, id := range m.handshake.early {
		m.nack(id, arcp.CodeFailedPrecondition, "sent before session.accepted; send it again")
	}
	m.handshake = nil
}

// speak takes over the client's version, or refuses another major one.
func (m *Machine) speak(env *arcp.Envelope) bool {
	m.handshake.request = env.ID
	if !arcp.SupportedVersion(env.ARCP) {
		m.reject(env, arcp.ReasonVersion, arcp.CodeUnimplemented, "protocol version "+clip.Ellipsis(env.ARCP, maxQuoted)+" is not supported; this runtime speaks 1.x")
		return false
	}
	m.version = env.ARCP
	return true
}

// receiveResume handles a token in the place of credentials (§5.10).
func (m *Machine) receiveResume(env *arcp.Envelope) {
	if !m.speak(env) {
		return
	}
	p, err := decode[arcp.SessionResumePayload](env)
	if err != nil {
		m.misread(env, err)
		return
	}
	m.phase = Establishing
	m.handshake.resuming, m.window = true, p.AckWindow
	m.out.Question = Resume{Token: p.ResumeToken, After: p.LastEventSeq, Version: m.version}
}

// Resumed completes Resume. A token that is not good counts as a wrong
// credential.
func (m *Machine) Resumed(now time.Time, r Resumed) {
	if m.phase != Establishing || !m.handshake.resuming {
		return
	}
	m.handshake.resuming = false
	if r.Refused != nil && r.Refused.Retryable { // no failure of its credentials
		m.turnAway(r.Refused)
		return
	}
	if r.Refused != nil {
		m.fail(m.handshake.request, &Refusal{Code: r.Refused.Code, Message: r.Refused.Message, Final: true})
		return
	}
	m.attach(r.Attached)
	m.negotiate.recall(&m.cfg.Offer)
	m.identity = r.Identity
	m.enter(now)
	m.send(arcp.SessionResumed, m.handshake.request, arcp.SessionResumedPayload{SessionID: m.id, ResumeToken: r.ResumeToken,
		ReplayedFrom: r.After, Replayed: r.Replayed, AckWindow: m.Window()})
	m.endHandshake()
}

// turnAway refuses a session for a reason that is no fault of the client's
// credentials: it may come again.
func (m *Machine) turnAway(refused *arcp.Error) {
	m.phase = Opening
	m.send(arcp.SessionRejected, m.handshake.request, refused)
	m.out.Send[len(m.out.Send)-1].SessionID = ""
}

// attach takes over a session that exists, with what it once negotiated.
func (m *Machine) attach(a Attached) {
	m.id = a.Session
	m.negotiate.features = a.Negotiated
}

func (m *Machine) enter(now time.Time) {
	m.phase = Accepted
	m.failures = 0
	m.live(now)
}

func (m *Machine) receiveOpen(now time.Time, env *arcp.Envelope) {
	m.handshake.challenge = challenge{}
	m.phase = Opening
	if !m.speak(env) {
		return
	}
	open, err := decode[arcp.SessionOpenPayload](env)
	if err != nil {
		m.misread(env, err)
		return
	}
	m.handshake.open, m.handshake.session, m.window = open, env.SessionID, open.Capabilities.AckWindow
	m.negotiate = negotiate(&m.cfg.Offer, &open.Capabilities)
	if len(m.negotiate.unsupported) > 0 {
		m.reject(env, "capability", arcp.CodeUnimplemented, "required capability not supported: "+clip.Ellipsis(m.negotiate.unsupported, maxQuoted))
		return
	}
	m.phase = Authenticating
	m.out.Question = m.credentials()
}

func (m *Machine) credentials() Authenticate {
	return Authenticate{Scheme: m.handshake.open.Auth.Scheme, Token: m.handshake.open.Auth.Token, Principal: m.handshake.open.Client.Principal,
		Fingerprint: m.handshake.open.Client.Fingerprint, Anonymous: m.negotiate.has(arcp.FeatureAnonymous)}
}

func (m *Machine) receiveAuthenticate(now time.Time, env *arcp.Envelope) {
	m.handshake.request = env.ID
	p, err := arcp.DecodePayload[arcp.SessionAuthenticatePayload](env)
	nonce := m.handshake.challenge
	m.handshake.challenge = challenge{} // one use, whatever comes of it
	switch {
	case err != nil:
		m.fail(env.ID, &Refusal{Message: "session.authenticate: " + err.Error()})
	case nonce.nonce == "" || !now.Before(nonce.expires):
		m.fail(env.ID, &Refusal{Message: "the challenge has been used or has expired; send session.open again"})
	default:
		m.phase = Authenticating
		m.out.Question = Verify{m.credentials(), nonce.nonce, p.Response}
	}
}

// Judge completes Authenticate or Verify.
func (m *Machine) Judge(now time.Time, j CredentialDecision) {
	if m.phase != Authenticating {
		return
	}
	switch {
	case j.Refused != nil:
		if m.fail(m.handshake.request, j.Refused); m.phase != Closed && j.Challenge != "" && !j.Refused.Final {
			m.ask(now, j.Challenge)
		}
	case j.Challenge != "":
		m.ask(now, j.Challenge)
	default:
		m.phase = Establishing
		m.identity = *j.Identity
		m.negotiate.allow(&m.identity, m.handshake.open.Client.Kind)
		m.out.Question = Establish{Identity: m.identity, Client: m.handshake.open.Client, Version: m.version,
			Negotiated: m.negotiate.features, Attach: m.handshake.session, After: m.handshake.open.LastEventSeq}
	}
}

// ask sends a challenge. It gives the client the time to answer it, but asking
// again and again does not keep a connection open.
func (m *Machine) ask(now time.Time, nonce string) {
	m.phase = Challenged
	m.handshake.challenge = challenge{nonce, now.Add(m.cfg.ChallengeTTL)}
	if !m.handshake.deadline.IsZero() {
		m.handshake.deadline = m.handshake.challenge.expires
		if m.handshake.latest.Before(m.handshake.deadline) {
			m.handshake.deadline = m.handshake.latest
		}
	}
	m.send(arcp.SessionChallenge, m.handshake.request, arcp.SessionChallengePayload{Challenge: nonce})
}

// fail refuses credentials: the client may try again with better ones, three
// times on a connection.
func (m *Machine) fail(corr arcp.MessageID, r *Refusal) {
	m.failures++
	code := r.Code
	if code == "" {
		code = arcp.CodeUnauthenticated
	}
	t := arcp.SessionRejected
	if !r.Final {
		t = arcp.SessionUnauthenticated
	}
	m.phase = Opening
	m.send(t, corr, arcp.Errorf(code, "%s", r.Message))
	if t == arcp.SessionRejected {
		m.out.Send[len(m.out.Send)-1].SessionID = ""
	}
	if m.failures >= maxFailures {
		m.close(ClosePolicy, "too many authentication failures")
	}
}

// maxQuoted bounds a value of a client that answers and log records repeat, in bytes.
const maxQuoted = 64

// reject refuses an open or a resume for a reason other than credentials.
func (m *Machine) reject(env *arcp.Envelope, reason string, code arcp.Code, message string) {
	m.out.Notes = append(m.out.Notes, Note{Reason: reason, Type: env.Type, Detail: message, Rejected: true})
	m.fail(m.handshake.request, &Refusal{Code: code, Message: message, Final: true})
}

// misread rejects a payload that cannot be read.
func (m *Machine) misread(env *arcp.Envelope, err error) {
	e := badPayload(env.Type, err)
	m.reject(env, arcp.ReasonPayload, e.Code, e.Message)
}

// Established completes Establish.
func (m *Machine) Established(now time.Time, e Established) {
	if m.phase != Establishing || m.handshake.resuming {
		return
	}
	if e.Refused != nil {
		m.turnAway(e.Refused)
		return
	}
	if e.Attached != nil {
		m.attach(*e.Attached)
		if m.handshake.open.LastEventSeq == nil {
			m.position = now.Add(positionWait)
		}
	}
	m.enter(now)
	m.send(arcp.SessionAccepted, m.handshake.request, m.accepted(now, e))
	m.endHandshake()
}

func (m *Machine) accepted(now time.Time, e Established) arcp.SessionAcceptedPayload {
	caps := m.negotiate.answer(&m.cfg.Offer)
	caps.Agents, caps.AckWindow = e.Agents, m.Window()
	rt := m.cfg.Runtime
	rt.TrustLevel = m.identity.Trust
	return arcp.SessionAcceptedPayload{
		SessionID: m.id, Runtime: rt, Capabilities: caps, Lease: m.lease(now),
		ResumeToken:          e.ResumeToken,
		ResumeWindowSec:      max(0, int64(m.cfg.ResumeWindow/time.Second)),
		HeartbeatIntervalSec: max(0, int64(m.cfg.Heartbeat/time.Second)),
	}
}
