package arcp

import (
	"bytes"
	"strconv"
	"time"
)

// Frame returns an envelope of type t with the payload p. p must be encodable, as all payload
// structs of this package are; otherwise Frame panics. Frame copies the field Sidecar of the payload to the envelope.
func Frame(t Type, p any) Envelope {
	raw, err := Marshal(p)
	if err != nil {
		panic("arcp: payload of " + string(t) + ": " + err.Error())
	}
	return Envelope{Type: t, Payload: raw, Sidecar: sidecarOf(p)}
}

// Append appends the encoded envelope to dst as one line. Zero members are omitted. A zero payload
// becomes {}.
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
		dst = appendRaw(append(dst, `,"extensions":`...), e.Extensions)
	}
	dst = append(dst, `,"payload":`...)
	if len(e.Payload) == 0 {
		return append(dst, `{}}`...)
	}
	return append(appendRaw(dst, e.Payload), '}')
}

// appendRaw appends a JSON value as one line, because some transports separate frames by newlines.
// Newlines in JSON are always white space.
func appendRaw(dst []byte, raw Raw) []byte {
	start := len(dst)
	dst = append(dst, raw...)
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return dst
	}
	for i := start; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return dst
}

func (e *Envelope) appendHead(dst []byte) []byte {
	return AppendHead(dst, e.ARCP, e.ID, e.Type, e.Timestamp)
}

// AppendHead appends the opening brace and the members common to all envelopes. The caller appends
// a comma, further members, the payload and the closing brace.
func AppendHead(dst []byte, version string, id MessageID, t Type, at time.Time) []byte {
	dst = AppendString(append(dst, `{"arcp":`...), version)
	dst = AppendString(append(dst, `,"id":`...), string(id))
	dst = AppendString(append(dst, `,"type":`...), string(t))
	return AppendTime(append(dst, `,"timestamp":`...), at)
}

func appendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return AppendString(dst, value)
}

// TimeLen is the length of a time written by AppendTime, in bytes.
const TimeLen = len(`"2006-01-02T15:04:05.000000Z"`)

// AppendTime appends t as a JSON string: RFC 3339 in UTC with microseconds. A year outside 0 to
// 9999 is clamped.
func AppendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	switch year := t.Year(); {
	case year > 9999:
		t = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	case year < 0:
		t = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	dst = appendDigits(append(dst, '"'), year, 4)
	dst = appendDigits(append(dst, '-'), int(month), 2)
	dst = appendDigits(append(dst, '-'), day, 2)
	dst = appendDigits(append(dst, 'T'), hour, 2)
	dst = appendDigits(append(dst, ':'), minute, 2)
	dst = appendDigits(append(dst, ':'), second, 2)
	dst = appendDigits(append(dst, '.'), t.Nanosecond()/1000, 6)
	return append(dst, 'Z', '"')
}

// appendDigits appends the last n digits of v.
func appendDigits(dst []byte, v, n int) []byte {
	dst = append(dst, "000000"[:n]...)
	for i := len(dst) - 1; v > 0; i-- {
		dst[i] = byte('0' + v%10)
		v /= 10
	}
	return dst
}
