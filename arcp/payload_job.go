package arcp

import "time"

// ToolInvokePayload submits a job, or gives one to a worker (§3.3).
type ToolInvokePayload struct {
	Tool      string `json:"tool"` // an agent reference: name or name@version
	Arguments Raw    `json:"arguments,omitzero"`
	SubmitOptions
	Dispatch
}

// Dispatch is what the runtime adds when it gives a job to a worker; from a
// client it means nothing.
type Dispatch struct {
	Attempt    uint32                `json:"attempt,omitzero"` // from 1
	Lease      Raw                   `json:"lease,omitzero"`
	Deadline   time.Time             `json:"deadline,omitzero"`
	Checkpoint *JobCheckpointPayload `json:"checkpoint,omitzero"` // to go on from
}

// SubmitOptions are the optional members of a submit (§5.6).
type SubmitOptions struct {
	MaxRuntimeSec    *Number           `json:"max_runtime_sec,omitzero"` // seconds, > 0; then TIMEOUT
	CostBudget       []string          `json:"cost_budget,omitempty"`
	LeaseRequest     Raw               `json:"lease_request,omitzero"`
	LeaseConstraints *LeaseConstraints `json:"lease_constraints,omitzero"`
	IdempotencyKey   string            `json:"idempotency_key,omitzero"` // the envelope's wins
	OnDisconnect     string            `json:"on_disconnect,omitzero"`   // continue (default) or cancel
	StrictCancel     bool              `json:"strict_cancel,omitzero"`   // only this session may cancel
	Direct           bool              `json:"direct,omitzero"`          // answer with tool.result or tool.error only
	Detach           bool              `json:"detach,omitzero"`
	Retry            Raw               `json:"retry,omitzero"`
}

