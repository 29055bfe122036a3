package arcp

// PingPayload asks for a pong with the same nonce (§3.2).
type PingPayload struct {
	Nonce string `json:"nonce,omitzero"` // returned in the pong
}

// PongPayload answers a ping.
type PongPayload struct {
	Nonce string `json:"nonce,omitzero"` // nonce of the ping
}

// AckPayload accepts a command without a specific answer.
type AckPayload struct {
	Note string `json:"note,omitzero"` // for people
}

// Targets of cancel and interrupt.
const (
	TargetJob     = "job"
	TargetStream  = "stream"
	TargetSession = "session"
)

// CancelPayload requests the end of a job, stream or session.
type CancelPayload struct {
	Target     string  `json:"target"`               // job or session
	TargetID   string  `json:"target_id"`            // identifier of the target
	Reason     string  `json:"reason,omitzero"`      // for people; shown in the event that ends the job
	DeadlineMS *uint64 `json:"deadline_ms,omitzero"` // default 5000, at most 60000; then the hard stop
}

// CancelAcceptedPayload accepts a cancel: the target will end.
type CancelAcceptedPayload struct {
	TargetID string `json:"target_id,omitzero"` // target_id of the cancel
}

// CancelRefusedPayload refuses a cancel, with the reason.
type CancelRefusedPayload struct {
	TargetID string `json:"target_id"`        // target_id of the cancel
	Reason   string `json:"reason"`           // already_terminal, not_found, permission_denied or unavailable
	Code     Code   `json:"code,omitzero"`    // error code that the reason stands for
	Message  string `json:"message,omitzero"` // for people
	Details  Raw    `json:"details,omitzero"` // a JSON object, or nil; see Error
}

// InterruptPayload pauses a job and asks a person for guidance.
type InterruptPayload struct {
	Target   string `json:"target"`    // job
	TargetID string `json:"target_id"` // identifier of the job
	Prompt   string `json:"prompt"`    // question that the job asks when it has stopped
}

// ResumePayload asks for a replay from a position.
type ResumePayload struct {
	AfterMessageID     MessageID `json:"after_message_id,omitzero"`     // last message that was processed
	CheckpointID       string    `json:"checkpoint_id,omitzero"`        // checkpoint to continue from
	IncludeOpenStreams bool      `json:"include_open_streams,omitzero"` // whether open streams are opened again
}

// BackpressurePayload asks the sender of a stream or subscription to slow down.
type BackpressurePayload struct {
	DesiredRatePerSecond *uint32 `json:"desired_rate_per_second,omitzero"` // messages a second that the sender may send; 0: none for now
	BufferRemainingBytes *uint64 `json:"buffer_remaining_bytes,omitzero"`  // room that is left at the receiver
	Reason               string  `json:"reason,omitzero"`                  // for people
}

// CheckpointCreatePayload asks a running job for a checkpoint.
type CheckpointCreatePayload struct {
	Label string `json:"label,omitzero"` // name for the checkpoint
}

// CheckpointRestorePayload makes a job continue from a checkpoint.
type CheckpointRestorePayload struct {
	CheckpointID string `json:"checkpoint_id"` // checkpoint to continue from
}
