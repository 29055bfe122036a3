package arcp

import "time"

// Kinds of streams. A chunk of a text or thought stream is a text, of a binary stream base64, and of the
// others a JSON object.
const (
	StreamText    = "text"
	StreamBinary  = "binary"
	StreamEvents  = "event"
	StreamLog     = "log"
	StreamMetric  = "metric"
	StreamThought = "thought"
)

// StreamKinds are the kinds of streams.
var StreamKinds = []string{StreamText, StreamBinary, StreamEvents, StreamLog, StreamMetric, StreamThought}

// StreamOpenPayload declares a stream (§3.4).
type StreamOpenPayload struct {
	Kind        string `json:"kind"`                  // text, binary, event, log, metric or thought
	Name        string `json:"name,omitzero"`         // name that the tool gives the stream
	ContentType string `json:"content_type,omitzero"` // media type of the chunks
	Encoding    string `json:"encoding,omitzero"`     // how data is encoded: utf8 or base64
}

// StreamChunkPayload is one chunk of a stream. For thoughts data and content have the same text.
type StreamChunkPayload struct {
	Sequence    uint64 `json:"sequence"`              // number of the chunk in its stream
	Data        Raw    `json:"data,omitzero"`         // content of the chunk
	ContentType string `json:"content_type,omitzero"` // media type of the chunk; missing: the one of stream.open
	SHA256      string `json:"sha256,omitzero"`       // digest of the decoded data, in hexadecimal
	Redacted    bool   `json:"redacted,omitzero"`     // whether the content was left out
	Role        string `json:"role,omitzero"`         // author of a thought
	Content     string `json:"content,omitzero"`      // text of a thought
	Encoding    string `json:"encoding,omitzero"`     // utf8, base64 or, without data, sidecar
	Size        uint64 `json:"size,omitzero"`         // bytes of the decoded data
	Kind        string `json:"kind,omitzero"`         // of the stream: thought, log or metric; missing for other kinds

	Sidecar []byte `json:"-"` // content, with the encoding sidecar
}

// StreamClosePayload ends a stream.
type StreamClosePayload struct {
	FinalSequence *uint64 `json:"final_sequence,omitzero"` // sequence of the last chunk
}

// HumanInputRequestPayload asks a person for a value (§3.5).
type HumanInputRequestPayload struct {
	Prompt         string    `json:"prompt"`                   // question, for people
	ResponseSchema Raw       `json:"response_schema,omitzero"` // JSON Schema of the value
	Default        Raw       `json:"default,omitzero"`         // value of the answer when the question expires
	ExpiresAt      time.Time `json:"expires_at"`               // end of the time to answer
	ApprovalID     string    `json:"approval_id,omitzero"`     // for approval.answer
}

// HumanInputResponsePayload answers a human.input.request.
type HumanInputResponsePayload struct {
	Value       Raw       `json:"value,omitzero"`        // answer; it satisfies the schema
	RespondedBy string    `json:"responded_by,omitzero"` // name of the person
	RespondedAt time.Time `json:"responded_at,omitzero"` // time of the answer
}

// HumanChoiceRequestPayload asks a person to choose.
type HumanChoiceRequestPayload struct {
	Prompt     string    `json:"prompt"`               // question, for people
	Options    []Option  `json:"options"`              // choices; at least one
	ExpiresAt  time.Time `json:"expires_at"`           // end of the time to answer
	Details    Raw       `json:"details,omitzero"`     // structured data about the message
	ApprovalID string    `json:"approval_id,omitzero"` // for approval.answer and approval.resolve
}

// Option is one choice.
type Option struct {
	ID    string `json:"id"`    // identifier of the option, unique in its question
	Label string `json:"label"` // text, for people
}

// HumanChoiceResponsePayload answers a human.choice.request.
type HumanChoiceResponsePayload struct {
	ChoiceID    string    `json:"choice_id"`             // identifier of an option
	RespondedBy string    `json:"responded_by,omitzero"` // name of the person
	RespondedAt time.Time `json:"responded_at,omitzero"` // time of the answer
}

