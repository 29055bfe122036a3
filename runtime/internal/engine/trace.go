package engine

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"github.com/arcpd/arcpd/arcp"
)

// newSpan returns the trace id and the parent span of a job, and a new span id.
func newSpan(env *arcp.Envelope) (traceID, parentSpan, span string) {
	if env.TraceID == "" {
		ids := randomHex(24) // as one piece of memory
		return ids[:32], env.SpanID, ids[32:]
	}
	traceID, parentSpan = traceOf(env)
	return traceID, parentSpan, randomHex(8)
}

// traceOf returns a job's trace id and parent span (§5.11): the client's, the parts of a traceparent,
// or a new trace.
func traceOf(env *arcp.Envelope) (traceID, parentSpan string) {
	if env.TraceID == "" {
		return randomHex(16), env.SpanID
	}
	if trace, span, ok := arcp.ParseTraceparent(env.TraceID); ok {
		return trace, span
	}
	return env.TraceID, env.SpanID
}

// randomHex returns n random bytes, 24 at most, in hexadecimal digits. They are not secret: the
// identifiers of traces and spans only have to differ.
func randomHex(n int) string {
	var b [24]byte
	for i := 0; i < n; i += 8 {
		binary.BigEndian.PutUint64(b[i:], rand.Uint64())
	}
	var digits [2 * len(b)]byte
	return string(digits[:hex.Encode(digits[:], b[:n])])
}