// LeaseConstraints bounds a lease in time.
type LeaseConstraints struct {
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// ToolResultPayload ends a direct job that succeeded.
type ToolResultPayload struct {
	Value     Raw             `json:"value,omitzero"`
	ResultRef *ArtifactObject `json:"result_ref,omitzero"`
}

// JobAcceptedPayload says that a job exists durably.
type JobAcceptedPayload struct {
	JobID            JobID             `json:"job_id"`
	Agent            string            `json:"agent,omitzero"` // the resolved name@version
	Lease            Raw               `json:"lease,omitzero"`
	LeaseConstraints *LeaseConstraints `json:"lease_constraints,omitzero"`
	Budget           Raw               `json:"budget,omitzero"`
	Credentials      []Credential      `json:"credentials,omitempty"`
	ParentJobID      JobID             `json:"parent_job_id,omitzero"`
	RestoredFrom     *RestoredFrom     `json:"restored_from,omitzero"`
	AcceptedAt       time.Time         `json:"accepted_at,omitzero"`
	TraceID          string            `json:"trace_id,omitzero"`
}

// RestoredFrom is the checkpoint of a finished job that another job starts from.
type RestoredFrom struct {
	JobID        JobID  `json:"job_id"`
	CheckpointID string `json:"checkpoint_id"`
}

// Credential is issued to one job. Value is a secret.
type Credential struct {
	ID          string `json:"id"`
	Scheme      string `json:"scheme"`
	Value       string `json:"value,omitzero"`
	Endpoint    string `json:"endpoint"`
	Profile     string `json:"profile,omitzero"`
	Constraints Raw    `json:"constraints,omitzero"`
}

// String never shows the value.
func (c Credential) String() string { return "credential " + c.ID + " [value redacted]" }

// GoString never shows the value.
func (c Credential) GoString() string { return c.String() }

// JobStartedPayload says that an attempt began.
type JobStartedPayload struct {
	Description string `json:"description,omitzero"`
}

// JobProgressPayload says how far a job is. Percent repeats the ratio when
// Total is known.
type JobProgressPayload struct {
	Current float64  `json:"current"` // ≥ 0
	Total   *float64 `json:"total,omitzero"`
	Units   string   `json:"units,omitzero"`
	Percent *float64 `json:"percent,omitzero"`
	Message string   `json:"message,omitzero"`
}

// JobHeartbeatPayload says that a job is alive. It is neither logged nor
// numbered.
type JobHeartbeatPayload struct {
	Sequence   uint64 `json:"sequence"`
	DeadlineMS uint64 `json:"deadline_ms,omitzero"` // the next one comes before
	State      string `json:"state"`
}

// JobCheckpointPayload is a position a job can go on from.
type JobCheckpointPayload struct {
	CheckpointID string `json:"checkpoint_id"`
	Data         Raw    `json:"data,omitzero"`
	Label        string `json:"label,omitzero"`
}

// JobResultChunkPayload is a part of a streamed result.
type JobResultChunkPayload struct {
	ResultID string `json:"result_id"`
	ChunkSeq uint64 `json:"chunk_seq"`
	Data     string `json:"data"`
	Encoding string `json:"encoding"` // utf8 or base64
	More     bool   `json:"more"`
}

// JobCompletedPayload ends a job that succeeded.
type JobCompletedPayload struct {
	Value      Raw             `json:"value,omitzero"`
	ResultRef  *ArtifactObject `json:"result_ref,omitzero"`
	ResultID   string          `json:"result_id,omitzero"`
	ResultSize *uint64         `json:"result_size,omitzero"`
	Summary    string          `json:"summary,omitzero"`
}

// JobCancelledPayload ends a job that was cancelled; the code is ABORTED when
// it had to be stopped by force.
type JobCancelledPayload struct {
	Reason string `json:"reason,omitzero"`
	Code   Code   `json:"code,omitzero"`
}

// JobSchedulePayload submits a job for later or again and again.
type JobSchedulePayload struct {
	Job  ScheduledJob `json:"job"`
	When When         `json:"when"`
}

// ScheduledJob is the command a schedule fires.
type ScheduledJob struct {
	Type    Type `json:"type"`
	Payload Raw  `json:"payload"`
}

// When has exactly one member.
type When struct {
	At    time.Time `json:"at,omitzero"`
	Every string    `json:"every,omitzero"` // an RRULE
	After *Number   `json:"after,omitzero"` // seconds
}

// JobSubscribePayload follows a job from another session.
type JobSubscribePayload struct {
	JobID        JobID   `json:"job_id"`
	FromEventSeq *uint64 `json:"from_event_seq,omitzero"` // exclusive, in the numbers of the submitting session
	History      bool    `json:"history,omitzero"`
}

// JobSubscribedPayload precedes the events of a followed job.
type JobSubscribedPayload struct {
	JobID            JobID             `json:"job_id"`
	CurrentStatus    string            `json:"current_status"`
	Agent            string            `json:"agent"`
	ParentJobID      JobID             `json:"parent_job_id,omitzero"`
	TraceID          string            `json:"trace_id,omitzero"`
	Lease            Raw               `json:"lease,omitzero"`
	LeaseConstraints *LeaseConstraints `json:"lease_constraints,omitzero"`
	Budget           Raw               `json:"budget,omitzero"`
	Credentials      []Credential      `json:"credentials,omitempty"` // while the job has not ended
	SubscribedFrom   uint64            `json:"subscribed_from"`
	Replayed         bool              `json:"replayed,omitzero"`
}

// JobUnsubscribePayload stops following a job.
type JobUnsubscribePayload struct {
	JobID JobID `json:"job_id"`
}

// WorkflowStartPayload submits a workflow.
type WorkflowStartPayload struct {
	Workflow  string `json:"workflow"`
	Arguments Raw    `json:"arguments,omitzero"`
	SubmitOptions
}

// WorkflowCompletePayload ends a workflow that succeeded.
type WorkflowCompletePayload struct {
	Value Raw `json:"value,omitzero"`
}

// AgentDelegatePayload gives a task to another agent.
type AgentDelegatePayload struct {
	Target  string `json:"target"`
	Task    string `json:"task"`
	Context Raw    `json:"context,omitzero"`
	SubmitOptions
}

// AgentHandoffPayload gives a job or session to another owner.
type AgentHandoffPayload struct {
	Runtime   RuntimeInfo `json:"runtime"`
	SessionID SessionID   `json:"session_id,omitzero"`
	Reason    string      `json:"reason,omitzero"`
}
