package arcp

import (
	"strings"
	"time"
)

// Version is the protocol version that the runtime uses unless the client states another (§1).
const Version = "1.1"

// SupportedVersion reports whether v is 1 or 1.MINOR.
func SupportedVersion(v string) bool {
	rest, ok := strings.CutPrefix(v, "1")
	if !ok || rest == "" {
		return ok
	}
	minor, ok := strings.CutPrefix(rest, ".")
	if !ok || minor == "" || len(minor) > 8 {
		return false
	}
	return strings.Trim(minor, "0123456789") == ""
}

// Priority is the priority of a waiting job (§5.6). It does not reorder the output of a session.
// The zero value is normal.
type Priority string

// The four priorities.
const (
	PriorityLow      Priority = "low"
	PriorityNormal   Priority = "normal"
	PriorityHigh     Priority = "high"
	PriorityCritical Priority = "critical"
)

// Valid reports whether p is one of the four priorities or the zero value.
func (p Priority) Valid() bool {
	switch p {
	case "", PriorityLow, PriorityNormal, PriorityHigh, PriorityCritical:
		return true
	}
	return false
}

// Rank returns the rank of p: 0 is normal, a larger rank is more urgent.
func (p Priority) Rank() int {
	switch p {
	case PriorityLow:
		return -1
	case PriorityHigh:
		return 1
	case PriorityCritical:
		return 2
	}
	return 0
}

// Envelope is one message (§2.1). Encoding omits optional members that are zero. Payload is always
// a JSON object and holds the bytes received.
type Envelope struct {
	ARCP           string         `json:"arcp"`
	ID             MessageID      `json:"id"`
	Type           Type           `json:"type"`
	Timestamp      time.Time      `json:"timestamp"`
	Source         string         `json:"source,omitzero"`
	Target         string         `json:"target,omitzero"`
	SessionID      SessionID      `json:"session_id,omitzero"`
	JobID          JobID          `json:"job_id,omitzero"`
	StreamID       StreamID       `json:"stream_id,omitzero"`
	SubscriptionID SubscriptionID `json:"subscription_id,omitzero"`
	TraceID        string         `json:"trace_id,omitzero"`
	SpanID         string         `json:"span_id,omitzero"`
	ParentSpanID   string         `json:"parent_span_id,omitzero"`
	CorrelationID  MessageID      `json:"correlation_id,omitzero"`
	CausationID    MessageID      `json:"causation_id,omitzero"`
	IdempotencyKey string         `json:"idempotency_key,omitzero"`
	Priority       Priority       `json:"priority,omitzero"`
	EventSeq       uint64         `json:"event_seq,omitzero"`
	Extensions     Raw            `json:"extensions,omitzero"`
	Payload        Raw            `json:"payload"`

	// Sidecar is the content of the binary frame that follows the message (§6.7). nil: there is none. Append
	// does not append it.
	Sidecar []byte `json:"-"`
}

// EncodingError is the reason why a frame is not a valid envelope. ID is the id of the envelope if
// it could be read, for correlating the refusal.
type EncodingError struct {
	Reason  string // one of the Reason constants; a metric label
	Message string // for the peer: the invalid member and the expected value
	ID      MessageID
}

// Reasons of an EncodingError.
const (
	ReasonNotJSON  = "not_json"  // not one JSON object in UTF-8, or duplicate names
	ReasonTooDeep  = "too_deep"  // nested deeper than MaxDepth
	ReasonEnvelope = "envelope"  // a member is missing or has the wrong type
	ReasonPayload  = "payload"   // the payload does not match its type
	ReasonVersion  = "version"   // another major version
	ReasonBadID    = "bad_id"    // an identifier is malformed
	ReasonPriority = "bad_value" // an enumerated member has another value
	ReasonSidecar  = "sidecar"   // a binary frame that was not announced, or another frame than the announced one
)

func (e *EncodingError) Error() string { return e.Message }

// OptionalExtension reports whether extensions.optional is true: the receiver may ignore the
// message (§6.4).
func (e *Envelope) OptionalExtension() bool {
	if len(e.Extensions) == 0 {
		return false
	}
	var x struct {
		Optional bool `json:"optional"`
	}
	return Unmarshal(e.Extensions, &x) == nil && x.Optional
}
