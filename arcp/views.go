package arcp

import (
	"fmt"
	"slices"
	"time"
)

// This file has the results of built-in tools (§7.3 to §7.6). Times are in UTC. A zero time is
// omitted unless its member is required. Unknown members are ignored.

// Page is one page of a list. Items is never null. NextCursor is empty on the last page. It is
// opaque and valid only for the same list, caller and filters.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitzero"`
}

// JobView is the result of jobs.get (§7.3).
type JobView struct {
	JobID        JobID     `json:"job_id"`
	Agent        string    `json:"agent"` // name@version
	Status       JobState  `json:"status"`
	Attempt      uint32    `json:"attempt"` // number of the latest attempt, from 1
	CreatedAt    time.Time `json:"created_at"`
	EndedAt      time.Time `json:"ended_at,omitzero"`
	SessionID    SessionID `json:"session_id,omitzero"` // session that submitted the job
	TraceID      string    `json:"trace_id,omitzero"`
	LastEventSeq uint64    `json:"last_event_seq"`   // in the numbers of the session SessionID
	Outcome      Raw       `json:"outcome,omitzero"` // payload of the final event; absent while the job runs
}

// States of a SessionView.
const (
	SessionConnected = "connected"
	SessionDetached  = "detached" // no connection; the session can be resumed
)

// SessionView is an entry of sessions.list (§7.3).
type SessionView struct {
	SessionID    SessionID `json:"session_id"`
	Principal    string    `json:"principal"`
	State        string    `json:"state"` // SessionConnected or SessionDetached
	CreatedAt    time.Time `json:"created_at"`
	DetachedAt   time.Time `json:"detached_at,omitzero"`
	LastEventSeq uint64    `json:"last_event_seq"`
	AckedSeq     uint64    `json:"acked_seq,omitzero"`   // last acknowledged event; 0: none
	ClientKind   string    `json:"client_kind,omitzero"` // kind in session.open
	Transport    string    `json:"transport,omitzero"`   // transport of the connection
	Remote       string    `json:"remote,omitzero"`      // address of the peer
}

// ToolPage is the result of tools.list (§7.5).
type ToolPage struct {
	Page[ToolEntry]
	Generation uint64 `json:"generation"` // generation of the base catalogue
}

