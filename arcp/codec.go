package arcp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth bounds how deep objects and arrays may nest in a frame.
const MaxDepth = 64

// Raw is one JSON value kept as the bytes received. Its zero value is absent.
type Raw = jsontext.Value

// Number is a JSON number kept as its text, so that no digit is lost. The zero
// value encodes as 0.
type Number string

// MarshalJSONTo writes the number's text.
func (n Number) MarshalJSONTo(enc *jsontext.Encoder) error {
	if n == "" {
		n = "0"
	}
	return enc.WriteValue(jsontext.Value(n))
}

// UnmarshalJSONFrom reads a JSON number.
func (n *Number) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if v.Kind() != '0' {
		return fmt.Errorf("a number is required, not %s", kindName(v.Kind()))
	}
	*n = Number(v)
	return nil
}

// FloatNumber is the shortest decimal text of f, which must be finite.
func FloatNumber(f float64) Number { return Number(strconv.FormatFloat(f, 'f', -1, 64)) }

// Marshal encodes v. Members with omitzero are left out, no HTML escaping.
func Marshal(v any) (Raw, error) { return AppendJSON(nil, v) }

// AppendJSON appends the encoding of v to dst; on an error dst is unchanged.
func AppendJSON(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case jsonAppender:
		return v.AppendJSON(dst), nil
	case Raw:
		return append(dst, v...), nil
	}
	buf := bytes.NewBuffer(dst)
	if err := json.MarshalWrite(buf, v); err != nil {
		return dst, err
	}
	return buf.Bytes(), nil
}

// jsonAppender is a payload that encodes itself, without reflection: the types
// a tool may emit hundreds of thousands of a second.
type jsonAppender interface{ AppendJSON(dst []byte) []byte }

// AppendString appends s as a JSON string; invalid UTF-8 is replaced.
func AppendString(dst []byte, s string) []byte {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil { // only for invalid UTF-8
		out, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return out
}

// Unmarshal decodes strictly: exact case, no duplicate names, valid UTF-8;
// unknown members are ignored.
func Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// Canonical returns raw as compact JSON with sorted member names and exact
// numbers, for comparing and digesting requests.
func Canonical(raw Raw) (Raw, error) {
	v := raw.Clone()
	err := v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false),
		jsontext.CanonicalizeRawFloats(false), jsontext.Multiline(false),
		jsontext.SpaceAfterColon(false), jsontext.SpaceAfterComma(false))
	return v, err
}

// Decode reads one frame. It is strict about the envelope and leaves the
// payload alone. The error, if any, is an *EncodingError. The envelope does
// not alias frame.
func Decode(frame []byte) (Envelope, error) {
	var env Envelope
	if tooDeep(frame) {
		return env, &EncodingError{ReasonTooDeep, fmt.Sprintf("nested deeper than %d levels", MaxDepth), ""}
	}
	if err := json.Unmarshal(frame, &env); err != nil {
		return Envelope{}, decodeError(frame, err)
	}
	if err := env.check(); err != nil {
		return Envelope{}, err
	}
	return env, nil
}

// tooDeep scans without parsing; it may be wrong only about frames that are
// not JSON at all, which fail later anyway.
func tooDeep(frame []byte) bool {
	depth := 0
	for i := 0; i < len(frame); i++ {
		switch frame[i] {
		case '{', '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(frame) && frame[i] != '"'; i++ {
				if frame[i] == '\\' {
					i++
				}
			}
		}
	}
	return false
}

func decodeError(frame []byte, err error) *EncodingError {
	e := &EncodingError{Reason: ReasonNotJSON, Message: err.Error(), ID: peekID(frame)}
	var sem *json.SemanticError
	if errors.As(err, &sem) {
		e.Reason = ReasonEnvelope
		e.Message = fmt.Sprintf("envelope member %q: %s", strings.TrimPrefix(string(sem.JSONPointer), "/"), semanticCause(sem))
	}
	e.Message = strings.TrimPrefix(e.Message, "jsontext: ")
	return e
}

func semanticCause(sem *json.SemanticError) string {
	if sem.Err != nil {
		return sem.Err.Error()
	}
	return kindName(sem.JSONKind) + " is not allowed here"
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "this value"
}

// peekID finds the id of a frame that may be broken elsewhere.
func peekID(frame []byte) MessageID {
	dec := jsontext.NewDecoder(bytes.NewReader(frame), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return ""
	}
	for {
		name, err := dec.ReadToken()
		if err != nil || name.Kind() != '"' {
			return ""
		}
		if name.String() != "id" {
			if dec.SkipValue() != nil {
				return ""
			}
			continue
		}
		id, err := dec.ReadToken()
		if err != nil || id.Kind() != '"' || !ValidID(id.String()) {
			return ""
		}
		return MessageID(id.String())
	}
}

