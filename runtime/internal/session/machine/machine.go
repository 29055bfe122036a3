// Package machine is the state machine of one session on one connection: handshake,
// negotiation and the admission of every message. It is pure: its caller passes the time,
// stamps the ids, and carries out each [Output].
//
// A message has no effect before the client is authenticated. A message is dropped without an
// answer only where SPEC.md §6.4 says so.
package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Phase is the phase of a session (SPEC.md §5.1).
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

// Limits of the handshake and of the messages of a client.
const (
	maxFailures  = 3    // failed authentications, then the connection ends
	maxBadFrames = 100  // in a row, then the connection ends
	dedupWindow  = 8192 // message ids remembered

	positionWait = 2 * time.Second // for the message after session.accepted (§5.10)
	endWait      = 5 * time.Second // for the end of a session to be durable
)

// Config is shared by the machines of a runtime and never changed.
type Config struct {
	Handshake    time.Duration // until the session must be accepted; off if not positive
	ChallengeTTL time.Duration // until a challenge must be answered
	Lease        time.Duration // of the session: without a sign of life; off if not positive
	Idle         time.Duration // with nothing but signs of life; off if not positive
	ResumeWindow time.Duration
	Heartbeat    time.Duration
	Runtime      arcp.RuntimeInfo
	Offer        arcp.Capabilities // without the agents
	Cache        CapabilityCache   // nil: capabilities are encoded for each client
}

// Output lists the actions for the caller, in the order of the fields. Envelopes to send have
// no id, timestamp and version: the caller stamps them. The caller takes an Output after each
// call of Receive.
type Output struct {
	Notes      []Note
	Send       []arcp.Envelope
	Release    bool     // the client has not named its last event: events continue from the present position
	Admitted   Admitted // the message to handle, if the last one is handled by the caller
	CancelJobs bool     // cancel the jobs of the session
	Close      *Close   // after everything was sent; the question is dropped
	Question   any      // nil, Authenticate, Verify, Establish, Resume, Remind, Reauthenticate, Renew or End
}

// Admitted is a message that passed admission and that the machine does not handle itself.
type Admitted struct {
	Envelope *arcp.Envelope // nil: none
	Worker   bool           // it is about a job that the session executes (§7.8)
}

// ReasonRole is the reason of a Note: the principal lacks the role for the message.
const ReasonRole = "role"

// Note is something to count and log: a message that was dropped or refused.
type Note struct {
	Reason string // from a closed set: a metric label
	Type   arcp.Type
	Detail string

	Rejected bool // it ended a handshake; the caller learns of that by this note only
	Warn     bool // to be logged as a warning, not only for debugging
}

// Close asks the caller to end the connection.
type Close struct {
	Code    int
	Reason  string
	Evicted Cause // why the machine evicted the session; empty: it did not
}

// Machine is the state of one session on one connection. It is owned by one
// goroutine.
type Machine struct {
	cfg *Config
	out Output

	phase    Phase
	failures uint8  // failed authentications in a row, up to maxFailures
	bad      uint8  // undecodable frames in a row, up to maxBadFrames
	spoken   bool   // a message came since the session was accepted
	window   uint32 // that the client asks for; 0: none

	id        arcp.SessionID
	version   string
	identity  Identity
	negotiate negotiation
	recentIDs dedup

	handshake *handshake // nil once accepted
	position  time.Time  // until then the client may ask for a position; zero: it may not
	life      life       // once accepted
	renewal   renewal    // once accepted
	end       *ending    // nil until closing
}

// ending is the session.close that waits for the end of the session to be durable.
type ending struct {
	request  arcp.MessageID
	reason   string
	deadline time.Time
}

// New returns the machine of a new connection. id is the id of the session if a new one is
// accepted.
func New(now time.Time, cfg *Config, id arcp.SessionID) *Machine {
	m := &Machine{cfg: cfg, id: id, version: arcp.Version}
	m.handshake = newHandshake(now, m)
	return m
}

// Phase returns the phase.
func (m *Machine) Phase() Phase { return m.phase }

// Version returns the protocol version of the frames that are sent.
func (m *Machine) Version() string { return m.version }

// Has reports whether a feature was negotiated.
func (m *Machine) Has(f arcp.Feature) bool { return m.negotiate.has(f) }

// Window returns how many unacknowledged events are sent to a client that acknowledges: the
// smaller of the configured and the requested window; 0: any number.
func (m *Machine) Window() uint32 {
	if w := m.cfg.Offer.AckWindow; w > 0 && (m.window == 0 || w < m.window) {
		return w
	}
	return m.window
}

