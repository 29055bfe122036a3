package arcp

import (
	"strconv"
	"time"
)

// SessionOpenPayload asks for a session; the first message on a connection
// (§3.1). The envelope may name an existing session to attach to again.
type SessionOpenPayload struct {
	Auth         Auth         `json:"auth"`
	Client       ClientInfo   `json:"client"`
	Capabilities Capabilities `json:"capabilities,omitzero"`
	LastEventSeq *uint64      `json:"last_event_seq,omitzero"` // position when attaching again
}

// Auth is the scheme and credential of session.open. The token is a secret.
type Auth struct {
	Scheme string `json:"scheme"`
	Token  string `json:"token,omitzero"`
}

// String never shows the token.
func (a Auth) String() string { return "auth " + a.Scheme + " [token redacted]" }

// GoString never shows the token.
func (a Auth) GoString() string { return a.String() }

// ClientInfo is how a client describes itself; nothing in it is trusted.
type ClientInfo struct {
	Kind        string `json:"kind"`
	Version     string `json:"version"`
	Fingerprint string `json:"fingerprint,omitzero"`
	Principal   string `json:"principal,omitzero"`
}

// SessionChallengePayload asks the client to prove that it holds its
// credential (§3.1, §5.1).
type SessionChallengePayload struct {
	Challenge string `json:"challenge"`
}

// SessionAuthenticatePayload answers a challenge or a session.refresh.
type SessionAuthenticatePayload struct {
	Response string `json:"response"`
	Auth     *Auth  `json:"auth,omitzero"` // a new credential, when refreshing
}

// String never shows the response.
func (p SessionAuthenticatePayload) String() string { return "authenticate [response redacted]" }

// GoString never shows the response.
func (p SessionAuthenticatePayload) GoString() string { return p.String() }

// SessionAcceptedPayload opens the session: who the runtime is and what was
// negotiated. The resume token is a secret.
type SessionAcceptedPayload struct {
	SessionID            SessionID     `json:"session_id"`
	Runtime              RuntimeInfo   `json:"runtime"`
	Capabilities         Capabilities  `json:"capabilities"`
	Lease                *SessionLease `json:"lease,omitzero"`
	ResumeToken          string        `json:"resume_token,omitzero"`
	ResumeWindowSec      int64         `json:"resume_window_sec,omitzero"`
	HeartbeatIntervalSec int64         `json:"heartbeat_interval_sec,omitzero"`
}

// String never shows the token.
func (p SessionAcceptedPayload) String() string {
	return "session " + string(p.SessionID) + " [token redacted]"
}

// GoString never shows the token.
func (p SessionAcceptedPayload) GoString() string { return p.String() }

// RuntimeInfo identifies a runtime. TrustLevel is what the session is trusted
// with: untrusted, constrained, trusted or privileged.
type RuntimeInfo struct {
	Kind        string `json:"kind"`
	Version     string `json:"version"`
	Fingerprint string `json:"fingerprint,omitzero"`
	TrustLevel  string `json:"trust_level,omitzero"`
}

// SessionLease is how long the session lives without being renewed.
type SessionLease struct {
	ExpiresAt time.Time `json:"expires_at"`
}

// ErrorPayload is the payload of every message that reports a failure: nack,
// job.failed, tool.error, stream.error, session.rejected and
// session.unauthenticated (§4).
type ErrorPayload = Error

// SessionRefreshPayload asks the client to authenticate again before Deadline.
type SessionRefreshPayload struct {
	Deadline  time.Time `json:"deadline"`
	Challenge string    `json:"challenge,omitzero"`
}

// SessionEvictedPayload says that the runtime ended the session.
type SessionEvictedPayload struct {
	Code   Code   `json:"code"`
	Reason string `json:"reason"`
}

// SessionClosePayload ends the connection, and with Forget the session.
type SessionClosePayload struct {
	Reason   string `json:"reason,omitzero"`
	OpenJobs string `json:"open_jobs,omitzero"` // detach (default) or cancel
	Forget   bool   `json:"forget,omitzero"`
}

// SessionClosedPayload is the last message of a connection that was closed in
// order.
type SessionClosedPayload struct {
	Reason string `json:"reason,omitzero"`
}

// SessionResumePayload attaches a new connection to a session. The token is a
// secret.
type SessionResumePayload struct {
	ResumeToken  string `json:"resume_token"`
	LastEventSeq uint64 `json:"last_event_seq"`
	AckWindow    uint32 `json:"ack_window,omitzero"` // as Capabilities.AckWindow
}

// String never shows the token.
func (p SessionResumePayload) String() string {
	return "resume after " + strconv.FormatUint(p.LastEventSeq, 10) + " [token redacted]"
}

// GoString never shows the token.
func (p SessionResumePayload) GoString() string { return p.String() }

// SessionResumedPayload precedes the replay.
type SessionResumedPayload struct {
	SessionID    SessionID `json:"session_id"`
	ResumeToken  string    `json:"resume_token"`
	ReplayedFrom uint64    `json:"replayed_from"`
	Replayed     bool      `json:"replayed"`
	AckWindow    uint32    `json:"ack_window,omitzero"` // that applies to the connection
}

// String never shows the token.
func (p SessionResumedPayload) String() string {
	return "session " + string(p.SessionID) + " [token redacted]"
}

// GoString never shows the token.
func (p SessionResumedPayload) GoString() string { return p.String() }

// SessionPingPayload asks the peer for a session.pong.
type SessionPingPayload struct {
	Nonce  string    `json:"nonce"`
	SentAt time.Time `json:"sent_at"`
}

// SessionPongPayload answers a session.ping with its nonce.
type SessionPongPayload struct {
	PingNonce  string    `json:"ping_nonce"`
	ReceivedAt time.Time `json:"received_at"`
}

// SessionAckPayload says up to which event_seq everything was processed.
type SessionAckPayload struct {
	LastProcessedSeq uint64 `json:"last_processed_seq"`
}

// SessionListJobsPayload asks for a page of the principal's jobs (§5.5).
type SessionListJobsPayload struct {
	Filter *JobFilter `json:"filter,omitzero"`
	Limit  *uint32    `json:"limit,omitzero"` // default 100, at most 1000
	Cursor string     `json:"cursor,omitzero"`
}

// JobFilter selects jobs; its members are combined with and.
type JobFilter struct {
	Status        []string  `json:"status,omitempty"`
	Agent         string    `json:"agent,omitzero"`          // a name, or name@version
	CreatedAfter  time.Time `json:"created_after,omitzero"`  // exclusive
	CreatedBefore time.Time `json:"created_before,omitzero"` // exclusive
	SessionID     SessionID `json:"session_id,omitzero"`
	Principal     string    `json:"principal,omitzero"` // whose jobs; default the caller's
}

// SessionJobsPayload is one page of jobs, oldest first. NextCursor is null on
// the last page.
type SessionJobsPayload struct {
	RequestID  MessageID  `json:"request_id"`
	Jobs       []JobEntry `json:"jobs"`
	NextCursor *string    `json:"next_cursor"`
}

// JobEntry is a job in a list.
type JobEntry struct {
	JobID        JobID     `json:"job_id"`
	Agent        string    `json:"agent"`
	Status       string    `json:"status"`
	Lease        Raw       `json:"lease,omitzero"`
	ParentJobID  JobID     `json:"parent_job_id,omitzero"`
	CreatedAt    time.Time `json:"created_at"`
	TraceID      string    `json:"trace_id,omitzero"`
	LastEventSeq uint64    `json:"last_event_seq"`
}
