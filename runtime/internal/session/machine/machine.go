// Package machine is the state machine of one session on one connection: handshake,
// negotiation and the admission of every message. It is pure: the time is an argument, and the
// caller stamps the envelopes and performs each [Output].
//
// A message passes through Receive (admit.go). Before session.accepted, handshake.go handles it;
// afterwards admit checks it against its row of arcp.Catalog. The machine handles the types in
// handlers itself, and returns every other message as Output.Admitted. Work that needs the store
// or an authenticator is an Output.Request (requests.go), which a method of Machine completes.
//
// A message has no effect before the client is authenticated. A message is dropped without an
// answer only where SPEC.md §6.4 says so. Section references (§) are to SPEC.md.
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
	Authenticating              // entered by session.open or an answer to a challenge; left when they are verified
	Challenged                  // entered by a challenge; left by session.authenticate
	Establishing                // entered by valid credentials; left when the session is durable
	Accepted                    // entered by session.accepted; left by close or eviction
	Closing                     // entered by session.close that ends the session; left when the end is durable
	Closed                      // nothing more is sent or handled
)

func (p Phase) String() string {
	return [...]string{"opening", "authenticating", "challenged", "establishing", "accepted", "closing", "closed"}[p]
}

// Limits of the handshake and of the messages of a client.
const (
	maxFailures  = 3    // failed authentications until the connection ends
	maxBadFrames = 100  // undecodable frames in a row until the connection ends
	dedupWindow  = 8192 // latest message ids that are known as duplicates

	positionWait = 2 * time.Second // from session.accepted to a resume message (§5.10)
	endWait      = 5 * time.Second // from session.close to the durable end of the session
)

// Config is shared by the machines of a runtime and never changed.
type Config struct {
	Handshake    time.Duration // bound from the connection to session.accepted; not positive: none
	ChallengeTTL time.Duration // bound from a challenge to its answer
	Lease        time.Duration // silence of a client that evicts its session; not positive: none
	Idle         time.Duration // time without work that evicts a session; not positive: none
	ResumeWindow time.Duration // announced to the client
	Heartbeat    time.Duration // announced to the client
	Runtime      arcp.RuntimeInfo
	Offer        arcp.Capabilities // without the agents
	Cache        CapabilityCache   // nil: capabilities are encoded for each client
}

// Output lists the actions for the caller, in the order of the fields. The caller takes an
// Output after each call of a method that changes the machine.
type Output struct {
	Incidents  []Incident
	Send       []arcp.Envelope
	SendEvents bool     // events may be sent from the present position: the client asks for no other
	Admitted   Admitted // the message for the caller to handle
	CancelJobs bool     // cancel the jobs of the session
	Close      *Close   // end of the connection, after Send; Request is dropped
	Request    Request  // nil: none
}

// Admitted is a message that passed admission. The caller handles it.
type Admitted struct {
	Envelope *arcp.Envelope // nil: none
	Worker   bool           // about a job that the session executes (§7.8)
}

// ReasonRole is the reason of an Incident: the principal lacks the role for the message.
const ReasonRole = "role"

// Incident describes a message that was dropped or refused, for the metrics and the log.
type Incident struct {
	Reason string // metric label, from a closed set
	Type   arcp.Type
	Detail string

	Rejected bool // the message ended a handshake
	Warn     bool // log level warning; otherwise debug
}

// Close asks the caller to end the connection.
type Close struct {
	Code    int
	Reason  string
	Evicted Cause // cause if the machine evicted the session
}

// Machine is the state of one session on one connection. It is not for concurrent use.
type Machine struct {
	cfg *Config
	out Output

	phase           Phase
	singleAttempt   bool   // the first failure of a handshake ends the connection
	failures        uint8  // failed authentications in a row, up to maxFailures
	badFrames       uint8  // undecodable frames in a row, up to maxBadFrames
	receivedAny     bool   // a message was received since session.accepted
	requestedWindow uint32 // ack window that the client asks for; 0: none

	id        arcp.SessionID
	version   string
	identity  Identity
	negotiate negotiation
	recentIDs dedup

	handshake        *handshake // nil once accepted
	positionDeadline time.Time  // until which the client may send a resume message; zero: it may not
	activity         Activity   // once accepted
	renewal          renewal    // once accepted
	end              *ending    // nil before session.close
}

// ending is a session.close whose answer waits for the durable end of the session.
type ending struct {
	request  arcp.MessageID
	reason   string
	deadline time.Time
}

// New returns the machine of a new connection. id becomes the id of the session unless the
// client attaches to an existing one.
func New(now time.Time, cfg *Config, id arcp.SessionID) *Machine {
	m := &Machine{cfg: cfg, id: id, version: arcp.Version}
	m.handshake = newHandshake(now, m)
	return m
}

// NewDraft returns the machine of a new connection in the draft dialect. A client has one try to
// open or resume a session.
func NewDraft(now time.Time, cfg *Config, id arcp.SessionID) *Machine {
	m := New(now, cfg, id)
	m.singleAttempt = true
	return m
}

// AcceptedPayload returns the payload of a session.accepted for an accepted session as of now, without
// a resume token.
func (m *Machine) AcceptedPayload(now time.Time, agents []arcp.Agent) arcp.SessionAcceptedPayload {
	p := m.acceptedPayload(now, SessionResult{Agents: agents})
	p.Capabilities = m.negotiate.capabilities(m.cfg, agents, m.Window()) // not encoded: the caller reads them
	return p
}

// Phase returns the phase.
func (m *Machine) Phase() Phase { return m.phase }