// check applies what the JSON types cannot say (§2.1).
func (e *Envelope) check() error {
	bad := func(reason, format string, args ...any) error {
		id := e.ID
		if !ValidID(string(id)) {
			id = ""
		}
		return &EncodingError{reason, fmt.Sprintf(format, args...), id}
	}
	switch {
	case e.ARCP == "":
		return bad(ReasonEnvelope, `envelope member "arcp" is required: the protocol version, for example %q`, Version)
	case !ValidID(string(e.ID)):
		return bad(ReasonBadID, `envelope member "id" must be 1 to %d visible ASCII characters`, MaxIDLen)
	case e.Type == "":
		return bad(ReasonEnvelope, `envelope member "type" is required`)
	case len(e.Type) > MaxIDLen:
		return bad(ReasonEnvelope, `envelope member "type" is longer than %d bytes`, MaxIDLen)
	case e.Timestamp.IsZero():
		return bad(ReasonEnvelope, `envelope member "timestamp" is required: RFC 3339, for example "2026-01-02T15:04:05Z"`)
	case e.Payload.Kind() != '{':
		return bad(ReasonEnvelope, `envelope member "payload" is required and must be an object, {} when it has no members`)
	case !e.Priority.Valid():
		return bad(ReasonPriority, `envelope member "priority" must be low, normal, high or critical`)
	}
	for _, id := range [...]struct{ name, value string }{
		{"session_id", string(e.SessionID)}, {"job_id", string(e.JobID)}, {"stream_id", string(e.StreamID)},
		{"subscription_id", string(e.SubscriptionID)}, {"correlation_id", string(e.CorrelationID)},
		{"causation_id", string(e.CausationID)}, {"idempotency_key", e.IdempotencyKey},
		{"trace_id", e.TraceID}, {"span_id", e.SpanID}, {"parent_span_id", e.ParentSpanID},
	} {
		if id.value != "" && !ValidID(id.value) {
			return bad(ReasonBadID, "envelope member %q must be 1 to %d visible ASCII characters", id.name, MaxIDLen)
		}
	}
	return nil
}

// DecodePayload decodes an envelope's payload as T. The error is an
// *EncodingError that names the member at fault.
func DecodePayload[T any](env *Envelope) (T, error) {
	var p T
	err := json.Unmarshal(env.Payload, &p)
	if err == nil {
		return p, nil
	}
	e := &EncodingError{Reason: ReasonPayload, Message: "payload: " + err.Error(), ID: env.ID}
	var sem *json.SemanticError
	if errors.As(err, &sem) {
		e.Message = fmt.Sprintf("payload member %q: %s", strings.TrimPrefix(string(sem.JSONPointer), "/"), semanticCause(sem))
	}
	return p, e
}

// Frame returns an envelope of a type with payload p encoded. p must be
// encodable: payload structs of this package always are.
func Frame(t Type, p any) Envelope {
	raw, err := Marshal(p)
	if err != nil {
		panic("arcp: payload of " + string(t) + ": " + err.Error())
	}
	return Envelope{Type: t, Payload: raw}
}

// Append appends the encoded envelope to dst. Zero members are left out; a zero
// payload is written as {}.
func (e *Envelope) Append(dst []byte) []byte {
	dst = e.appendHead(dst)
	dst = appendMember(dst, "source", e.Source)
	dst = appendMember(dst, "target", e.Target)
	dst = appendMember(dst, "session_id", string(e.SessionID))
	dst = appendMember(dst, "job_id", string(e.JobID))
	dst = appendMember(dst, "stream_id", string(e.StreamID))
	dst = appendMember(dst, "subscription_id", string(e.SubscriptionID))
	dst = appendMember(dst, "trace_id", e.TraceID)
	dst = appendMember(dst, "span_id", e.SpanID)
	dst = appendMember(dst, "parent_span_id", e.ParentSpanID)
	dst = appendMember(dst, "correlation_id", string(e.CorrelationID))
	dst = appendMember(dst, "causation_id", string(e.CausationID))
	dst = appendMember(dst, "idempotency_key", e.IdempotencyKey)
	if e.Priority != PriorityNormal {
		dst = appendMember(dst, "priority", string(e.Priority))
	}
	if e.EventSeq != 0 {
		dst = strconv.AppendUint(append(dst, `,"event_seq":`...), e.EventSeq, 10)
	}
	if len(e.Extensions) > 0 {
		dst = append(append(dst, `,"extensions":`...), e.Extensions...)
	}
	dst = append(dst, `,"payload":`...)
	if len(e.Payload) == 0 {
		return append(dst, `{}}`...)
	}
	return append(append(dst, e.Payload...), '}')
}

func (e *Envelope) appendHead(dst []byte) []byte {
	dst = AppendString(append(dst, `{"arcp":`...), e.ARCP)
	dst = AppendString(append(dst, `,"id":`...), string(e.ID))
	dst = AppendString(append(dst, `,"type":`...), string(e.Type))
	return AppendTime(append(dst, `,"timestamp":`...), e.Timestamp)
}

func appendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return AppendString(dst, value)
}

// TimeLen is the length of what AppendTime appends for years 0 to 9999.
const TimeLen = len(`"2006-01-02T15:04:05.000000Z"`)

// AppendTime appends t as a JSON string: RFC 3339, UTC, microseconds.
func AppendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, `"2006-01-02T15:04:05.000000Z"`)
}
