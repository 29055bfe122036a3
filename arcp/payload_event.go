package arcp

import "time"

// StreamOpenPayload declares a stream (§3.4). Kind is text, binary, event, log,
// metric or thought.
type StreamOpenPayload struct {
	Kind        string `json:"kind"`
	ContentType string `json:"content_type,omitzero"`
	Encoding    string `json:"encoding,omitzero"`
}

// StreamChunkPayload is one piece of a stream. Data and Content repeat each
// other for thoughts.
type StreamChunkPayload struct {
	Sequence    uint64 `json:"sequence"`
	Data        Raw    `json:"data,omitzero"`
	ContentType string `json:"content_type,omitzero"`
	SHA256      string `json:"sha256,omitzero"`
	Redacted    bool   `json:"redacted,omitzero"`
	Role        string `json:"role,omitzero"`
	Content     string `json:"content,omitzero"`
	Encoding    string `json:"encoding,omitzero"`
	Size        uint64 `json:"size,omitzero"`
}

// StreamClosePayload ends a stream in order.
type StreamClosePayload struct {
	FinalSequence *uint64 `json:"final_sequence,omitzero"`
}

// HumanInputRequestPayload asks a person for a value (§3.5).
type HumanInputRequestPayload struct {
	Prompt         string    `json:"prompt"`
	ResponseSchema Raw       `json:"response_schema,omitzero"`
	Default        Raw       `json:"default,omitzero"`
	ExpiresAt      time.Time `json:"expires_at"`
	ApprovalID     string    `json:"approval_id,omitzero"` // for approval.answer
}

// HumanInputResponsePayload is a person's value.
type HumanInputResponsePayload struct {
	Value       Raw       `json:"value,omitzero"`
	RespondedBy string    `json:"responded_by,omitzero"`
	RespondedAt time.Time `json:"responded_at,omitzero"`
}

// HumanChoiceRequestPayload asks a person to choose.
type HumanChoiceRequestPayload struct {
	Prompt     string    `json:"prompt"`
	Options    []Option  `json:"options"`
	ExpiresAt  time.Time `json:"expires_at"`
	Details    Raw       `json:"details,omitzero"`     // what it is about
	ApprovalID string    `json:"approval_id,omitzero"` // for approval.answer and approval.resolve
}

// Option is one choice.
type Option struct {
	ID    string `json:"id"`
	Label string `json:"label"`
}

// HumanChoiceResponsePayload is a person's choice.
type HumanChoiceResponsePayload struct {
	ChoiceID    string    `json:"choice_id"`
	RespondedBy string    `json:"responded_by,omitzero"`
	RespondedAt time.Time `json:"responded_at,omitzero"`
}

// HumanInputCancelledPayload withdraws a question.
type HumanInputCancelledPayload struct {
	Code    Code   `json:"code"`
	Reason  string `json:"reason,omitzero"`
	Message string `json:"message,omitzero"`
}

// PermissionRequestPayload asks for a permission (§3.6).
type PermissionRequestPayload struct {
	Permission            string  `json:"permission"`
	Resource              string  `json:"resource"`
	Operation             string  `json:"operation"`
	Reason                string  `json:"reason,omitzero"`
	RequestedLeaseSeconds *uint64 `json:"requested_lease_seconds,omitzero"`
	ApprovalID            string  `json:"approval_id,omitzero"` // for approval.answer
}

// PermissionGrantPayload grants what was asked or less.
type PermissionGrantPayload struct {
	Permission   string `json:"permission"`
	Resource     string `json:"resource"`
	Operation    string `json:"operation"`
	LeaseSeconds uint64 `json:"lease_seconds"`
}

// PermissionDenyPayload refuses a permission.
type PermissionDenyPayload struct {
	Permission string `json:"permission"`
	Reason     string `json:"reason"`
}

// LeaseGrantedPayload announces a permission lease.
type LeaseGrantedPayload struct {
	LeaseID    LeaseID   `json:"lease_id"`
	Permission string    `json:"permission"`
	Resource   string    `json:"resource"`
	Operation  string    `json:"operation"`
	ExpiresAt  time.Time `json:"expires_at"`
}

// LeaseRefreshPayload asks for more time.
type LeaseRefreshPayload struct {
	LeaseID           LeaseID `json:"lease_id"`
	AdditionalSeconds uint64  `json:"additional_seconds"`
}

// LeaseExtendedPayload says when the lease ends now.
type LeaseExtendedPayload struct {
	LeaseID   LeaseID   `json:"lease_id"`
	ExpiresAt time.Time `json:"expires_at"`
}

// LeaseRevokedPayload says that a lease has ended.
type LeaseRevokedPayload struct {
	LeaseID LeaseID `json:"lease_id"`
	Reason  string  `json:"reason"`
}

