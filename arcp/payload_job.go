package arcp

import "time"

// ToolInvokePayload submits a job, or assigns one to a worker (§3.3).
type ToolInvokePayload struct {
	Tool      string `json:"tool"`               // an agent reference: name or name@version
	Arguments Raw    `json:"arguments,omitzero"` // arguments of the tool; an object
	SubmitOptions
	Dispatch
}

// Dispatch holds the members that the runtime adds when it assigns a job to a worker. The runtime
// ignores them from a client.
type Dispatch struct {
	Attempt    uint32                `json:"attempt,omitzero"`    // from 1
	Lease      Raw                   `json:"lease,omitzero"`      // lease of the job
	Deadline   time.Time             `json:"deadline,omitzero"`   // when the attempt ends at the latest, unless its worker loses the connection meanwhile
	Checkpoint *JobCheckpointPayload `json:"checkpoint,omitzero"` // checkpoint to continue from
}

// SubmitOptions are the optional members of a submit (§5.6).
type SubmitOptions struct {
	MaxRuntimeSec    *Number           `json:"max_runtime_sec,omitzero"`   // seconds, > 0; then TIMEOUT
	CostBudget       []string          `json:"cost_budget,omitempty"`      // amounts that the job may spend, such as USD:1.50
	LeaseRequest     Raw               `json:"lease_request,omitzero"`     // lease that the job asks for
	LeaseConstraints *LeaseConstraints `json:"lease_constraints,omitzero"` // bounds of the lease
	IdempotencyKey   string            `json:"idempotency_key,omitzero"`   // the member of the envelope takes precedence
	OnDisconnect     string            `json:"on_disconnect,omitzero"`     // continue (default) or cancel
	StrictCancel     bool              `json:"strict_cancel,omitzero"`     // only this session may cancel
	Direct           bool              `json:"direct,omitzero"`            // answer with tool.result or tool.error only
	Detach           bool              `json:"detach,omitzero"`            // a child continues after its parent has ended
	Retry            Raw               `json:"retry,omitzero"`             // retry policy of the job
}

// LeaseConstraints bounds a lease in time.
type LeaseConstraints struct {
	ExpiresAt time.Time `json:"expires_at,omitzero"` // end of the lease
}

// ToolResultPayload ends a direct job that succeeded.
type ToolResultPayload struct {
	Value     Raw             `json:"value,omitzero"`      // result
	ResultRef *ArtifactObject `json:"result_ref,omitzero"` // artifact with the result
	Summary   string          `json:"summary,omitzero"`    // of a result that the worker sent in parts; for people
}

// JobAcceptedPayload announces that the job is durable.
type JobAcceptedPayload struct {
	JobID            JobID             `json:"job_id"`                     // identifier of the job
	Agent            string            `json:"agent,omitzero"`             // the resolved name@version
	Lease            Raw               `json:"lease,omitzero"`             // lease of the job
	LeaseConstraints *LeaseConstraints `json:"lease_constraints,omitzero"` // bounds of the lease
	Budget           Raw               `json:"budget,omitzero"`            // amounts that the job may spend
	Credentials      []Credential      `json:"credentials,omitempty"`      // secrets issued to the job
	ParentJobID      JobID             `json:"parent_job_id,omitzero"`     // job that has called this one
	RestoredFrom     *RestoredFrom     `json:"restored_from,omitzero"`     // checkpoint that the job starts from
	AcceptedAt       time.Time         `json:"accepted_at,omitzero"`       // when the job was accepted
	TraceID          string            `json:"trace_id,omitzero"`          // trace of the job
}

// RestoredFrom is the checkpoint of a finished job that another job starts from.
type RestoredFrom struct {
	JobID        JobID  `json:"job_id"`        // job that saved the checkpoint
	CheckpointID string `json:"checkpoint_id"` // identifier of the checkpoint
}

// Credential is a credential issued to one job. Value is a secret.
type Credential struct {
	ID          string `json:"id"`                   // identifier of the credential
	Scheme      string `json:"scheme"`               // authentication scheme of the service
	Value       string `json:"value,omitzero"`       // secret
	Endpoint    string `json:"endpoint"`             // address of the service
	Profile     string `json:"profile,omitzero"`     // kind of service
	Constraints Raw    `json:"constraints,omitzero"` // object with the bounds of the credential
}

