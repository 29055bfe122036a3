package draft

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Time is a time that is written in UTC with milliseconds.
type Time struct{ time.Time }

// MarshalJSON writes the time.
func (t Time) MarshalJSON() ([]byte, error) { return appendTime(nil, t.Time), nil }

// appendTime appends t as RFC 3339 in UTC with milliseconds.
func appendTime(dst []byte, t time.Time) []byte {
	dst = arcp.AppendTime(dst, t)
	return append(dst[:len(dst)-len(`000Z"`)], `Z"`...)
}

// Correlation names the request of an answer: Go, TypeScript, Java, C# and Python read
// request_id, Ruby reads reply_to.
type Correlation struct {
	RequestID arcp.MessageID `json:"request_id,omitzero"` // identifier of the request
	ReplyTo   arcp.MessageID `json:"reply_to,omitzero"`   // identifier of the request
}

func correlation(id arcp.MessageID) Correlation { return Correlation{id, id} }

// HelloPayload opens or resumes a session (§6.2). It is a superset of what the libraries send.
type HelloPayload struct {
	Client        Client         `json:"client,omitzero"`         // description of the client
	ClientName    string         `json:"client_name,omitzero"`    // Ruby: client.name
	ClientVersion string         `json:"client_version,omitzero"` // Ruby: client.version
	Auth          HelloAuth      `json:"auth,omitzero"`           // credentials; missing: anonymous
	Capabilities  Offer          `json:"capabilities,omitzero"`   // capabilities of the client
	Resume        *ResumePayload `json:"resume,omitzero"`         // session to resume
	ResumeToken   string         `json:"resume_token,omitzero"`   // Java, C#: resume.resume_token
	LastEventSeq  uint64         `json:"last_event_seq,omitzero"` // Java, C#: resume.last_event_seq
}

// String never shows a token.
func (h HelloPayload) String() string { return "hello [tokens redacted]" }

// GoString never shows a token.
func (h HelloPayload) GoString() string { return h.String() }

// decodeFast decodes the usual forms without reflection. It returns false for any other form, and
// for a hello that resumes a session, which are then decoded in full.
func (h *HelloPayload) decodeFast(raw arcp.Raw) bool {
	return arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
		switch string(name) {
		case "client":
			return readTexts(value, h.Client.member)
		case "client_name":
			return readText(&h.ClientName, value)
		case "client_version":
			return readText(&h.ClientVersion, value)
		case "auth":
			return readTexts(value, h.Auth.member)
		case "capabilities":
			return arcp.EachMember(value, func(name []byte, value arcp.Raw) bool {
				switch string(name) {
				case "encodings":
					h.Capabilities.Encodings = value
				case "features":
					h.Capabilities.Features = value
				case "agents":
					h.Capabilities.Agents = value
				}
				return true
			})
		case "resume", "resume_token", "last_event_seq":
			return false
		}
		return true
	})
}

// readTexts sets the texts of an object. member returns where the value of a name belongs; nil: the
// value is ignored.
func readTexts(raw arcp.Raw, member func(name string) *string) bool {
	return arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
		to := member(string(name))
		return to == nil || readText(to, value)
	})
}

// readText sets a text without escapes. It returns false for any other value.
func readText(to *string, raw arcp.Raw) bool {
	if !isName(raw) {
		return false
	}
	*to = string(raw[1 : len(raw)-1])
	return true
}

// Client describes a client; nothing in it is trusted.
type Client struct {
	Name        string `json:"name,omitzero"`        // name of the program
	Kind        string `json:"kind,omitzero"`        // PHP: name of the program
	Version     string `json:"version,omitzero"`     // version of the program
	Fingerprint string `json:"fingerprint,omitzero"` // build of the program
	Principal   string `json:"principal,omitzero"`   // principal that the client claims
}

func (c *Client) member(name string) *string {
	switch name {
	case "name":
		return &c.Name
	case "kind":
		return &c.Kind
	case "version":
		return &c.Version
	case "fingerprint":
		return &c.Fingerprint
	case "principal":
		return &c.Principal
	}
	return nil
}

// HelloAuth is the scheme and credential of a hello. The token is a secret.
type HelloAuth struct {
	Scheme string `json:"scheme,omitzero"` // bearer, anonymous or none
	Type   string `json:"type,omitzero"`   // other name of scheme
	Token  string `json:"token,omitzero"`  // credential; a secret
}

