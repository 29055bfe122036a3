// Package tracing records the work of the runtime as OpenTelemetry spans.
//
// A nil *Tracer and a nil *Span record nothing, and their methods allocate nothing. Attributes have no
// arguments, results or credentials of jobs. Any goroutine may call the methods.
package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// scope is the name of the instrumentation.
const scope = "github.com/arcpd/arcpd/runtime"

// Names of spans. A span of a job has the name of its tool.
const (
	Handshake = "handshake"
	Attempt   = "attempt"
	Call      = "tool call"
	Approval  = "approval wait"
	Commit    = "store commit"
)

// Tracer starts spans.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer of a provider; nil for nil.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.Tracer(scope)}
}

// Span is a span that has not ended.
type Span struct {
	tracer trace.Tracer
	span   trace.Span
}

// StartHandshake starts a trace for the handshake of a connection.
func (t *Tracer) StartHandshake(start time.Time) *Span {
	if t == nil {
		return nil
	}
	_, span := t.tracer.Start(context.Background(), Handshake, trace.WithTimestamp(start), trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindServer))
	return &Span{t.tracer, span}
}

// StartJob starts the span of a job. With an IDGenerator in the provider its ids are those of the job. The
// span of a job that was found in the store is a repetition, which ends instead of the first one.
func (t *Tracer) StartJob(j *store.Job) *Span {
	if t == nil {
		return nil
	}
	ids := jobIDs{trace: traceIDOf(j.TraceID)}
	ids.span, _ = trace.SpanIDFromHex(j.SpanID) // the zero id, of no job, becomes a random one
	ctx := context.WithValue(context.Background(), jobIDs{}, ids)
	if parent, err := trace.SpanIDFromHex(j.ParentSpanID); err == nil {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: ids.trace, SpanID: parent, TraceFlags: trace.FlagsSampled, Remote: true}))
	}
	_, span := t.tracer.Start(ctx, j.Agent, trace.WithTimestamp(j.CreatedAt), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("arcp.job_id", string(j.ID)), attribute.String("arcp.session_id", string(j.Session)),
			attribute.String("arcp.tool", j.Agent)))
	return &Span{t.tracer, span}
}

// Start starts a child of the span.
func (s *Span) Start(name string) *Span {
	if s == nil {
		return nil
	}
	_, span := s.tracer.Start(trace.ContextWithSpan(context.Background(), s.span), name)
	return &Span{s.tracer, span}
}

// Context returns ctx with the span as the parent of the spans of a tool.
func (s *Span) Context(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// SetAttempt sets the number of the attempt.
func (s *Span) SetAttempt(n uint32) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64("arcp.attempt", int64(n)))
	}
}

// SetLease sets the end of the lease of a job and the rest of its budget, an object by currency. Either may
// be absent.
func (s *Span) SetLease(expiresAt time.Time, budget arcp.Raw) {
	if s == nil {
		return
	}
	if !expiresAt.IsZero() {
		s.span.SetAttributes(attribute.String("arcp.lease.expires_at", expiresAt.UTC().Format(time.RFC3339)))
	}
	if len(budget) > 0 {
		s.span.SetAttributes(attribute.String("arcp.budget.remaining", string(budget)))
	}
}

// End ends the span. code is the code of its failure; empty: it succeeded.
func (s *Span) End(code arcp.Code) {
	if s == nil {
		return
	}
	if code != "" {
		s.span.SetAttributes(attribute.String("error.type", string(code)))
		s.span.SetStatus(codes.Error, string(code))
	}
	s.span.End()
}

// traceIDOf returns a trace id of 32 hexadecimal digits, and of any other text the first 16 bytes of its
// SHA-256.
func traceIDOf(text string) (id trace.TraceID) {
	if len(text) == hex.EncodedLen(len(id)) {
		if id, err := trace.TraceIDFromHex(text); err == nil {
			return id
		}
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}

// jobIDs are the ids of the span of a job. Its zero value is the context key.
type jobIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// IDGenerator makes the ids of the spans of a provider. The span of a job has the ids of the job.
type IDGenerator struct{}

// NewIDs returns the ids of a span without a parent.
func (g IDGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	ids, _ := ctx.Value(jobIDs{}).(jobIDs)
	for !ids.trace.IsValid() {
		ids.trace = randomTraceID()
	}
	return ids.trace, g.NewSpanID(ctx, ids.trace)
}

// NewSpanID returns the id of a span with a parent.
func (IDGenerator) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	ids, _ := ctx.Value(jobIDs{}).(jobIDs)
	for !ids.span.IsValid() {
		putRandom(ids.span[:])
	}
	return ids.span
}

func randomTraceID() (id trace.TraceID) {
	putRandom(id[:8])
	putRandom(id[8:])
	return id
}

// putRandom fills eight bytes.
func putRandom(b []byte) {
	r := rand.Uint64()
	for i := range 8 {
		b[i] = byte(r >> (8 * i))
	}
}
