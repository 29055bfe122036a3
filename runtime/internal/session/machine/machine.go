// Package machine is the state machine of one session as one connection sees it:
// handshake, negotiation and the admission of everything else. It is pure: it
// takes the time, mints nothing, and returns what its caller must do.
//
// Nothing is taken from a peer before it is authenticated, and nothing is
// ignored in silence but what SPEC.md §6.4 says so.
package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Phase is where a session is (SPEC.md §5.1).
type Phase uint8

// The phases.
const (
	Opening        Phase = iota // entered by a connection; left by session.open
	Authenticating              // entered by session.open or an answer to a challenge; left when the credentials were judged
	Challenged                  // entered by a challenge; left by session.authenticate
	Establishing                // entered by good credentials; left when the session is durable
	Accepted                    // entered by session.accepted; left by close or eviction
	Closing                     // entered by session.close that ends the session; left when the end is durable
	Closed                      // nothing is sent or read any more
)

func (p Phase) String() string {
	return [...]string{"opening", "authenticating", "challenged", "establishing", "accepted", "closing", "closed"}[p]
}

// Limits of the handshake and of what a peer may send.
const (
	maxFailures  = 3    // wrong credentials, then the connection ends
	maxBadFrames = 100  // in a row, then the connection ends
	dedupWindow  = 8192 // message ids remembered

	positionWait = 2 * time.Second // for the frame after session.accepted (§5.10)
	endWait      = 5 * time.Second // for the end of a session to be durable
)

// Config is what the machine needs to know. It is shared and never changed.
type Config struct {
	Handshake    time.Duration // until the session must be accepted; off if not positive
	ChallengeTTL time.Duration // until a challenge must be answered
	Lease        time.Duration // of the session: without a sign of life; off if not positive
	Idle         time.Duration // with nothing but signs of life; off if not positive
	ResumeWindow time.Duration
	Heartbeat    time.Duration
	Runtime      arcp.RuntimeInfo
	Offer        arcp.Capabilities // without the agents
}

// Output is what the caller must do, in the order of the fields. Envelopes have
// no id, timestamp, version and session: the caller stamps them.
type Output struct {
	Notes    []Note
	Send     []arcp.Envelope
	Question any       // at most one: Authenticate, Verify, Establish, Resume, Remind, Reauthenticate, Renew or End; each says who completes it
	Commands []Command // to perform in order
	Close    *Close    // after everything was sent
}

// ReasonRole is the reason of a Note: the principal has not the role for what it
// sent.
const ReasonRole = "role"

// Note is something to count and log: a frame that was dropped or refused.
type Note struct {
	Reason string // from a closed set: a metric label
	Type   arcp.Type
	Detail string

	Rejected bool // a handshake ended with it, which the caller knows of by this only
	Warn     bool // to be logged as a warning, not only for debugging
}

// Close asks the caller to end the connection.
type Close struct {
	Code    int
	Reason  string
	Evicted Cause // why the machine evicted the session; empty: it did not
}

// Authenticate asks for a judgement of credentials.
type Authenticate struct {
	Scheme, Token          string
	Principal, Fingerprint string
	Anonymous              bool // negotiated by both sides
}

// Verify asks whether a response answers a challenge.
type Verify struct {
	Authenticate
	Challenge, Response string
}

// CredentialDecision answers Authenticate and Verify: a refusal, a challenge to send, an
// identity, or a refusal with a fresh challenge, for a wrong response: a
// challenge is good for one answer.
type CredentialDecision struct {
	Refused   *Refusal
	Challenge string
	Identity  *Identity
}

// Refusal says why credentials were not accepted.
type Refusal struct {
	Message string
	Code    arcp.Code // default UNAUTHENTICATED
	Final   bool
}

// Identity is the authenticated identity of the client.
type Identity struct {
	Principal string
	Trust     string
	Anonymous bool
	Commands  bool      // may send commands; an observer may not
	Worker    bool      // may execute jobs
	Expires   time.Time // of the credential; zero: never
}

// Establish asks to make the session durable. With Attach, and if that is a
// session of the same principal, it is attached to instead, at the position
// After if it is given.
type Establish struct {
	Identity   Identity
	Client     arcp.ClientInfo
	Version    string
	Negotiated []arcp.Feature
	Attach     arcp.SessionID
	After      *uint64
}

// End asks to end the session for good: session.close with forget. It is completed by
// Ended.
type End struct{}

// Resume asks to attach to the session that a token names, at a position.
type Resume struct {
	Token   string
	After   uint64
	Version string
}

// Attached is a session that existed before.
type Attached struct {
	Session    arcp.SessionID
	Negotiated []arcp.Feature // once and for all
}

