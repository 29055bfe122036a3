package arcp

// PingPayload asks for a pong with the same nonce (§3.2).
type PingPayload struct {
	Nonce string `json:"nonce,omitzero"`
}

// PongPayload answers a ping.
type PongPayload struct {
	Nonce string `json:"nonce,omitzero"`
}

// AckPayload accepts a command that has no answer of its own.
type AckPayload struct {
	Note string `json:"note,omitzero"`
}

// Targets of cancel and interrupt.
const (
	TargetJob     = "job"
	TargetStream  = "stream"
	TargetSession = "session"
)

// CancelPayload asks a job, stream or session to end.
type CancelPayload struct {
	Target     string  `json:"target"`
	TargetID   string  `json:"target_id"`
	Reason     string  `json:"reason,omitzero"`
	DeadlineMS *uint64 `json:"deadline_ms,omitzero"` // default 5000, at most 60000; then the hard stop
}

// CancelAcceptedPayload says that the target will end.
type CancelAcceptedPayload struct {
	TargetID string `json:"target_id,omitzero"`
}

// CancelRefusedPayload says why the target will not be cancelled:
// already_terminal, not_found, not_cancellable or permission_denied.
type CancelRefusedPayload struct {
	TargetID string `json:"target_id"`
	Reason   string `json:"reason"`
	Code     Code   `json:"code,omitzero"`
	Message  string `json:"message,omitzero"`
	Details  Raw    `json:"details,omitzero"` // a JSON object, or nil; see Error
}

// InterruptPayload stops a job to ask a person for guidance.
type InterruptPayload struct {
	Target   string `json:"target"`
	TargetID string `json:"target_id"`
	Prompt   string `json:"prompt"`
}

// ResumePayload asks for a replay from a position.
type ResumePayload struct {
	AfterMessageID     MessageID `json:"after_message_id,omitzero"`
	CheckpointID       string    `json:"checkpoint_id,omitzero"`
	IncludeOpenStreams bool      `json:"include_open_streams,omitzero"`
}

// BackpressurePayload asks the sender of a stream or feed to slow down.
type BackpressurePayload struct {
	DesiredRatePerSecond *uint32 `json:"desired_rate_per_second,omitzero"`
	BufferRemainingBytes *uint64 `json:"buffer_remaining_bytes,omitzero"`
	Reason               string  `json:"reason,omitzero"`
}

// CheckpointCreatePayload asks a running job for a checkpoint.
type CheckpointCreatePayload struct {
	Label string `json:"label,omitzero"`
}

// CheckpointRestorePayload makes a job go on from a checkpoint.
type CheckpointRestorePayload struct {
	CheckpointID string `json:"checkpoint_id"`
}