// String omits the value.
func (c Credential) String() string { return "credential " + c.ID + " [value redacted]" }

// GoString omits the value.
func (c Credential) GoString() string { return c.String() }

// JobStartedPayload announces the start of an attempt.
type JobStartedPayload struct {
	Description string `json:"description,omitzero"` // for people
}

// JobProgressPayload reports the progress of a job. percent repeats the ratio of current and total.
type JobProgressPayload struct {
	Current float64  `json:"current"`          // ≥ 0
	Total   *float64 `json:"total,omitzero"`   // work in all; missing: unknown
	Units   string   `json:"units,omitzero"`   // unit of current and total
	Percent *float64 `json:"percent,omitzero"` // 0 to 100
	Message string   `json:"message,omitzero"` // for people
}

// JobHeartbeatPayload reports that a job is alive. It is neither logged nor numbered.
type JobHeartbeatPayload struct {
	Sequence   uint64 `json:"sequence"`             // number of the heartbeat in its attempt
	DeadlineMS uint64 `json:"deadline_ms,omitzero"` // milliseconds until the next heartbeat at the latest
	State      string `json:"state"`                // state of the job
}

// JobCheckpointPayload is a position that a job can continue from.
type JobCheckpointPayload struct {
	CheckpointID string `json:"checkpoint_id"`  // identifier of the checkpoint
	Data         Raw    `json:"data,omitzero"`  // state that the tool saved
	Label        string `json:"label,omitzero"` // requested label
}

// JobResultChunkPayload is a part of a streamed result.
type JobResultChunkPayload struct {
	ResultID    string `json:"result_id"`             // identifier of the result
	ChunkSeq    uint64 `json:"chunk_seq"`             // number of the part, from 0
	Data        string `json:"data"`                  // content of the part
	Encoding    string `json:"encoding"`              // utf8 or base64
	More        bool   `json:"more"`                  // whether another part follows
	ContentType string `json:"content_type,omitzero"` // of the first part: media type of the result; missing: the parts are the JSON text of the result
}

// JobCompletedPayload ends a job that succeeded.
type JobCompletedPayload struct {
	Value       Raw             `json:"value,omitzero"`        // result
	ResultRef   *ArtifactObject `json:"result_ref,omitzero"`   // artifact with the result
	ResultID    string          `json:"result_id,omitzero"`    // result that was sent in parts
	ResultSize  *uint64         `json:"result_size,omitzero"`  // bytes of the result that was sent in parts
	ContentType string          `json:"content_type,omitzero"` // media type of these bytes; missing: they are the JSON text of the result
	Summary     string          `json:"summary,omitzero"`      // for people
}

// JobCancelledPayload ends a job that was cancelled.
type JobCancelledPayload struct {
	Reason string `json:"reason,omitzero"` // for people
	Code   Code   `json:"code,omitzero"`   // CANCELLED, or ABORTED if the attempt had to be stopped by force
}

// JobSchedulePayload submits a job at a later time or repeatedly.
type JobSchedulePayload struct {
	Job  ScheduledJob `json:"job"`  // command to run
	When When         `json:"when"` // times to run it at
}

// ScheduledJob is the command that a schedule runs.
type ScheduledJob struct {
	Type    Type `json:"type"`    // message type of the command
	Payload Raw  `json:"payload"` // payload of the command
}

// When is the time of a schedule. Exactly one member is set.
type When struct {
	At    time.Time `json:"at,omitzero"`    // one time
	Every string    `json:"every,omitzero"` // an RRULE
	After *Number   `json:"after,omitzero"` // seconds
}

// JobSubscribePayload follows a job from another session.
type JobSubscribePayload struct {
	JobID        JobID   `json:"job_id"`                  // job to follow
	FromEventSeq *uint64 `json:"from_event_seq,omitzero"` // exclusive, in the numbers of the submitting session
	History      bool    `json:"history,omitzero"`        // whether earlier events are sent first
}