// Resumed answers Resume.
type Resumed struct {
	Refused *arcp.Error
	Attached
	Identity    Identity
	ResumeToken string
	After       uint64
	Replayed    bool // there is something to replay
}

// Established answers Establish.
type Established struct {
	Refused     *arcp.Error // a limit; the session was not made
	ResumeToken string
	Agents      []arcp.Agent
	Attached    *Attached // nil: the session is new
}

// Machine is the state of one session on one connection. It is owned by one
// goroutine.
type Machine struct {
	cfg   *Config
	phase Phase
	id    arcp.SessionID
	out   Output

	failures int // to prove who the client is, in a row
	bad      int // undecodable frames in a row

	version   string
	window    uint32 // that the client asks for; 0: it does not
	identity  Identity
	negotiate negotiation
	seen      dedup

	handshake *handshake // nil once accepted
	spoken    bool       // a message came since the session was accepted
	position  time.Time  // until then the client may say where to go on; zero: that is known
	life      life       // once accepted
	end       *ending    // nil until closing
}

// ending is the session.close that waits for the end of the session to be durable.
type ending struct {
	request  arcp.MessageID
	reason   string
	deadline time.Time
}

// New returns the machine of a fresh connection. id is the session's id if it
// comes to be accepted.
func New(now time.Time, cfg *Config, id arcp.SessionID) *Machine {
	return &Machine{cfg: cfg, id: id, version: arcp.Version, handshake: newHandshake(now, cfg)}
}

// Phase returns the phase.
func (m *Machine) Phase() Phase { return m.phase }

// Version returns the protocol version of the frames that are sent.
func (m *Machine) Version() string { return m.version }

// Has reports whether a feature was negotiated.
func (m *Machine) Has(f arcp.Feature) bool { return m.negotiate.has(f) }

// Window is how many events are sent to a client that acknowledges ahead of what
// it has acknowledged: the smaller of what is configured and what it asks for. 0:
// any number.
func (m *Machine) Window() uint32 {
	if w := m.cfg.Offer.AckWindow; w > 0 && (m.window == 0 || w < m.window) {
		return w
	}
	return m.window
}

// Deadline is when Advance must be called; zero: never.
func (m *Machine) Deadline() time.Time {
	switch m.phase {
	case Closed:
		return time.Time{}
	case Accepted:
		return earliest(m.position, m.lifeDeadline())
	case Closing:
		return m.end.deadline
	}
	return m.handshake.deadline
}

// Advance tells the machine that time has passed.
func (m *Machine) Advance(now time.Time) {
	d := m.Deadline()
	if d.IsZero() || now.Before(d) {
		return
	}
	if m.phase == Accepted {
		if due(now, m.position) {
			m.proceed()
		}
		m.keepAlive(now)
		return
	}
	if m.phase == Closing {
		m.Ended(arcp.Errorf(arcp.CodeUnavailable, "the end of the session is not stored yet"))
		return
	}
	const late = "handshake not completed in time"
	m.out.Notes = append(m.out.Notes, Note{Reason: "handshake_timeout", Detail: late, Rejected: m.phase != Opening})
	m.close(ClosePolicy, late)
}

// Take returns the output since the last call.
func (m *Machine) Take() Output {
	out := m.out
	m.out = Output{}
	return out
}

// Close codes used by the machine (SPEC.md §6.5).
const (
	CloseNormal   = 1000
	ClosePolicy   = 1008
	CloseInternal = 1011
)

func (m *Machine) close(code int, reason string) {
	if m.phase == Closed {
		return
	}
	m.phase = Closed
	m.out.Close = &Close{Code: code, Reason: reason}
}

func (m *Machine) note(reason string, t arcp.Type, detail string) {
	m.out.Notes = append(m.out.Notes, Note{Reason: reason, Type: t, Detail: detail})
}

// send queues an answer to the message with id corr.
func (m *Machine) send(t arcp.Type, corr arcp.MessageID, payload any) {
	env := arcp.Frame(t, payload)
	env.CorrelationID = corr
	env.SessionID = m.id
	m.out.Send = append(m.out.Send, env)
}

func (m *Machine) nack(corr arcp.MessageID, code arcp.Code, format string, args ...any) {
	m.send(arcp.Nack, corr, arcp.Errorf(code, format, args...))
}

// Evict ends the session from the runtime's side.
func (m *Machine) Evict(code arcp.Code, reason string) {
	if m.phase != Accepted {
		m.close(ClosePolicy, reason)
		return
	}
	m.send(arcp.SessionEvicted, "", arcp.SessionEvictedPayload{Code: code, Reason: reason})
	m.close(ClosePolicy, "evicted: "+reason)
}
