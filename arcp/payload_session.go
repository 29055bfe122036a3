package arcp

import (
	"strconv"
	"time"
)

// SessionOpenPayload requests a session; the first message of a connection (§3.1). The envelope may
// name an existing session to attach to.
type SessionOpenPayload struct {
	Auth         Auth         `json:"auth"`                    // credentials
	Client       ClientInfo   `json:"client"`                  // description of the client
	Capabilities Capabilities `json:"capabilities,omitzero"`   // capabilities of the client (§3.10)
	LastEventSeq *uint64      `json:"last_event_seq,omitzero"` // last processed event, when attaching to a session
}

// Auth is the scheme and credential in session.open. Token is a secret.
type Auth struct {
	Scheme string `json:"scheme"`         // bearer, signed_jwt, oauth2, mtls or none
	Token  string `json:"token,omitzero"` // credential; a secret
}

// String omits the token.
func (a Auth) String() string { return "auth " + a.Scheme + " [token redacted]" }

// GoString omits the token.
func (a Auth) GoString() string { return a.String() }

// ClientInfo is the description of a client by itself. The runtime trusts none of it.
type ClientInfo struct {
	Kind        string `json:"kind"`                 // name of the program
	Version     string `json:"version"`              // version of the program
	Fingerprint string `json:"fingerprint,omitzero"` // build of the program
	Principal   string `json:"principal,omitzero"`   // principal that the client claims; the credentials decide
}

// SessionChallengePayload asks the client to prove possession of its credential (§3.1, §5.1).
type SessionChallengePayload struct {
	Challenge string `json:"challenge"` // nonce to sign
}

// SessionAuthenticatePayload answers a challenge or a session.refresh.
type SessionAuthenticatePayload struct {
	Response string `json:"response"`      // signed challenge, or a new credential; a secret
	Auth     *Auth  `json:"auth,omitzero"` // a new credential, when refreshing
}

// String omits the response.
func (p SessionAuthenticatePayload) String() string { return "authenticate [response redacted]" }

// GoString omits the response.
func (p SessionAuthenticatePayload) GoString() string { return p.String() }

// SessionAcceptedPayload opens the session: the runtime's identity and the negotiated
// capabilities. The resume token is a secret.
type SessionAcceptedPayload struct {
	SessionID            SessionID     `json:"session_id"`                      // identifier of the session
	Runtime              RuntimeInfo   `json:"runtime"`                         // description of the runtime
	Capabilities         Capabilities  `json:"capabilities"`                    // negotiated capabilities (§3.10)
	Lease                *SessionLease `json:"lease,omitzero"`                  // validity of the session
	ResumeToken          string        `json:"resume_token,omitzero"`           // secret to resume the session with, once
	ResumeWindowSec      int64         `json:"resume_window_sec,omitzero"`      // seconds that the session can be resumed without a connection
	HeartbeatIntervalSec int64         `json:"heartbeat_interval_sec,omitzero"` // seconds between heartbeats
}

// String omits the token.
func (p SessionAcceptedPayload) String() string {
	return "session " + string(p.SessionID) + " [token redacted]"
}

// GoString omits the token.
func (p SessionAcceptedPayload) GoString() string { return p.String() }

// RuntimeInfo identifies a runtime.
type RuntimeInfo struct {
	Kind        string     `json:"kind"`                 // name of the program
	Version     string     `json:"version"`              // version of the program
	Fingerprint string     `json:"fingerprint,omitzero"` // identity of the runtime
	TrustLevel  TrustLevel `json:"trust_level,omitzero"` // how far the runtime trusts the session: untrusted, constrained, trusted or privileged
}

// SessionLease is the validity of a session.
type SessionLease struct {
	ExpiresAt time.Time `json:"expires_at"` // when the credentials have to be renewed
}

// ErrorPayload is the payload of every message that reports a failure: nack,
// job.failed, tool.error, stream.error, session.rejected and
// session.unauthenticated (§4).
type ErrorPayload = Error

// SessionRefreshPayload asks the client to authenticate again before the deadline.
type SessionRefreshPayload struct {
	Deadline  time.Time `json:"deadline"`           // when a fresh credential must have arrived
	Challenge string    `json:"challenge,omitzero"` // nonce to sign
}

// SessionEvictedPayload announces that the runtime ended the session or its connection.
type SessionEvictedPayload struct {
	Code   Code   `json:"code"`   // why the session has no connection any more
	Reason string `json:"reason"` // for people
}

// SessionClosePayload ends the connection. With forget it ends the session too.
type SessionClosePayload struct {
	Reason   string `json:"reason,omitzero"`    // for people
	OpenJobs string `json:"open_jobs,omitzero"` // detach (default) or cancel
	Forget   bool   `json:"forget,omitzero"`    // whether the session ends; else it can be resumed
}

// SessionClosedPayload is the last message of a connection after session.close.
type SessionClosedPayload struct {
	Reason string `json:"reason,omitzero"` // for people
}