func (a *HelloAuth) member(name string) *string {
	switch name {
	case "scheme":
		return &a.Scheme
	case "type":
		return &a.Type
	case "token":
		return &a.Token
	}
	return nil
}

// String never shows the token.
func (a HelloAuth) String() string { return "auth " + a.Scheme + " [token redacted]" }

// GoString never shows the token.
func (a HelloAuth) GoString() string { return a.String() }

// Offer is the capabilities object of a hello.
type Offer struct {
	Encodings arcp.Raw `json:"encodings,omitzero"` // ["json"]
	Features  arcp.Raw `json:"features,omitzero"`  // a list of names, or an object of booleans
	Agents    arcp.Raw `json:"agents,omitzero"`    // Python: []
}

// ResumePayload names a session and a position to continue from (§6.3). The token is a secret.
type ResumePayload struct {
	SessionID    arcp.SessionID `json:"session_id,omitzero"`     // session to resume; missing: the session of the token
	ResumeToken  string         `json:"resume_token,omitzero"`   // latest token; a secret
	Token        string         `json:"token,omitzero"`          // Ruby: resume_token
	LastEventSeq uint64         `json:"last_event_seq,omitzero"` // number of the last event that was processed
}

// String never shows the token.
func (r ResumePayload) String() string { return "resume " + string(r.SessionID) + " [token redacted]" }

// GoString never shows the token.
func (r ResumePayload) GoString() string { return r.String() }

// WelcomePayload opens or resumes the session (§6.2). The token is a secret.
type WelcomePayload struct {
	SessionID            arcp.SessionID `json:"session_id"`                      // identifier of the session
	Runtime              Runtime        `json:"runtime"`                         // description of the runtime
	RuntimeName          string         `json:"runtime_name"`                    // Ruby: runtime.name
	RuntimeVersion       string         `json:"runtime_version"`                 // Ruby: runtime.version
	AcceptedAt           Time           `json:"accepted_at"`                     // time of the welcome
	ResumeToken          string         `json:"resume_token"`                    // secret to resume the session with, once
	ResumeWindowSec      int64          `json:"resume_window_sec"`               // seconds; > 0
	HeartbeatIntervalSec int64          `json:"heartbeat_interval_sec,omitzero"` // seconds; only with the feature heartbeat
	Capabilities         Agreement      `json:"capabilities"`                    // negotiated capabilities
	Correlation
}

// String never shows the token.
func (w WelcomePayload) String() string {
	return "welcome to " + string(w.SessionID) + " [token redacted]"
}

// GoString never shows the token.
func (w WelcomePayload) GoString() string { return w.String() }

// Runtime identifies the runtime.
type Runtime struct {
	Name    string `json:"name"`    // name of the program
	Version string `json:"version"` // version of the program
}

// Agreement is the capabilities object of a welcome.
type Agreement struct {
	Encodings []string `json:"encodings"` // ["json"]
	Features  []string `json:"features"`  // features of both sides
	Agents    []Agent  `json:"agents"`    // inventory
}

// Agent is an agent of the inventory.
type Agent struct {
	Name     string   `json:"name"`             // name without a version
	Versions []string `json:"versions"`         // versions; may be empty
	Default  string   `json:"default,omitzero"` // version that the bare name selects
}

// ErrorPayload is the payload of session.error and job.error (§12).
type ErrorPayload struct {
	JobID       arcp.JobID `json:"job_id,omitzero"`       // job that failed
	FinalStatus string     `json:"final_status,omitzero"` // of a job.error: error, cancelled or timed_out
	Failure
	CompletedAt Time `json:"completed_at,omitzero"` // of a job.error
	Correlation
}

// Failure says why something failed.
type Failure struct {
	Code      Code     `json:"code"`             // one of Codes
	Message   string   `json:"message"`          // for people; not empty
	Retryable bool     `json:"retryable"`        // as in Codes
	Details   arcp.Raw `json:"details,omitzero"` // an object
}

// PingPayload asks the peer for a pong (§6.4).
type PingPayload struct {
	Nonce  string `json:"nonce"`   // returned in the pong
	SentAt Time   `json:"sent_at"` // time of the ping
}

// PongPayload answers a ping.
type PongPayload struct {
	PingNonce  string `json:"ping_nonce"`  // nonce of the ping
	ReceivedAt Time   `json:"received_at"` // time of the pong
}