// JobSubscribedPayload precedes the events of a followed job.
type JobSubscribedPayload struct {
	JobID            JobID             `json:"job_id"`                     // job that is followed
	CurrentStatus    string            `json:"current_status"`             // state of the job
	Agent            string            `json:"agent"`                      // resolved name@version
	ParentJobID      JobID             `json:"parent_job_id,omitzero"`     // job that has called this one
	TraceID          string            `json:"trace_id,omitzero"`          // trace of the job
	Lease            Raw               `json:"lease,omitzero"`             // lease of the job
	LeaseConstraints *LeaseConstraints `json:"lease_constraints,omitzero"` // bounds of the lease
	Budget           Raw               `json:"budget,omitzero"`            // amounts that the job may still spend
	Credentials      []Credential      `json:"credentials,omitempty"`      // while the job has not ended
	SubscribedFrom   uint64            `json:"subscribed_from"`            // number of the last event before those that follow
	Replayed         bool              `json:"replayed,omitzero"`          // whether events of the past follow
}

// JobUnsubscribePayload stops following a job.
type JobUnsubscribePayload struct {
	JobID JobID `json:"job_id"` // job to stop following
}

// WorkflowStartPayload submits a workflow.
type WorkflowStartPayload struct {
	Workflow  string `json:"workflow"`           // name of the workflow
	Arguments Raw    `json:"arguments,omitzero"` // arguments of the workflow
	SubmitOptions
}

// Invoke returns the tool.invoke that the message stands for (§5.6).
func (p *WorkflowStartPayload) Invoke() ToolInvokePayload {
	return ToolInvokePayload{Tool: p.Workflow, Arguments: p.Arguments, SubmitOptions: p.SubmitOptions}
}

// WorkflowCompletePayload ends a job of workflow.start that succeeded. Its members are those of
// job.completed.
type WorkflowCompletePayload = JobCompletedPayload

// AgentDelegatePayload delegates a task to another agent.
type AgentDelegatePayload struct {
	Target  string `json:"target"`           // agent that is to do the task
	Task    string `json:"task"`             // description of the task
	Context Raw    `json:"context,omitzero"` // information for the agent
	SubmitOptions
}

// Invoke returns the tool.invoke that the message stands for (§5.6). Its arguments have the task and
// the context.
func (p *AgentDelegatePayload) Invoke() ToolInvokePayload {
	arguments := AppendString([]byte(`{"task":`), p.Task)
	if len(p.Context) > 0 {
		arguments = append(append(arguments, `,"context":`...), p.Context...)
	}
	return ToolInvokePayload{Tool: p.Target, Arguments: append(arguments, '}'), SubmitOptions: p.SubmitOptions}
}

// DelegationContext has the members of the context of agent.delegate that the runtime reads.
type DelegationContext struct {
	// PermissionsInherited are the namespaces of the job's lease that the child gets, if there is no
	// lease_request.
	PermissionsInherited []string `json:"permissions_inherited,omitempty"`
}

// AgentHandoffPayload transfers a job or session to another owner.
type AgentHandoffPayload struct {
	Runtime   RuntimeInfo `json:"runtime"`             // runtime that continues the session
	SessionID SessionID   `json:"session_id,omitzero"` // session there
	Reason    string      `json:"reason,omitzero"`     // for people
}

// Handoff is the data of the event handoff (§5.20).
type Handoff struct {
	From   SessionID `json:"from_session_id"`
	To     SessionID `json:"to_session_id"` // session that owns the job now
	Reason string    `json:"reason,omitzero"`
}

// ScheduleResult is the result of a schedule whose rule has ended.
type ScheduleResult struct {
	Fired   int `json:"fired"`           // jobs that were accepted
	Skipped int `json:"skipped"`         // occurrences without a job: late, or while the previous job ran
	Failed  int `json:"failed,omitzero"` // occurrences whose job was refused
}

// ScheduleView is a schedule that has not ended, in the result of schedule.list.
type ScheduleView struct {
	JobID     JobID       `json:"job_id"`               // job of the schedule
	Tool      string      `json:"tool"`                 // tool or workflow of its jobs
	When      When        `json:"when"`                 // as it was scheduled
	CreatedAt time.Time   `json:"created_at"`           // when it was scheduled
	Next      []time.Time `json:"next"`                 // its next times; empty: its last job runs
	Fired     int         `json:"fired"`                // jobs that were accepted
	Skipped   int         `json:"skipped"`              // occurrences without a job: late, or while the previous job ran
	Failed    int         `json:"failed"`               // occurrences whose job was refused
	LastJobID JobID       `json:"last_job_id,omitzero"` // its latest job
}