// HumanInputCancelledPayload withdraws a question.
type HumanInputCancelledPayload struct {
	Code    Code   `json:"code"`             // DEADLINE_EXCEEDED: it expired; CANCELLED: it was withdrawn or answered elsewhere
	Reason  string `json:"reason,omitzero"`  // for people
	Message string `json:"message,omitzero"` // for people
}

// PermissionRequestPayload asks for a permission (§3.6).
type PermissionRequestPayload struct {
	Permission            string  `json:"permission"`                       // name of the permission
	Resource              string  `json:"resource"`                         // resource that the permission applies to
	Operation             string  `json:"operation"`                        // operation on the resource
	Reason                string  `json:"reason,omitzero"`                  // for people
	RequestedLeaseSeconds *uint64 `json:"requested_lease_seconds,omitzero"` // requested duration in seconds
	ApprovalID            string  `json:"approval_id,omitzero"`             // for approval.answer
}

// PermissionGrantPayload grants the requested permission, or a part of it.
type PermissionGrantPayload struct {
	Permission   string `json:"permission"`    // permission of the request
	Resource     string `json:"resource"`      // resource of the request, or a narrower one
	Operation    string `json:"operation"`     // operation of the request
	LeaseSeconds uint64 `json:"lease_seconds"` // duration in seconds
}

// PermissionDenyPayload refuses a permission.
type PermissionDenyPayload struct {
	Permission string `json:"permission"` // permission of the request
	Reason     string `json:"reason"`     // for people
}

// LeaseGrantedPayload announces a permission lease.
type LeaseGrantedPayload struct {
	LeaseID    LeaseID   `json:"lease_id"`   // identifier of the lease
	Permission string    `json:"permission"` // name of the permission
	Resource   string    `json:"resource"`   // resource that the permission applies to
	Operation  string    `json:"operation"`  // operation on the resource
	ExpiresAt  time.Time `json:"expires_at"` // end of the lease
}

// LeaseRefreshPayload requests more time for a lease.
type LeaseRefreshPayload struct {
	LeaseID           LeaseID `json:"lease_id"`           // lease to extend
	AdditionalSeconds uint64  `json:"additional_seconds"` // seconds to add
}

// LeaseExtendedPayload announces the new end of a lease.
type LeaseExtendedPayload struct {
	LeaseID   LeaseID   `json:"lease_id"`   // lease that was extended
	ExpiresAt time.Time `json:"expires_at"` // new end of the lease
}

// LeaseRevokedPayload announces that a lease has ended.
type LeaseRevokedPayload struct {
	LeaseID LeaseID `json:"lease_id"` // lease that has ended
	Reason  string  `json:"reason"`   // for people
}

// SubscribePayload follows the principal's events (§3.7).
type SubscribePayload struct {
	Filter *EventFilter `json:"filter,omitzero"` // events to send; all that the principal may see if it is missing
	Since  *Since       `json:"since,omitzero"`  // where to begin in the past; now if it is missing
}

// EventFilter selects events that match every member. A list matches any of its values; an empty
// list matches every event.
type EventFilter struct {
	SessionID   []SessionID `json:"session_id,omitempty"`  // events of these sessions
	TraceID     []string    `json:"trace_id,omitempty"`    // events of these traces
	JobID       []JobID     `json:"job_id,omitempty"`      // events of these jobs
	StreamID    []StreamID  `json:"stream_id,omitempty"`   // events of these streams
	Types       []Type      `json:"types,omitempty"`       // events of these types
	MinPriority Priority    `json:"min_priority,omitzero"` // events of this priority or a higher one
}

// Since is a position to start from.
type Since struct {
	AfterMessageID MessageID `json:"after_message_id,omitzero"` // event after which to begin
}

// SubscribeAcceptedPayload names the subscription.
type SubscribeAcceptedPayload struct {
	SubscriptionID SubscriptionID `json:"subscription_id"` // identifier of the subscription
}

// SubscribeEventPayload forwards one envelope unchanged.
type SubscribeEventPayload struct {
	Event Raw `json:"event"` // envelope of the event
}