// AckPayload says up to which event_seq everything was processed (§6.5).
type AckPayload struct {
	LastProcessedSeq uint64 `json:"last_processed_seq"` // number of the last event that was processed
}

// ListJobsPayload asks for a page of jobs (§6.6).
type ListJobsPayload struct {
	Filter *Filter `json:"filter,omitzero"` // jobs to list
	Limit  *int64  `json:"limit,omitzero"`  // default 100; ≤ 0: as many as possible
	Cursor string  `json:"cursor,omitzero"` // next_cursor of the page before
}

// Filter selects jobs; its members are combined with and.
type Filter struct {
	Status        arcp.Raw  `json:"status,omitzero"`         // a status word or a list of them
	Agent         string    `json:"agent,omitzero"`          // a name, or name@version
	CreatedAfter  time.Time `json:"created_after,omitzero"`  // exclusive
	CreatedBefore time.Time `json:"created_before,omitzero"` // exclusive
}

// JobsPayload is a page of jobs, oldest first.
type JobsPayload struct {
	Jobs       []JobEntry `json:"jobs"`        // jobs of this page
	NextCursor *string    `json:"next_cursor"` // cursor of the next page; null: there is none
	Correlation
}

// JobEntry is a job in a list.
type JobEntry struct {
	JobID        arcp.JobID `json:"job_id"`         // identifier of the job
	Agent        string     `json:"agent"`          // resolved name@version
	Status       string     `json:"status"`         // pending, running, success, error, cancelled or timed_out
	Lease        arcp.Raw   `json:"lease,omitzero"` // lease of the job; not for Ruby
	ParentJobID  arcp.JobID `json:"parent_job_id,omitzero"`
	CreatedAt    Time       `json:"created_at"`        // when the job was accepted
	SubmittedAt  Time       `json:"submitted_at"`      // Python: created_at
	TraceID      string     `json:"trace_id,omitzero"` // trace of the job
	LastEventSeq uint64     `json:"last_event_seq"`    // number of its last event in the submitting session
}

// ClosePayload ends the connection; jobs continue and the session can be resumed (§6.7).
type ClosePayload struct {
	Reason string `json:"reason,omitzero"` // for people
}

// ClosedPayload answers a close.
type ClosedPayload struct {
	Reason string `json:"reason,omitzero"` // for people
	Correlation
}

// SubmitPayload starts a job (§7.1).
type SubmitPayload struct {
	Agent            string                 `json:"agent"`                      // name or name@version
	Input            arcp.Raw               `json:"input,omitzero"`             // arguments of the agent
	LeaseRequest     arcp.Raw               `json:"lease_request,omitzero"`     // lease that the job asks for
	LeaseConstraints *arcp.LeaseConstraints `json:"lease_constraints,omitzero"` // bounds of the lease
	IdempotencyKey   string                 `json:"idempotency_key,omitzero"`   // the same key and request: the same job
	MaxRuntimeSec    *arcp.Number           `json:"max_runtime_sec,omitzero"`   // seconds, > 0; then TIMEOUT
}

// AcceptedPayload says that a job exists durably.
type AcceptedPayload struct {
	JobID            arcp.JobID        `json:"job_id"`                     // identifier of the job
	Agent            string            `json:"agent"`                      // resolved name@version
	Lease            arcp.Raw          `json:"lease,omitzero"`             // lease of the job; not for Ruby
	LeaseConstraints *LeaseConstraints `json:"lease_constraints,omitzero"` // bounds of the lease
	Budget           arcp.Raw          `json:"budget,omitzero"`            // amounts by currency; texts for Python, numbers for the others
	Credentials      []arcp.Credential `json:"credentials,omitempty"`      // secrets issued to the job
	ParentJobID      arcp.JobID        `json:"parent_job_id,omitzero"`     // job that has called this one
	AcceptedAt       Time              `json:"accepted_at"`                // when the job was accepted
	TraceID          string            `json:"trace_id,omitzero"`          // trace of the job
	Correlation
}

// AppendJSON appends the payload without reflection. A test compares the encoding with the
// reflected one.
func (p AcceptedPayload) AppendJSON(dst []byte) []byte {
	o := begin(dst)
	o.text("job_id", string(p.JobID))
	o.text("agent", p.Agent)
	o.raw("lease", p.Lease)
	o.constraints(p.LeaseConstraints)
	o.raw("budget", p.Budget)
	o.credentials(p.Credentials)
	o.optional("parent_job_id", string(p.ParentJobID))
	o.time("accepted_at", p.AcceptedAt.Time)
	o.optional("trace_id", p.TraceID)
	o.correlation(p.Correlation)
	return o.end()
}