// SubscribePayload follows the principal's events (§3.7).
type SubscribePayload struct {
	Filter *EventFilter `json:"filter,omitzero"`
	Since  *Since       `json:"since,omitzero"`
}

// EventFilter selects events: and across members, or inside one. An empty
// array is as absent.
type EventFilter struct {
	SessionID   []SessionID `json:"session_id,omitempty"`
	TraceID     []string    `json:"trace_id,omitempty"`
	JobID       []JobID     `json:"job_id,omitempty"`
	StreamID    []StreamID  `json:"stream_id,omitempty"`
	Types       []Type      `json:"types,omitempty"`
	MinPriority Priority    `json:"min_priority,omitzero"`
}

// Since is a position to start from.
type Since struct {
	AfterMessageID MessageID `json:"after_message_id,omitzero"`
}

// SubscribeAcceptedPayload names the subscription.
type SubscribeAcceptedPayload struct {
	SubscriptionID SubscriptionID `json:"subscription_id"`
}

// SubscribeEventPayload carries one original envelope, whole.
type SubscribeEventPayload struct {
	Event Raw `json:"event"`
}

// UnsubscribePayload ends a subscription.
type UnsubscribePayload struct {
	SubscriptionID SubscriptionID `json:"subscription_id"`
}

// SubscribeClosedPayload says that the runtime ended a subscription.
type SubscribeClosedPayload struct {
	SubscriptionID SubscriptionID `json:"subscription_id"`
	Code           Code           `json:"code"`
	Reason         string         `json:"reason"`
}

// ArtifactObject refers to an artifact (§3.8). Size counts decoded bytes.
type ArtifactObject struct {
	ArtifactID ArtifactID `json:"artifact_id"`
	URI        string     `json:"uri"`
	MediaType  string     `json:"media_type"`
	Size       uint64     `json:"size"`
	SHA256     string     `json:"sha256,omitzero"`
	ExpiresAt  time.Time  `json:"expires_at,omitzero"`
}

// ArtifactPutPayload carries an artifact's bytes, in base64.
type ArtifactPutPayload struct {
	MediaType     string  `json:"media_type"`
	Data          string  `json:"data"`
	SHA256        string  `json:"sha256,omitzero"`
	RetainSeconds *uint64 `json:"retain_seconds,omitzero"`
}

// ArtifactRefPayload refers to an artifact, nested and flat.
type ArtifactRefPayload struct {
	Artifact ArtifactObject `json:"artifact"`
	ArtifactObject
	RedirectURI string `json:"redirect_uri,omitzero"`
}

// ArtifactFetchPayload asks for an artifact's bytes.
type ArtifactFetchPayload struct {
	ArtifactID ArtifactID `json:"artifact_id"`
}

// ArtifactReleasePayload gives an artifact up.
type ArtifactReleasePayload struct {
	ArtifactID ArtifactID `json:"artifact_id"`
}

// EventEmitPayload is a named event (§3.9).
type EventEmitPayload struct {
	Name string `json:"name"`
	Data Raw    `json:"data,omitzero"`
}

// Log levels.
const (
	LevelTrace    = "trace"
	LevelDebug    = "debug"
	LevelInfo     = "info"
	LevelWarn     = "warn"
	LevelError    = "error"
	LevelCritical = "critical"
)

// LogLevels are the levels, the least severe first.
var LogLevels = []string{LevelTrace, LevelDebug, LevelInfo, LevelWarn, LevelError, LevelCritical}

// LogPayload is one line of a job's log.
type LogPayload struct {
	Level      string `json:"level"`
	Message    string `json:"message"`
	Attributes Raw    `json:"attributes,omitzero"`
}

// MetricPayload is one measurement. Unit is always present. The draft's spelling
// dimensions is read as dims.
type MetricPayload struct {
	Name  string `json:"name"`
	Value Number `json:"value"`
	Unit  string `json:"unit"`
	Dims  Raw    `json:"dims,omitzero"`
}

// UnmarshalJSON reads both spellings of dims.
func (p *MetricPayload) UnmarshalJSON(data []byte) error {
	type metric MetricPayload // without this method
	var both struct {
		metric
		Dimensions Raw `json:"dimensions"`
	}
	if err := Unmarshal(data, &both); err != nil {
		return err
	}
	if *p = MetricPayload(both.metric); len(p.Dims) == 0 {
		p.Dims = both.Dimensions
	}
	return nil
}

// TraceSpanPayload is a finished span.
type TraceSpanPayload struct {
	Name         string    `json:"name"`
	TraceID      string    `json:"trace_id"`
	SpanID       string    `json:"span_id"`
	ParentSpanID string    `json:"parent_span_id,omitzero"`
	StartTime    time.Time `json:"start_time"`
	EndTime      time.Time `json:"end_time"`
	Attributes   Raw       `json:"attributes,omitzero"`
}