// UnsubscribePayload ends a subscription.
type UnsubscribePayload struct {
	SubscriptionID SubscriptionID `json:"subscription_id"` // subscription to end
}

// SubscribeClosedPayload announces that the runtime ended a subscription.
type SubscribeClosedPayload struct {
	SubscriptionID SubscriptionID `json:"subscription_id"` // subscription that has ended
	Code           Code           `json:"code"`            // why it has ended
	Reason         string         `json:"reason"`          // for people
}

// ArtifactObject refers to an artifact (§3.8). Size counts decoded bytes.
type ArtifactObject struct {
	ArtifactID ArtifactID `json:"artifact_id"`         // identifier of the artifact
	URI        string     `json:"uri"`                 // address of the content
	MediaType  string     `json:"media_type"`          // media type of the content
	Size       uint64     `json:"size"`                // bytes
	SHA256     string     `json:"sha256,omitzero"`     // digest of the content, in hexadecimal
	ExpiresAt  time.Time  `json:"expires_at,omitzero"` // when the artifact is removed
}

// ArtifactPutPayload contains the content of an artifact in base64.
type ArtifactPutPayload struct {
	MediaType     string  `json:"media_type"`              // media type of the content
	Data          string  `json:"data"`                    // content in base64
	SHA256        string  `json:"sha256,omitzero"`         // digest of the content, in hexadecimal
	RetainSeconds *uint64 `json:"retain_seconds,omitzero"` // seconds to keep the artifact
	Size          uint64  `json:"size,omitzero"`           // with a part of the content: bytes of the whole artifact
	Encoding      string  `json:"encoding,omitzero"`       // sidecar, with empty data; missing: base64
	Length        uint64  `json:"length,omitzero"`         // with sidecar: bytes in the binary frame

	Sidecar []byte `json:"-"` // content, with the encoding sidecar
}

// ArtifactRefPayload refers to an artifact. The members of Artifact are repeated at the top level.
type ArtifactRefPayload struct {
	Artifact ArtifactObject `json:"artifact"` // description of the artifact
	ArtifactObject
	RedirectURI string `json:"redirect_uri,omitzero"` // address to fetch the content from
}

// ArtifactFetchPayload requests the content of an artifact.
type ArtifactFetchPayload struct {
	ArtifactID ArtifactID `json:"artifact_id"`     // artifact to send
	Offset     uint64     `json:"offset,omitzero"` // position of the part to send
	Length     uint64     `json:"length,omitzero"` // bytes of the part to send
}

// ArtifactReleasePayload allows the runtime to delete an artifact.
type ArtifactReleasePayload struct {
	ArtifactID ArtifactID `json:"artifact_id"` // artifact to remove
}

// EventEmitPayload is a named event (§3.9).
type EventEmitPayload struct {
	Name string `json:"name"`          // name of the event
	Data Raw    `json:"data,omitzero"` // content of the event
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

// LogPayload is one log record of a job.
type LogPayload struct {
	Level      string `json:"level"`               // trace, debug, info, warn, error or critical
	Message    string `json:"message"`             // text
	Attributes Raw    `json:"attributes,omitzero"` // object with further values
}

// MetricPayload is one measurement. unit is always present. The member dimensions of the draft is
// decoded as dims.
type MetricPayload struct {
	Name  string `json:"name"`          // name of the measurement
	Value Number `json:"value"`         // value of the measurement
	Unit  string `json:"unit"`          // unit of the value
	Dims  Raw    `json:"dims,omitzero"` // object with the dimensions
}

// UnmarshalJSON decodes both spellings of dims.
func (p *MetricPayload) UnmarshalJSON(data []byte) error {
	type metric MetricPayload // the members without this method
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
	Name         string    `json:"name"`                    // name of the operation
	TraceID      string    `json:"trace_id"`                // trace of the span
	SpanID       string    `json:"span_id"`                 // identifier of the span
	ParentSpanID string    `json:"parent_span_id,omitzero"` // span that caused it
	StartTime    time.Time `json:"start_time"`              // begin of the operation
	EndTime      time.Time `json:"end_time"`                // end of the operation
	Attributes   Raw       `json:"attributes,omitzero"`     // object with further values
}