func (o *object) constraints(c *LeaseConstraints) {
	if c != nil {
		o.name("lease_constraints")
		inner := begin(o.dst)
		inner.time("expires_at", c.ExpiresAt.Time)
		o.dst = inner.end()
	}
}

func (o *object) credentials(list []arcp.Credential) {
	if len(list) > 0 {
		encoded, _ := arcp.Marshal(list) // no error: texts
		o.raw("credentials", encoded)
	}
}

// LeaseConstraints bounds a lease in time.
type LeaseConstraints struct {
	ExpiresAt Time `json:"expires_at,omitzero"` // end of the lease
}

// EventPayload is an event of a job (§8.1).
type EventPayload struct {
	Kind Kind     `json:"kind"` // kind of the event
	TS   Time     `json:"ts"`   // time of the event
	Body arcp.Raw `json:"body"` // an object; see Kinds
}

// ResultPayload ends a job that succeeded (§8.4). Go reads output, the others read result.
type ResultPayload struct {
	JobID       arcp.JobID           `json:"job_id"`               // job that has ended
	FinalStatus string               `json:"final_status"`         // success
	Summary     string               `json:"summary,omitzero"`     // for people
	Result      arcp.Raw             `json:"result,omitzero"`      // value, unless result_id or result_ref is present
	Output      arcp.Raw             `json:"output,omitzero"`      // same as result
	ResultID    string               `json:"result_id,omitzero"`   // result that was sent in chunks
	ResultSize  *uint64              `json:"result_size,omitzero"` // decoded bytes of that result
	ResultRef   *arcp.ArtifactObject `json:"result_ref,omitzero"`  // artifact with the result; the draft has no such member
	CompletedAt Time                 `json:"completed_at"`         // when the job has ended
}

// CancelPayload asks a job to end (§7.4). The identifier is in the envelope, here or in both.
type CancelPayload struct {
	JobID  arcp.JobID `json:"job_id,omitzero"` // job to cancel
	Reason string     `json:"reason,omitzero"` // for people
}

// CancelledPayload says that the job will end.
type CancelledPayload struct {
	JobID  arcp.JobID `json:"job_id"`          // job of the cancel
	Reason string     `json:"reason,omitzero"` // reason of the cancel
	Correlation
}

// SubscribePayload follows a job (§7.6).
type SubscribePayload struct {
	JobID        arcp.JobID `json:"job_id,omitzero"`         // job to follow
	FromEventSeq *uint64    `json:"from_event_seq,omitzero"` // exclusive, in the numbers of the submitting session
	History      bool       `json:"history,omitzero"`        // whether earlier events are sent first
}

// SubscribedPayload precedes the events of a followed job.
type SubscribedPayload struct {
	JobID            arcp.JobID        `json:"job_id"`                     // job that is followed
	CurrentStatus    string            `json:"current_status"`             // as in JobEntry
	Agent            string            `json:"agent"`                      // resolved name@version
	Lease            arcp.Raw          `json:"lease,omitzero"`             // lease of the job; not for Ruby
	LeaseConstraints *LeaseConstraints `json:"lease_constraints,omitzero"` // bounds of the lease
	Budget           arcp.Raw          `json:"budget,omitzero"`            // amounts that the job may still spend
	Credentials      []arcp.Credential `json:"credentials,omitempty"`      // while the job has not ended
	ParentJobID      arcp.JobID        `json:"parent_job_id,omitzero"`     // job that has called this one
	TraceID          string            `json:"trace_id,omitzero"`          // trace of the job
	SubscribedFrom   uint64            `json:"subscribed_from"`            // event_seq of the last frame before the events that follow
	Replayed         bool              `json:"replayed"`                   // whether events of the past follow
	Correlation
}

// SubscribeEventPayload has a frame of a followed job, for the PHP library.
type SubscribeEventPayload struct {
	Event arcp.Raw `json:"event"` // a job.event, job.result or job.error
}

// UnsubscribePayload stops following a job.
type UnsubscribePayload struct {
	JobID arcp.JobID `json:"job_id,omitzero"` // job to stop following
}
