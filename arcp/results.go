package arcp

import (
	"fmt"
	"slices"
	"time"
)

// This file has the results of built-in tools (§7.3 to §7.6, §7.10). Times are in UTC. A zero time is
// omitted unless its member is required. Unknown members are ignored.

// Page is one page of a list. Items is never null. NextCursor is empty on the last page. It is
// opaque and valid only for the same list, caller and filters.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitzero"`
}

// JobView is the result of jobs.get and jobs.wait (§7.3).
type JobView struct {
	JobID        JobID     `json:"job_id"`              // identifier of the job
	Principal    string    `json:"principal"`           // principal that submitted the job
	Agent        string    `json:"agent"`               // resolved name@version
	Status       JobState  `json:"status"`              // state of the job (§5.6)
	Attempt      uint32    `json:"attempt"`             // number of the latest attempt, from 1
	CreatedAt    time.Time `json:"created_at"`          // when the job was accepted
	StartedAt    time.Time `json:"started_at,omitzero"` // when its first attempt started
	EndedAt      time.Time `json:"ended_at,omitzero"`   // when the job ended
	SessionID    SessionID `json:"session_id,omitzero"` // session that submitted the job
	TraceID      string    `json:"trace_id,omitzero"`   // trace of the job
	LastEventSeq uint64    `json:"last_event_seq"`      // number of its last event in the session that submitted it
	Outcome      Raw       `json:"outcome,omitzero"`    // payload of the terminal event, once the job has ended

	Waiting *JobWaiting `json:"waiting,omitzero"` // why the job waits; missing: it does not wait

	Arguments        Raw               `json:"arguments,omitzero"`         // arguments of the submit
	ArgumentsState   ArgumentsState    `json:"arguments_state,omitzero"`   // redacted or omitted; missing: as submitted
	ArgumentsMessage string            `json:"arguments_message,omitzero"` // for people: why they are redacted or omitted
	Lease            Raw               `json:"lease,omitzero"`             // lease of the job
	LeaseConstraints *LeaseConstraints `json:"lease_constraints,omitzero"` // bounds of the lease
	Budget           Raw               `json:"budget,omitzero"`            // amounts that a live job may still spend
	ParentJobID      JobID             `json:"parent_job_id,omitzero"`     // job that has called this one
	Children         []JobChild        `json:"children,omitempty"`         // the first 100 jobs that it has called and that are stored
	MoreChildren     bool              `json:"more_children,omitzero"`     // whether there are others
}

// ArgumentsState says why the arguments of a JobView are not the arguments of the submit (§7.3).
type ArgumentsState string

// The states.
const (
	ArgumentsRedacted ArgumentsState = "redacted" // secret values are replaced by [redacted]
	ArgumentsOmitted  ArgumentsState = "omitted"  // they are too long, those of a built-in tool, or of another principal
)

// JobChild is a job that a job has called (§7.3).
type JobChild struct {
	JobID  JobID    `json:"job_id"` // identifier of the job
	Agent  string   `json:"agent"`  // resolved name@version
	Status JobState `json:"status"` // state of the job (§5.6)
}

// JobWaiting says why a job waits (§5.6). It is also the data of the event waiting.
type JobWaiting struct {
	Reason  string    `json:"reason"`  // one of the reasons of §5.6
	Since   time.Time `json:"since"`   // when the wait for this reason began
	Message string    `json:"message"` // for people: one sentence

	ApprovalID string `json:"approval_id,omitzero"` // question that is pending, for the tools approval.*; missing: none
}

// The reasons for which a job waits.
const (
	WaitWorker     = "worker"      // no connected worker executes its tool
	WaitWorkerSlot = "worker_slot" // all connected workers of its tool are busy
	WaitReconnect  = "reconnect"   // its worker has lost the connection, and may resume its session
	WaitServer     = "server"      // the server of its tool has not answered since the start of the runtime
	WaitSlot       = "slot"        // as many jobs of its tool run as may run at once
	WaitApproval   = "approval"    // an approval is pending
	WaitPermission = "permission"  // a permission is requested
	WaitInput      = "input"       // a person is asked
	WaitRetry      = "retry"       // the next attempt is not due yet
	WaitSchedule   = "schedule"    // the next occurrence of the schedule is not due yet
	WaitHeartbeat  = "heartbeat"   // its tool has missed heartbeats
	WaitDisk       = "disk"        // there is no space for its events
	WaitDrain      = "drain"       // the runtime stops, and its next start continues the job
)

// WaitReasons lists the reasons in the order of SPEC.md §5.6.
var WaitReasons = []string{WaitWorker, WaitWorkerSlot, WaitReconnect, WaitServer, WaitSlot, WaitApproval,
	WaitPermission, WaitInput, WaitRetry, WaitSchedule, WaitHeartbeat, WaitDisk, WaitDrain}

