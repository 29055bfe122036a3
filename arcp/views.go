package arcp

import (
	"fmt"
	"slices"
	"time"
)

// Results of the runtime's own tools that clients read: the shapes of SPEC.md §7.3 to §7.6.
// Times are in UTC; a zero time is omitted unless its member is required. Members unknown to a
// version are ignored.

// Page is one page of a list. Items is never null. NextCursor is empty on the last
// page; it is opaque, and good only for the same list of the same caller, with the
// same filters.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitzero"`
}

// JobView is the result of jobs.get (§7.3).
type JobView struct {
	JobID        JobID     `json:"job_id"`
	Agent        string    `json:"agent"` // name@version
	Status       JobState  `json:"status"`
	Attempt      uint32    `json:"attempt"` // the latest, from 1
	CreatedAt    time.Time `json:"created_at"`
	EndedAt      time.Time `json:"ended_at,omitzero"`
	SessionID    SessionID `json:"session_id,omitzero"` // that submitted it
	TraceID      string    `json:"trace_id,omitzero"`
	LastEventSeq uint64    `json:"last_event_seq"`   // in the numbers of that session
	Outcome      Raw       `json:"outcome,omitzero"` // the payload of the terminal event, once it has ended
}

// States of a SessionView.
const (
	SessionConnected = "connected"
	SessionDetached  = "detached" // without a connection; it can be resumed
)

// SessionView is a row of sessions.list (§7.3).
type SessionView struct {
	SessionID    SessionID `json:"session_id"`
	Principal    string    `json:"principal"`
	State        string    `json:"state"` // SessionConnected or SessionDetached
	CreatedAt    time.Time `json:"created_at"`
	DetachedAt   time.Time `json:"detached_at,omitzero"`
	LastEventSeq uint64    `json:"last_event_seq"`
	AckedSeq     uint64    `json:"acked_seq,omitzero"`   // to here the client has acknowledged events; 0: none
	ClientKind   string    `json:"client_kind,omitzero"` // as its client says
	Transport    string    `json:"transport,omitzero"`   // of its connection, like Remote
	Remote       string    `json:"remote,omitzero"`      // the peer's address, as the listener sees it
}

// ToolPage is the result of tools.list (§7.5).
type ToolPage struct {
	Page[ToolEntry]
	Generation uint64 `json:"generation"` // of the base catalogue
}