// ToolEntry is a tool name in the catalogue, with the version that the bare name selects.
type ToolEntry struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`  // version that the bare name selects
	Versions    []string `json:"versions"` // all versions, the newest first
	Description string   `json:"description,omitzero"`
	SideEffect  string   `json:"side_effect"`
	Source      string   `json:"source"`
	Approval    Raw      `json:"approval_policy"`    // "none", "manual", {"manual":{…}} or {"auto":{"rule":…}}
	MinTrust    string   `json:"min_trust,omitzero"` // empty: any
}

// ToolView is the result of tools.describe: all properties of §7.1.
type ToolView struct {
	Name          string     `json:"name"`
	Version       string     `json:"version"`
	Versions      []string   `json:"versions"`
	Description   string     `json:"description,omitzero"`
	InputSchema   Raw        `json:"input_schema"` // {} accepts any arguments
	OutputSchema  Raw        `json:"output_schema,omitzero"`
	SideEffect    string     `json:"side_effect"`
	Limits        ToolLimits `json:"limits"`
	Approval      Raw        `json:"approval_policy"` // as in a ToolEntry
	MinTrust      string     `json:"min_trust,omitzero"`
	Recovery      string     `json:"recovery"`
	Retry         Raw        `json:"retry,omitzero"` // as in SubmitOptions; absent: one attempt
	Idempotent    bool       `json:"idempotent"`
	Interruptible bool       `json:"interruptible"`
	Source        string     `json:"source"`
}

// ToolLimits are the limits of the calls of a tool (§7.1). nil is no limit.
type ToolLimits struct {
	TimeoutMS        *int64 `json:"timeout_ms"` // limit for one attempt
	MaxRequestBytes  *int64 `json:"max_request_bytes"`
	MaxResponseBytes *int64 `json:"max_response_bytes"`
	Concurrency      *int64 `json:"concurrency"` // jobs that run at the same time
	RatePerMin       *int64 `json:"rate_per_min"`
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
// approval tools (§7.4). A question of another principal's session has no SessionID. A list replaces
// details above 2 KiB by {"truncated_bytes":n}.
type QuestionView struct {
	ApprovalID  string          `json:"approval_id"`
	RequestID   MessageID       `json:"request_id,omitzero"` // id of the request message while pending
	Kind        QuestionKind    `json:"kind"`
	Status      QuestionStatus  `json:"status"`
	Principal   string          `json:"principal"` // owner of the asking session or job
	SessionID   SessionID       `json:"session_id,omitzero"`
	JobID       JobID           `json:"job_id,omitzero"`   // job that waits for the answer
	AgentID     string          `json:"agent_id,omitzero"` // asking agent, as stated in the request
	System      bool            `json:"system_level,omitzero"`
	Action      string          `json:"action"` // the operation to decide on; at most 16 KiB
	Details     Raw             `json:"details,omitzero"`
	Options     []string        `json:"options,omitempty"`        // the possible resolutions
	Schema      Raw             `json:"response_schema,omitzero"` // JSON Schema of the value of an input
	Permission  *PermissionTerm `json:"permission,omitzero"`
	Quorum      int             `json:"quorum,omitzero"` // number of principals that must approve; 0 means 1
	Votes       []Vote          `json:"votes,omitempty"`
	EscalateAt  time.Time       `json:"escalate_at,omitzero"` // time when admins of other principals are asked too
	CreatedAt   time.Time       `json:"created_at"`
	ExpiresAt   time.Time       `json:"expires_at"`
	Resolution  string          `json:"resolution,omitzero"` // id of an option, or granted, answered, default
	Value       Raw             `json:"value,omitzero"`      // answer to an input
	Reason      string          `json:"reason,omitzero"`
	ResolvedBy  string          `json:"resolved_by,omitzero"`  // authenticated principal of the responder
	RespondedBy string          `json:"responded_by,omitzero"` // name of the responder, as stated in the answer
	ResolvedAt  time.Time       `json:"resolved_at,omitzero"`
}

// PermissionTerm is a requested or granted permission.
type PermissionTerm struct {
	Permission string `json:"permission"`
	Resource   string `json:"resource"`
	Operation  string `json:"operation"`
	Seconds    uint64 `json:"seconds,omitzero"` // duration of the permission; 0: not stated
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
	Principal  string    `json:"principal"`
	Resolution string    `json:"resolution"`
	At         time.Time `json:"at"`
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
	Outcome  Outcome      `json:"outcome"`
	Approval QuestionView `json:"approval"` // pending if the wait ended first
}

// CredentialView is an entry of jobs.credentials: a credential that was issued to a job and not
// revoked (§7.3). It has no secret values.
type CredentialView struct {
	JobID         JobID     `json:"job_id"`
	Provisioner   string    `json:"provisioner"`
	Generation    int       `json:"generation"` // from 1; incremented by each rotation
	Principal     string    `json:"principal"`
	Agent         string    `json:"agent"`
	State         string    `json:"state"` // intent, issued, live or revoking
	CreatedAt     time.Time `json:"created_at"`
	CredentialIDs []string  `json:"credential_ids,omitempty"` // an empty id is unknown
	Failed        int       `json:"failed,omitzero"`          // failed attempts to revoke
	NextAt        time.Time `json:"next_at,omitzero"`
	Error         string    `json:"error,omitzero"` // error of the last attempt
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

// ResourceLeaseView is a lease on an external resource, in results of the registry tools (§7.6).
// Provider, Type and ExternalID identify the resource.
type ResourceLeaseView struct {
	LeaseID     LeaseID            `json:"lease_id"`
	Principal   string             `json:"principal"`
	SessionID   SessionID          `json:"session_id,omitzero"` // session whose registry lists the lease
	Provider    string             `json:"provider"`
	Type        string             `json:"resource_type"`
	ExternalID  string             `json:"external_id"`
	DisplayName string             `json:"display_name,omitzero"`
	Metadata    Raw                `json:"metadata"` // an object of at most 16 KiB
	CleanupTool string             `json:"cleanup_tool,omitzero"`
	State       ResourceLeaseState `json:"state"`
	Seconds     int64              `json:"lease_duration_seconds"` // seconds after TouchedAt; at most 30 days
	CreatedAt   time.Time          `json:"created_at"`
	TouchedAt   time.Time          `json:"last_touched_at"`
	ExpiresAt   time.Time          `json:"lease_expires_at"` // after a failed clean-up: time of the next try

	CleanupStartedAt time.Time `json:"cleanup_started_at,omitzero"`
	CleanupAttempts  int       `json:"cleanup_attempts"`
	LastError        string    `json:"last_cleanup_error,omitzero"` // at most 1 KiB
	ReleasedAt       time.Time `json:"released_at,omitzero"`
}

// ReapReport is the result of registry.reap (§7.6): the number of claimed leases and their
// outcomes. A dry run claims none; Claimed is then the number of due leases.
type ReapReport struct {
	Claimed  int                 `json:"claimed"`
	Released int                 `json:"released"`
	Failed   int                 `json:"failed"`
	Skipped  int                 `json:"skipped"` // extended, or claimed by another call
	DryRun   bool                `json:"dry_run"`
	Due      []ResourceLeaseView `json:"due,omitempty"` // only for a dry run
	More     bool                `json:"more,omitzero"` // only for a dry run: more leases are due
}