// Deadline returns when Advance must be called; zero: never.
func (m *Machine) Deadline() time.Time {
	switch m.phase {
	case Closed:
		return time.Time{}
	case Accepted:
		return earliest(m.position, earliest(m.life.deadline(m.cfg), m.renewal.deadline()))
	case Closing:
		return m.end.deadline
	}
	return m.handshake.deadline
}

// Advance applies the passage of time.
func (m *Machine) Advance(now time.Time) {
	d := m.Deadline()
	if d.IsZero() || now.Before(d) {
		return
	}
	switch m.phase {
	case Accepted:
		if due(now, m.position) {
			m.release()
		}
		m.expire(now)
	case Closing:
		m.Ended(arcp.Errorf(arcp.CodeUnavailable, "the end of the session is not stored yet"))
	default:
		const timeout = "handshake not completed in time"
		m.out.Notes = append(m.out.Notes, Note{Reason: "handshake_timeout", Detail: timeout, Rejected: m.phase != Opening})
		m.close(ClosePolicy, timeout)
	}
}

// expire evicts a session whose time is over, or asks for a new credential.
func (m *Machine) expire(now time.Time) {
	switch {
	case due(now, m.renewal.end()):
		m.evict(CredentialExpired, arcp.CodeUnauthenticated, "the credential of the session has expired")
	case due(now, m.life.leaseEnd(m.cfg)):
		m.evict(LeaseExpired, arcp.CodeLeaseExpired, "nothing was heard for "+m.cfg.Lease.String())
	case due(now, m.life.idleEnd(m.cfg)):
		m.evict(Idle, arcp.CodeDeadlineExceeded, "the session did nothing for "+m.cfg.Idle.String())
	case due(now, m.renewal.ask):
		m.renewal.ask = time.Time{}
		m.renewal.remind("")
	}
}

// release ends the wait for a position.
func (m *Machine) release() {
	if !m.position.IsZero() {
		m.position = time.Time{}
		m.out.Release = true
	}
}

// Positioned ends the wait for a position: the client has asked for one.
func (m *Machine) Positioned() { m.position = time.Time{} }

// Take returns the output since the last call.
func (m *Machine) Take() Output {
	out := m.out
	m.out = Output{}
	return out
}

// enter begins the accepted phase with the identity of the client.
func (m *Machine) enter(now time.Time) {
	m.phase = Accepted
	m.failures = 0
	m.life = life{received: now, worked: now}
	m.renewal = renewal{m: m}
	m.renewal.start(now)
}

// accepted returns the payload of session.accepted.
func (m *Machine) accepted(now time.Time, e Established) arcp.SessionAcceptedPayload {
	rt := m.cfg.Runtime
	rt.TrustLevel = m.identity.Trust
	p := arcp.SessionAcceptedPayload{
		SessionID: m.id, Runtime: rt, Capabilities: m.negotiate.capabilities(m.cfg, e.Agents, m.Window()), ResumeToken: e.ResumeToken,
		ResumeWindowSec:      max(0, int64(m.cfg.ResumeWindow/time.Second)),
		HeartbeatIntervalSec: max(0, int64(m.cfg.Heartbeat/time.Second)),
	}
	// The lease ends after the longest silence that is allowed, but not after the credential.
	if end := earliest(after(now, m.cfg.Lease), m.renewal.expires); !end.IsZero() {
		p.Lease = &arcp.SessionLease{ExpiresAt: end}
	}
	return p
}

// Identify replaces the identity of an accepted session after the configuration of its
// principal has changed.
func (m *Machine) Identify(id Identity) { m.identity = id }

// Notice adds signs of life that are not messages. It is called before Advance.
func (m *Machine) Notice(s Signs) {
	m.life.received = later(m.life.received, s.Received)
	m.life.worked = later(m.life.worked, s.Worked)
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

// Evict ends the connection of the session from the runtime's side.
func (m *Machine) Evict(code arcp.Code, reason string) {
	if m.phase != Accepted {
		m.close(ClosePolicy, reason)
		return
	}
	m.send(arcp.SessionEvicted, "", arcp.SessionEvictedPayload{Code: code, Reason: reason})
	m.close(ClosePolicy, "evicted: "+reason)
}

// evict is Evict for a cause that the machine has found.
func (m *Machine) evict(cause Cause, code arcp.Code, reason string) {
	m.Evict(code, reason)
	m.out.Close.Evicted = cause
}