// States of a SessionView.
const (
	SessionConnected = "connected"
	SessionDetached  = "detached" // no connection; the session can be resumed
)

// SessionView is an item of sessions.list (§7.3).
type SessionView struct {
	SessionID    SessionID `json:"session_id"`           // identifier of the session
	Principal    string    `json:"principal"`            // owner of the session
	State        string    `json:"state"`                // connected, or detached: without a connection
	CreatedAt    time.Time `json:"created_at"`           // when the session was opened
	DetachedAt   time.Time `json:"detached_at,omitzero"` // when its last connection ended
	LastEventSeq uint64    `json:"last_event_seq"`       // number of its last event
	AckedSeq     uint64    `json:"acked_seq,omitzero"`   // number of the last acknowledged event; missing: none
	ClientKind   string    `json:"client_kind,omitzero"` // client.kind of session.open
	Transport    string    `json:"transport,omitzero"`   // transport of its connection
	Remote       string    `json:"remote,omitzero"`      // address of the peer of its connection
}

// UploadProgress is the result of artifact.put while there are more chunks (§7.10). It is also the
// details of OUT_OF_RANGE for a chunk with another offset.
type UploadProgress struct {
	UploadID ArtifactID `json:"upload_id"` // identifier of the upload, and later of the artifact
	Offset   uint64     `json:"offset"`    // position of the next chunk in the content
}

// ArtifactChunk is the result of artifact.get: the description of an artifact with a part of its
// content (§7.10).
type ArtifactChunk struct {
	ArtifactObject
	Offset uint64 `json:"offset"` // position of the part in the content
	Data   []byte `json:"data"`   // the part, in base64
	More   bool   `json:"more"`   // whether content follows
}

// ArtifactReleased is the result of artifact.release (§7.10).
type ArtifactReleased struct {
	Released bool `json:"released"` // whether the principal had the artifact
}

// ToolPage is the result of tools.list (§7.5).
type ToolPage struct {
	Page[ToolEntry]
	Generation uint64 `json:"generation"` // generation of the base catalog
}

// ToolEntry is an item of tools.list: a name and the version that it selects (§7.5).
type ToolEntry struct {
	Name        string     `json:"name"`                 // name of the tool
	Version     string     `json:"version"`              // version that the bare name stands for
	Versions    []string   `json:"versions"`             // all versions, the newest first
	Description string     `json:"description,omitzero"` // for people and models
	SideEffect  string     `json:"side_effect"`          // side effect (§7.1)
	Source      string     `json:"source"`               // source (§7.9)
	Approval    Raw        `json:"approval_policy"`      // approval policy (§7.1)
	MinTrust    TrustLevel `json:"min_trust,omitzero"`   // lowest trust level; missing: any
	Workers     *uint32    `json:"workers,omitzero"`     // number of connected workers that execute it; missing: it is not a tool of workers
}

// ToolView is the result of tools.describe (§7.5).
type ToolView struct {
	Name          string     `json:"name"`                   // name of the tool
	Version       string     `json:"version"`                // version that is described
	Versions      []string   `json:"versions"`               // all versions, the newest first
	Description   string     `json:"description,omitzero"`   // for people and models
	InputSchema   Raw        `json:"input_schema"`           // JSON Schema of the arguments; {}: anything
	OutputSchema  Raw        `json:"output_schema,omitzero"` // JSON Schema of the result
	SideEffect    string     `json:"side_effect"`            // side effect (§7.1)
	Limits        ToolLimits `json:"limits"`                 // limits of its calls
	Approval      Raw        `json:"approval_policy"`        // approval policy (§7.1)
	MinTrust      TrustLevel `json:"min_trust,omitzero"`     // lowest trust level; missing: any
	Recovery      string     `json:"recovery"`               // fail, rerun or checkpoint
	Retry         Raw        `json:"retry,omitzero"`         // retry policy (§5.6); missing: one attempt
	Idempotent    bool       `json:"idempotent"`             // whether a call may be repeated
	Interruptible bool       `json:"interruptible"`          // whether its jobs can be interrupted
	ReadsStreams  bool       `json:"reads_streams,omitzero"` // whether its jobs read streams of clients
	Source        string     `json:"source"`                 // source (§7.9)
}

// ToolLimits are the limits of the calls of a tool; null is no limit (§7.1).
type ToolLimits struct {
	TimeoutMS        *int64 `json:"timeout_ms"`                // milliseconds of an attempt
	MaxRequestBytes  *int64 `json:"max_request_bytes"`         // bytes of the arguments
	MaxResponseBytes *int64 `json:"max_response_bytes"`        // bytes of the result
	Concurrency      *int64 `json:"concurrency"`               // jobs at once
	RatePerMin       *int64 `json:"rate_per_min"`              // calls a minute of all callers
	StartTimeoutMS   *int64 `json:"start_timeout_ms,omitzero"` // wait for a connected worker, set by the tool's worker; missing: the setting of the runtime (§5.6)
}