// ToolEntry is a name of the catalogue, and the version that the bare name selects.
type ToolEntry struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`  // that the bare name stands for
	Versions    []string `json:"versions"` // all of them, the newest first
	Description string   `json:"description,omitzero"`
	SideEffect  string   `json:"side_effect"`
	Source      string   `json:"source"`
	Approval    Raw      `json:"approval_policy"`    // "none", "manual", {"manual":{…}} or {"auto":{"rule":…}}
	MinTrust    string   `json:"min_trust,omitzero"` // empty: any
}

// ToolView is the result of tools.describe: all of §7.1.
type ToolView struct {
	Name          string     `json:"name"`
	Version       string     `json:"version"`
	Versions      []string   `json:"versions"`
	Description   string     `json:"description,omitzero"`
	InputSchema   Raw        `json:"input_schema"` // {}: anything goes
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

// ToolLimits are the limits of a tool's calls; nil is none (§7.1).
type ToolLimits struct {
	TimeoutMS        *int64 `json:"timeout_ms"` // of an attempt
	MaxRequestBytes  *int64 `json:"max_request_bytes"`
	MaxResponseBytes *int64 `json:"max_response_bytes"`
	Concurrency      *int64 `json:"concurrency"` // jobs at once
	RatePerMin       *int64 `json:"rate_per_min"`
}

// QuestionKind is the kind of decision that people are asked for (§5.14, §7.4).
type QuestionKind string

// The kinds.
const (
	QuestionPermission QuestionKind = "permission" // a permission for a while: grant or deny
	QuestionInput      QuestionKind = "input"      // a value
	QuestionChoice     QuestionKind = "choice"     // one of the options
	QuestionGate       QuestionKind = "gate"       // approve or deny, by another session than the asking one
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

// QuestionStatuses lists them in the order of SPEC.md §7.4.
var QuestionStatuses = []QuestionStatus{QuestionPending, QuestionResolved, QuestionExpired, QuestionCancelled}

// QuestionView is a question to people, or an approval that no job waits for, as the tools
// approval.… return it (§7.4). A question of another principal's session has no SessionID. In
// a list details above 2 KiB are {"truncated_bytes":n}.
type QuestionView struct {
	ApprovalID  string          `json:"approval_id"`
	RequestID   MessageID       `json:"request_id,omitzero"` // of its message, while it is pending
	Kind        QuestionKind    `json:"kind"`
	Status      QuestionStatus  `json:"status"`
	Principal   string          `json:"principal"` // whose session or job asks
	SessionID   SessionID       `json:"session_id,omitzero"`
	JobID       JobID           `json:"job_id,omitzero"`   // that waits for the answer
	AgentID     string          `json:"agent_id,omitzero"` // that asks, as it says
	System      bool            `json:"system_level,omitzero"`
	Action      string          `json:"action"` // the operation to decide on; at most 16 KiB
	Details     Raw             `json:"details,omitzero"`
	Options     []string        `json:"options,omitempty"`        // the possible resolutions
	Schema      Raw             `json:"response_schema,omitzero"` // of the value of an input
	Permission  *PermissionTerm `json:"permission,omitzero"`
	Quorum      int             `json:"quorum,omitzero"` // principals that must approve; 0 and 1: one
	Votes       []Vote          `json:"votes,omitempty"`
	EscalateAt  time.Time       `json:"escalate_at,omitzero"` // from then on admins of other principals are asked
	CreatedAt   time.Time       `json:"created_at"`
	ExpiresAt   time.Time       `json:"expires_at"`
	Resolution  string          `json:"resolution,omitzero"` // the id of an option, or granted, answered or default
	Value       Raw             `json:"value,omitzero"`      // that an input was answered with
	Reason      string          `json:"reason,omitzero"`
	ResolvedBy  string          `json:"resolved_by,omitzero"`  // the principal, as the runtime knows it
	RespondedBy string          `json:"responded_by,omitzero"` // the responder, as stated in the answer
	ResolvedAt  time.Time       `json:"resolved_at,omitzero"`
}

// PermissionTerm is a permission that is asked for or granted.
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

// Vote is one answer to a gate that needs several.
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
	OutcomeTimedOut  Outcome = "TimedOut" // not answered in time, or a default was used
	OutcomeCancelled Outcome = "Cancelled"
)

// OutcomeView is the result of approval.wait and approval.gate.
type OutcomeView struct {
	Outcome  Outcome      `json:"outcome"`
	Approval QuestionView `json:"approval"` // pending if the wait has ended first
}

// CredentialView is an entry of jobs.credentials: a credential that a provisioner has issued
// to a job and not revoked (§7.3). It has no secret values.
type CredentialView struct {
	JobID         JobID     `json:"job_id"`
	Provisioner   string    `json:"provisioner"`
	Generation    int       `json:"generation"` // from 1, one more with each rotation
	Principal     string    `json:"principal"`
	Agent         string    `json:"agent"`
	State         string    `json:"state"` // intent, issued, live or revoking
	CreatedAt     time.Time `json:"created_at"`
	CredentialIDs []string  `json:"credential_ids,omitempty"` // an empty one is not known
	Failed        int       `json:"failed,omitzero"`          // attempts to revoke
	NextAt        time.Time `json:"next_at,omitzero"`
	Error         string    `json:"error,omitzero"` // of the last attempt
}

// ResourceLeaseState is where a lease on a resource is (§7.6).
type ResourceLeaseState string

// The states. A lease begins active. When due it is cleaning during the clean-up, which ends
// as released, or as cleanup_failed until it is due again. Its owner may release it at any
// time. Released is final.
const (
	LeaseActive        ResourceLeaseState = "active"
	LeaseCleaning      ResourceLeaseState = "cleaning"
	LeaseReleased      ResourceLeaseState = "released"
	LeaseCleanupFailed ResourceLeaseState = "cleanup_failed"
)

// ResourceLeaseStates lists the states in the order of SPEC.md §7.6.
var ResourceLeaseStates = []ResourceLeaseState{LeaseActive, LeaseCleaning, LeaseReleased, LeaseCleanupFailed}

// Known reports whether this version knows the state. Another one may have stored
// others.
func (s ResourceLeaseState) Known() bool { return slices.Contains(ResourceLeaseStates, s) }

// ResourceLeaseView is a lease on a thing outside of the runtime, as the tools registry.…
// return it (§7.6). Provider, Type and ExternalID name the thing.
type ResourceLeaseView struct {
	LeaseID     LeaseID            `json:"lease_id"`
	Principal   string             `json:"principal"`
	SessionID   SessionID          `json:"session_id,omitzero"` // whose registry shows it
	Provider    string             `json:"provider"`
	Type        string             `json:"resource_type"`
	ExternalID  string             `json:"external_id"`
	DisplayName string             `json:"display_name,omitzero"`
	Metadata    Raw                `json:"metadata"` // an object of at most 16 KiB
	CleanupTool string             `json:"cleanup_tool,omitzero"`
	State       ResourceLeaseState `json:"state"`
	Seconds     int64              `json:"lease_duration_seconds"` // since it was touched; at most 30 days
	CreatedAt   time.Time          `json:"created_at"`
	TouchedAt   time.Time          `json:"last_touched_at"`
	ExpiresAt   time.Time          `json:"lease_expires_at"` // of one whose clean-up has failed: when it is tried again

	CleanupStartedAt time.Time `json:"cleanup_started_at,omitzero"`
	CleanupAttempts  int       `json:"cleanup_attempts"`
	LastError        string    `json:"last_cleanup_error,omitzero"` // at most 1 KiB
	ReleasedAt       time.Time `json:"released_at,omitzero"`
}

// ReapReport is the result of registry.reap (§7.6): the number of claimed leases and their
// outcomes. A dry run claims none and counts those that are due.
type ReapReport struct {
	Claimed  int                 `json:"claimed"`
	Released int                 `json:"released"`
	Failed   int                 `json:"failed"`
	Skipped  int                 `json:"skipped"` // extended, or claimed by another call
	DryRun   bool                `json:"dry_run"`
	Due      []ResourceLeaseView `json:"due,omitempty"` // of a dry run
	More     bool                `json:"more,omitzero"` // of a dry run: there are others
}