// Version returns the protocol version of the frames that are sent.
func (m *Machine) Version() string { return m.version }

// Has reports whether a feature was negotiated.
func (m *Machine) Has(f arcp.Feature) bool { return m.negotiate.has(f) }

// Window returns the bound of unacknowledged events for a client that acknowledges: the smaller
// of the configured and the requested window; 0: none.
func (m *Machine) Window() uint32 {
	if w := m.cfg.Offer.AckWindow; w > 0 && (m.requestedWindow == 0 || w < m.requestedWindow) {
		return w
	}
	return m.requestedWindow
}

// Deadline returns when Advance must be called; zero: never.
func (m *Machine) Deadline() time.Time {
	switch m.phase {
	case Closed:
		return time.Time{}
	case Accepted:
		return earliest(m.positionDeadline, earliest(m.activity.deadline(m.cfg), m.renewal.deadline()))
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
		if passed(now, m.positionDeadline) {
			m.endPositionWait()
		}
		m.expire(now)
	case Closing:
		m.Ended(arcp.Errorf(arcp.CodeUnavailable, "the end of the session is not stored yet"))
	default:
		const timeout = "handshake not completed in time"
		m.out.Incidents = append(m.out.Incidents, Incident{Reason: "handshake_timeout", Detail: timeout, Rejected: m.phase != Opening})
		m.close(ClosePolicy, timeout)
	}
}

// expire evicts a session at the end of its credential, its lease or its idle time. Before the
// end of the credential it asks for a new one.
func (m *Machine) expire(now time.Time) {
	switch {
	case passed(now, m.renewal.evictAt()):
		m.evict(CredentialExpired, arcp.CodeUnauthenticated, "the credential of the session has expired")
	case passed(now, m.activity.leaseEnd(m.cfg)):
		m.evict(LeaseExpired, arcp.CodeLeaseExpired, "nothing was heard for "+m.cfg.Lease.String())
	case passed(now, m.activity.idleEnd(m.cfg)):
		m.evict(Idle, arcp.CodeDeadlineExceeded, "the session did nothing for "+m.cfg.Idle.String())
	case passed(now, m.renewal.askAt):
		m.renewal.askAt = time.Time{}
		m.renewal.prepare("")
	}
}

// endPositionWait lets the events continue: the client asks for no other position.
func (m *Machine) endPositionWait() {
	if !m.positionDeadline.IsZero() {
		m.positionDeadline = time.Time{}
		m.out.SendEvents = true
	}
}

// PositionRequested ends the wait for a resume message: the caller handles one.
func (m *Machine) PositionRequested() { m.positionDeadline = time.Time{} }

// TakeOutput returns the output since the last call.
func (m *Machine) TakeOutput() Output {
	out := m.out
	m.out = Output{}
	return out
}

// accept begins the accepted phase.
func (m *Machine) accept(now time.Time) {
	m.phase = Accepted
	m.failures = 0
	m.activity = Activity{Received: now, Worked: now}
	m.renewal = renewal{m: m}
	m.renewal.start(now)
}

// acceptedPayload returns the payload of session.accepted.
func (m *Machine) acceptedPayload(now time.Time, e SessionResult) arcp.SessionAcceptedPayload {
	rt := m.cfg.Runtime
	rt.TrustLevel = m.identity.Trust
	p := arcp.SessionAcceptedPayload{
		SessionID: m.id, Runtime: rt, Capabilities: m.negotiate.cachedCapabilities(m.cfg, e.Agents, m.Window()), ResumeToken: e.ResumeToken,
		ResumeWindowSec:      max(0, int64(m.cfg.ResumeWindow/time.Second)),
		HeartbeatIntervalSec: max(0, int64(m.cfg.Heartbeat/time.Second)),
	}
	// The lease ends after the longest allowed silence, and not later than the credential.
	if end := earliest(after(now, m.cfg.Lease), m.renewal.expires); !end.IsZero() {
		p.Lease = &arcp.SessionLease{ExpiresAt: end}
	}
	return p
}

// SetIdentity replaces the identity of an accepted session when the configuration of its
// principal has changed.
func (m *Machine) SetIdentity(id Identity) { m.identity = id }

// RecordActivity adds activity other than messages. It is called before Advance.
func (m *Machine) RecordActivity(a Activity) {
	m.activity.Received = later(m.activity.Received, a.Received)
	m.activity.Worked = later(m.activity.Worked, a.Worked)
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

func (m *Machine) report(reason string, t arcp.Type, detail string) {
	m.out.Incidents = append(m.out.Incidents, Incident{Reason: reason, Type: t, Detail: detail})
}

// send adds an envelope to the output, an answer to the message request unless that is empty.
func (m *Machine) send(t arcp.Type, request arcp.MessageID, payload any) {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	env.SessionID = m.id
	m.out.Send = append(m.out.Send, env)
}

func (m *Machine) nack(request arcp.MessageID, code arcp.Code, format string, args ...any) {
	m.send(arcp.Nack, request, arcp.Errorf(code, format, args...))
}

// Evict evicts the session: it sends session.evicted and closes the connection.
func (m *Machine) Evict(code arcp.Code, reason string) {
	if m.phase != Accepted {
		m.close(ClosePolicy, reason)
		return
	}
	m.send(arcp.SessionEvicted, "", arcp.SessionEvictedPayload{Code: code, Reason: reason})
	m.close(ClosePolicy, "evicted: "+reason)
}

// evict is Evict by the machine itself.
func (m *Machine) evict(cause Cause, code arcp.Code, reason string) {
	m.Evict(code, reason)
	m.out.Close.Evicted = cause
}