// QuestionKind is the kind of a question to people (§5.14, §7.4).
type QuestionKind string

// The kinds.
const (
	QuestionPermission QuestionKind = "permission" // a permission for a limited time: grant or deny
	QuestionInput      QuestionKind = "input"      // a value
	QuestionChoice     QuestionKind = "choice"     // one of the options
	QuestionGate       QuestionKind = "gate"       // approve or deny, by a session other than the asking one
	QuestionOwned      QuestionKind = "owned"      // one of the options, by the session that owns it
)

// QuestionStatus is the state of a question. All but pending are final.
type QuestionStatus string

// The statuses.
const (
	QuestionPending   QuestionStatus = "pending"
	QuestionResolved  QuestionStatus = "resolved"
	QuestionExpired   QuestionStatus = "expired"
	QuestionCancelled QuestionStatus = "cancelled"
)

// QuestionStatuses lists the statuses in the order of SPEC.md §7.4.
var QuestionStatuses = []QuestionStatus{QuestionPending, QuestionResolved, QuestionExpired, QuestionCancelled}

// QuestionView is a question to people, or an approval without a waiting job, in results of the
// tools approval.* (§7.4).
type QuestionView struct {
	ApprovalID  string          `json:"approval_id"`              // identifier for the tools approval.*
	RequestID   MessageID       `json:"request_id,omitzero"`      // id of the message that asks, while it is pending
	Kind        QuestionKind    `json:"kind"`                     // permission, input, choice, gate or owned
	Status      QuestionStatus  `json:"status"`                   // pending, resolved, expired or cancelled
	Principal   string          `json:"principal"`                // principal whose session or job asks
	SessionID   SessionID       `json:"session_id,omitzero"`      // session that asks; missing for another principal
	JobID       JobID           `json:"job_id,omitzero"`          // job that waits for the answer
	AgentID     string          `json:"agent_id,omitzero"`        // agent that asks, as the request states
	System      bool            `json:"system_level,omitzero"`    // whether another session has to resolve it
	Action      string          `json:"action"`                   // operation to decide on; at most 16 KiB
	Details     Raw             `json:"details,omitzero"`         // structured data, missing for another principal that may not answer; in a list details above 2 KiB are {"truncated_bytes":n}
	Options     []string        `json:"options,omitempty"`        // possible resolutions
	Schema      Raw             `json:"response_schema,omitzero"` // JSON Schema of the value of an input
	Permission  *PermissionTerm `json:"permission,omitzero"`      // permission that is asked for
	Quorum      int             `json:"quorum,omitzero"`          // principals that must approve; missing: one
	Votes       []Vote          `json:"votes,omitempty"`          // answers so far, if several are needed
	EscalateAt  time.Time       `json:"escalate_at,omitzero"`     // from then on admins of other principals are asked
	CreatedAt   time.Time       `json:"created_at"`               // when the question was asked
	ExpiresAt   time.Time       `json:"expires_at"`               // end of the time to answer
	Resolution  string          `json:"resolution,omitzero"`      // id of an option, or granted, answered or default
	Value       Raw             `json:"value,omitzero"`           // value that answered an input; missing for another principal
	Reason      string          `json:"reason,omitzero"`          // for people
	ResolvedBy  string          `json:"resolved_by,omitzero"`     // principal that resolved it
	RespondedBy string          `json:"responded_by,omitzero"`    // name of the person, as stated in the answer
	ResolvedAt  time.Time       `json:"resolved_at,omitzero"`     // when it was resolved
}

// PermissionTerm is a requested or granted permission.
type PermissionTerm struct {
	Permission string `json:"permission"`       // name of the permission
	Resource   string `json:"resource"`         // resource that the permission applies to
	Operation  string `json:"operation"`        // operation on the resource
	Seconds    uint64 `json:"seconds,omitzero"` // duration of the permission; missing: not stated
}

func (p *PermissionTerm) String() string {
	s := fmt.Sprintf("%s on %s to %s", p.Permission, p.Resource, p.Operation)
	if p.Seconds > 0 {
		s += " for " + (time.Duration(p.Seconds) * time.Second).String()
	}
	return s
}

// Vote is one answer to a gate with a quorum.
type Vote struct {
	Principal  string    `json:"principal"`  // principal that answered
	Resolution string    `json:"resolution"` // its answer
	At         time.Time `json:"at"`         // time of the answer
}

// Outcome is the result of waiting for a question (§7.4).
type Outcome string