// SessionResumePayload attaches a new connection to a session. ResumeToken is a secret.
type SessionResumePayload struct {
	ResumeToken  string `json:"resume_token"`        // token of session.accepted or session.resumed; a secret
	LastEventSeq uint64 `json:"last_event_seq"`      // number of the last event that was processed
	AckWindow    uint32 `json:"ack_window,omitzero"` // ack window of this connection, in events (§3.10)
}

// String omits the token.
func (p SessionResumePayload) String() string {
	return "resume after " + strconv.FormatUint(p.LastEventSeq, 10) + " [token redacted]"
}

// GoString omits the token.
func (p SessionResumePayload) GoString() string { return p.String() }

// SessionResumedPayload precedes the replayed events. ResumeToken is a secret.
type SessionResumedPayload struct {
	SessionID    SessionID `json:"session_id"`          // identifier of the session
	ResumeToken  string    `json:"resume_token"`        // secret for the next resume
	ReplayedFrom uint64    `json:"replayed_from"`       // number of the last event before those that follow
	Replayed     bool      `json:"replayed"`            // whether events of the past follow
	AckWindow    uint32    `json:"ack_window,omitzero"` // ack window of the connection, in events
}

// String omits the token.
func (p SessionResumedPayload) String() string {
	return "session " + string(p.SessionID) + " [token redacted]"
}

// GoString omits the token.
func (p SessionResumedPayload) GoString() string { return p.String() }

// SessionPingPayload asks the peer for a session.pong.
type SessionPingPayload struct {
	Nonce  string    `json:"nonce"`   // returned in the pong
	SentAt time.Time `json:"sent_at"` // time of the ping
}

// SessionPongPayload answers a session.ping with its nonce.
type SessionPongPayload struct {
	PingNonce  string    `json:"ping_nonce"`  // nonce of the ping
	ReceivedAt time.Time `json:"received_at"` // time of the pong
}

// SessionAckPayload acknowledges all events up to a number.
type SessionAckPayload struct {
	LastProcessedSeq uint64 `json:"last_processed_seq"` // number of the last event that was processed
}

// SessionListJobsPayload asks for a page of the principal's jobs (§5.5).
type SessionListJobsPayload struct {
	Filter *JobFilter `json:"filter,omitzero"` // jobs to list
	Limit  *uint32    `json:"limit,omitzero"`  // default 100, at most 1000
	Cursor string     `json:"cursor,omitzero"` // next_cursor of the page before
	Order  JobOrder   `json:"order,omitzero"`  // oldest or newest: the job that the list begins with; default: oldest
}

// JobOrder is the order of a list of jobs (§5.5).
type JobOrder string

// The orders.
const (
	OldestFirst JobOrder = "oldest"
	NewestFirst JobOrder = "newest"
)

// JobOrders lists the orders.
var JobOrders = []JobOrder{OldestFirst, NewestFirst}

// JobFilter selects jobs; its members are combined with and.
type JobFilter struct {
	Status        []string  `json:"status,omitempty"`        // jobs in these states
	Agent         string    `json:"agent,omitzero"`          // a name, or name@version
	CreatedAfter  time.Time `json:"created_after,omitzero"`  // exclusive
	CreatedBefore time.Time `json:"created_before,omitzero"` // exclusive
	SessionID     SessionID `json:"session_id,omitzero"`     // jobs of this session
	Principal     string    `json:"principal,omitzero"`      // principal that owns the jobs; default: the caller
}

// SessionJobsPayload is one page of jobs. next_cursor is null on the last page.
type SessionJobsPayload struct {
	RequestID  MessageID  `json:"request_id"`     // identifier of the session.list_jobs
	Jobs       []JobEntry `json:"jobs"`           // jobs of this page
	NextCursor *string    `json:"next_cursor"`    // cursor of the next page; null: there is none
	Order      JobOrder   `json:"order,omitzero"` // order of the list; missing: oldest first
}

// JobEntry is a job in a list.
type JobEntry struct {
	JobID        JobID     `json:"job_id"`                 // identifier of the job
	Agent        string    `json:"agent"`                  // resolved name@version
	Status       string    `json:"status"`                 // state of the job
	Lease        Raw       `json:"lease,omitzero"`         // lease of the job
	ParentJobID  JobID     `json:"parent_job_id,omitzero"` // job that has called this one
	CreatedAt    time.Time `json:"created_at"`             // when the job was accepted
	TraceID      string    `json:"trace_id,omitzero"`      // trace of the job
	LastEventSeq uint64    `json:"last_event_seq"`         // number of its last event in the session that submitted it
	SessionID    SessionID `json:"session_id,omitzero"`    // session that submitted the job
	StartedAt    time.Time `json:"started_at,omitzero"`    // when its first attempt started
	EndedAt      time.Time `json:"ended_at,omitzero"`      // when the job ended
}
