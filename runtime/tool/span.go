package tool

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// maxSpanName bounds the name of a span in bytes.
const maxSpanName = 256

// Span is an operation of a job that is under way. Many goroutines may use it. Only End emits an event,
// trace.span: a span that has not ended leaves nothing.
type Span struct {
	host    Host
	payload arcp.TraceSpanPayload
	attrs   map[string]any
	ended   atomic.Bool
}

// Span begins a span of the job's trace. Its parent is the span of the job. Clients see the name and the
// attributes, which End encodes with arcp.Marshal: they must not have secrets. The name has at most 256
// bytes.
func (j Job) Span(name string, attributes map[string]any) *Span {
	return newSpan(j.host, name, j.host.SpanID(), attributes)
}

// Span begins a span whose parent is s.
func (s *Span) Span(name string, attributes map[string]any) *Span {
	return newSpan(s.host, name, s.payload.SpanID, attributes)
}

func newSpan(h Host, name, parent string, attributes map[string]any) *Span {
	return &Span{host: h, attrs: attributes, payload: arcp.TraceSpanPayload{
		Name: name, TraceID: h.TraceID(), SpanID: newSpanID(), ParentSpanID: parent, StartTime: time.Now().UTC()}}
}

// newSpanID returns the id of a span. It is not secret: the ids of a trace only have to differ.
func newSpanID() string {
	var b [8]byte
	for id := uint64(0); id == 0; { // all zero is no id
		id = rand.Uint64()
		binary.BigEndian.PutUint64(b[:], id)
	}
	return hex.EncodeToString(b[:])
}

// ID returns the span id: 16 hexadecimal digits.
func (s *Span) ID() string { return s.payload.SpanID }

// Traceparent returns the W3C trace context of the span, for requests to other services. It is empty if
// the trace id of the submit is not a W3C trace id.
func (s *Span) Traceparent() string { return arcp.Traceparent(s.payload.TraceID, s.payload.SpanID) }

// End ends the span and emits it. An error, if not nil, becomes the attributes error.type, an error code,
// and error.message. Only the first call has an effect. The error of End is INVALID_ARGUMENT for a name
// or attributes that are not valid.
func (s *Span) End(err error) error {
	if !s.ended.CompareAndSwap(false, true) {
		return nil
	}
	p := s.payload
	p.EndTime = time.Now().UTC()
	attrs := s.attrs
	if err != nil {
		e := wireError(context.Background(), err)
		attrs = make(map[string]any, len(s.attrs)+2)
		maps.Copy(attrs, s.attrs)
		attrs["error.type"], attrs["error.message"] = e.Code, e.Message
	}
	if len(attrs) > 0 {
		raw, err := encodeEvent(attrs)
		if err != nil {
			return err
		}
		p.Attributes = raw
	}
	return NewJob(s.host).EmitSpan(p)
}

// EmitSpan emits a span that another program has ended. The error is INVALID_ARGUMENT for a span that is not valid.
func (j Job) EmitSpan(p arcp.TraceSpanPayload) error {
	switch {
	case p.Name == "" || len(p.Name) > maxSpanName:
		return arcp.Errorf(arcp.CodeInvalidArgument, "trace.span: the name must have 1 to %d bytes", maxSpanName)
	case p.TraceID == "" || p.SpanID == "":
		return arcp.Errorf(arcp.CodeInvalidArgument, "trace.span: trace_id and span_id are required")
	case p.EndTime.Before(p.StartTime):
		return arcp.Errorf(arcp.CodeInvalidArgument, "trace.span: end_time is before start_time")
	case len(p.Attributes) > 0 && p.Attributes.Kind() != '{':
		return arcp.Errorf(arcp.CodeInvalidArgument, "trace.span: attributes must be an object")
	}
	var err error
	if p.Attributes, err = encodeEvent(p.Attributes); err != nil {
		return err
	}
	return j.host.Emit(arcp.TraceSpan, p)
}