// The outcomes.
const (
	OutcomeApproved  Outcome = "Approved" // approved, granted or answered
	OutcomeDenied    Outcome = "Denied"
	OutcomeTimedOut  Outcome = "TimedOut" // expired, or answered by the default
	OutcomeCancelled Outcome = "Cancelled"
)

// OutcomeView is the result of approval.wait and approval.gate.
type OutcomeView struct {
	Outcome  Outcome      `json:"outcome"`  // Approved, Denied, TimedOut or Cancelled
	Approval QuestionView `json:"approval"` // the question; pending if the wait has ended first
}

// CredentialView is an item of jobs.credentials: a credential that a provisioner has issued to a
// job and not revoked (§7.3). It has no secret values.
type CredentialView struct {
	JobID         JobID     `json:"job_id"`                   // job that has the credential
	Provisioner   string    `json:"provisioner"`              // provisioner that issued it
	Generation    int       `json:"generation"`               // from 1, one more with each rotation
	Principal     string    `json:"principal"`                // principal of the job
	Agent         string    `json:"agent"`                    // resolved name@version of the job
	State         string    `json:"state"`                    // intent, issued, live or revoking
	CreatedAt     time.Time `json:"created_at"`               // when the runtime asked for the credential
	CredentialIDs []string  `json:"credential_ids,omitempty"` // identifiers; an empty one is not known
	Failed        int       `json:"failed,omitzero"`          // failed attempts to revoke
	NextAt        time.Time `json:"next_at,omitzero"`         // time of the next attempt
	Error         string    `json:"error,omitzero"`           // error of the last attempt
}

// ResourceLeaseState is the state of a lease on a resource (§7.6).
type ResourceLeaseState string

// The states. A new lease is active. A due lease is cleaning during its clean-up, which ends as
// released, or as cleanup_failed until the next try. The owner may release a lease at any time.
// Released is final.
const (
	LeaseActive        ResourceLeaseState = "active"
	LeaseCleaning      ResourceLeaseState = "cleaning"
	LeaseReleased      ResourceLeaseState = "released"
	LeaseCleanupFailed ResourceLeaseState = "cleanup_failed"
)

// ResourceLeaseStates lists the states in the order of SPEC.md §7.6.
var ResourceLeaseStates = []ResourceLeaseState{LeaseActive, LeaseCleaning, LeaseReleased, LeaseCleanupFailed}

// Known reports whether this version knows the state. A newer version may have stored other states.
func (s ResourceLeaseState) Known() bool { return slices.Contains(ResourceLeaseStates, s) }

// ResourceLeaseView is a lease on a resource outside of the runtime (§7.6).
type ResourceLeaseView struct {
	LeaseID     LeaseID            `json:"lease_id"`               // identifier of the lease
	Principal   string             `json:"principal"`              // owner of the lease
	SessionID   SessionID          `json:"session_id,omitzero"`    // session whose registry shows it
	Provider    string             `json:"provider"`               // provider of the resource
	Type        string             `json:"resource_type"`          // type of the resource
	ExternalID  string             `json:"external_id"`            // identifier of the resource at its provider
	DisplayName string             `json:"display_name,omitzero"`  // for people
	Metadata    Raw                `json:"metadata"`               // an object of at most 16 KiB
	CleanupTool string             `json:"cleanup_tool,omitzero"`  // tool that cleans up if the runtime has no handler
	State       ResourceLeaseState `json:"state"`                  // active, cleaning, released or cleanup_failed
	Seconds     int64              `json:"lease_duration_seconds"` // seconds from the last touch to the end; at most 30 days
	CreatedAt   time.Time          `json:"created_at"`             // when the lease was first taken
	TouchedAt   time.Time          `json:"last_touched_at"`        // when the duration last began
	ExpiresAt   time.Time          `json:"lease_expires_at"`       // end of the lease; after a failed clean-up the time of the next

	CleanupStartedAt time.Time `json:"cleanup_started_at,omitzero"` // when the last clean-up began
	CleanupAttempts  int       `json:"cleanup_attempts"`            // clean-ups that were begun
	LastError        string    `json:"last_cleanup_error,omitzero"` // error of the last clean-up; at most 1 KiB
	ReleasedAt       time.Time `json:"released_at,omitzero"`        // when it was released
}

// ReapReport is the result of registry.reap: numbers of leases (§7.6).
type ReapReport struct {
	Claimed  int                 `json:"claimed"`       // expired leases that the call cleaned up
	Released int                 `json:"released"`      // claimed leases that were released
	Failed   int                 `json:"failed"`        // claimed leases whose clean-up failed
	Skipped  int                 `json:"skipped"`       // leases that are in use, or claimed by another call
	DryRun   bool                `json:"dry_run"`       // whether nothing was cleaned up
	Due      []ResourceLeaseView `json:"due,omitempty"` // of a dry run: leases that are due
	More     bool                `json:"more,omitzero"` // of a dry run: whether there are others
}
