package engine

import (
	"time"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/job/authority"
	"github.com/arcpd/arcpd/runtime/store"
)

func commonOf(row *store.Job) store.JobContext {
	c := store.JobContext{JobID: row.ID, TraceID: row.TraceID, SpanID: row.SpanID, ParentSpanID: row.ParentSpanID}
	if len(row.Options) > 0 {
		// An id without the prefix is not forwarded: other sessions may refuse to decode it.
		if id := optionsOf(row).CausationID; arcp.HasPrefix(string(id), arcp.MessagePrefix) {
			c.CausationID = id
		}
	}
	return c
}

// event encodes an event of the job; payload structs always encode.
func (d *definition) event(t arcp.Type, now time.Time, p arcp.Priority, payload any) *store.Event {
	return mustEvent(t, now, &d.common, p, payload)
}

func mustEvent(t arcp.Type, now time.Time, c *store.JobContext, p arcp.Priority, payload any) *store.Event {
	return encodeEvent(t, now, c, p, func(dst []byte) []byte {
		raw, err := arcp.AppendJSON(dst, payload)
		if err != nil {
			panic("engine: payload of " + string(t) + ": " + err.Error())
		}
		return raw
	})
}

// encodeEvent encodes an event whose payload is appended by a function. The events of each job use it,
// because a payload that is an interface needs memory.
func encodeEvent(t arcp.Type, now time.Time, c *store.JobContext, p arcp.Priority, appendPayload func([]byte) []byte) *store.Event {
	buffer := buffers.Get().(*[]byte)
	raw := appendPayload((*buffer)[:0])
	defer putBuffer(buffer, raw)
	return store.NewEvent(t, now, c, p, raw)
}

// acceptedEvent returns job.accepted. a is the authority of the job when it is accepted.
func (d *definition) acceptedEvent(a *authority.State) *store.Event {
	raw, constraints := authority.WireForm(a.Lease)
	payload := arcp.JobAcceptedPayload{
		JobID:            d.row.ID,
		Agent:            d.row.Agent,
		ParentJobID:      d.row.Parent,
		RestoredFrom:     d.restoredFrom,
		AcceptedAt:       d.created.UTC(),
		TraceID:          d.row.TraceID,
		Lease:            raw,
		LeaseConstraints: constraints,
		Budget:           a.Budget.JSON(),
	}
	return encodeEvent(arcp.JobAccepted, d.created, &d.common, d.row.Priority, payload.AppendJSON)
}

func failedOutcome(err *arcp.Error) *job.Outcome {
	return &job.Outcome{State: arcp.StateFailed, Err: err}
}

// outcomeCode returns the code of an ended job as lists of jobs have it.
func outcomeCode(o *job.Outcome) arcp.Code {
	if o.Err != nil {
		return o.Err.Code
	}
	return o.Code
}

// appendOutcome appends the terminal event, preceded by the chunks of a result that is too
// large for one event (§5.6). The returned outcome replaces o if the result is too large for a job.
func (d *definition) appendOutcome(events []*store.Event, now time.Time, o *job.Outcome, scrub scrubber) ([]*store.Event, *job.Outcome) {
	scrub.outcome(o)
	switch size := len(o.Value); {
	case o.Reference != nil:
		return append(events, d.event(completedType(optionsOf(&d.row)), now, arcp.PriorityCritical, *o.Reference)), o
	case o.State != arcp.StateCompleted || size <= maxPayload:
	case d.direct:
		o = tooLarge(arcp.CodeResourceExhausted, size, maxPayload)
	case size > maxResult:
		o = tooLarge(arcp.CodeInternal, size, maxResult)
	default:
		return d.appendChunks(events, now, o.Value), o
	}
	return append(events, terminalEvent(&d.row, &d.common, o, now)), o
}

// tooLarge returns the outcome of a job with a result above the limit. The error is not retryable.
func tooLarge(c arcp.Code, size, limit int) *job.Outcome {
	e := arcp.Errorf(c, "the result has %d bytes; the limit is %d", size, limit)
	e.Retryable = false
	return failedOutcome(e)
}

// appendChunks appends the chunks of a result, and the event that completes the job.
func (d *definition) appendChunks(events []*store.Event, now time.Time, value []byte) []*store.Event {
	id, size := arcp.NewID(arcp.ResultPrefix), uint64(len(value))
	for n := uint64(0); len(value) > 0; n++ {
		cut := chunkLen(value)
		events = append(events, d.event(arcp.JobResultChunk, now, d.row.Priority, arcp.JobResultChunkPayload{
			ResultID: id, ChunkSeq: n, Data: string(value[:cut]), Encoding: "utf8", More: cut < len(value)}))
		value = value[cut:]
	}
	return append(events, d.event(completedType(optionsOf(&d.row)), now, arcp.PriorityCritical,
		arcp.JobCompletedPayload{ResultID: id, ResultSize: &size}))
}

// Bounds of a chunk, except for the last one. JSON text has no control characters but white space,
// so the encoded data of a chunk has at most twice its length: less than a frame of the draft
// dialect.
const (
	maxChunk = 448 << 10
	minChunk = maxChunk - utf8.UTFMax
)

// chunkLen returns the length of the next chunk: at most maxChunk, and it ends between two runes.
func chunkLen(b []byte) int {
	if len(b) <= maxChunk {
		return len(b)
	}
	n := maxChunk
	for n > minChunk && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
}

// terminalEvent returns the event that ends a job (§5.6). It is always critical.
func terminalEvent(row *store.Job, c *store.JobContext, o *job.Outcome, now time.Time) *store.Event {
	options := optionsOf(row)
	if o.State == arcp.StateCompleted && !options.Direct {
		return encodeEvent(completedType(options), now, c, arcp.PriorityCritical, arcp.JobCompletedPayload{Value: o.Value}.AppendJSON)
	}
	t, payload := terminalPayload(o, options.Direct)
	return mustEvent(t, now, c, arcp.PriorityCritical, payload)
}

// completedType returns the type of the event that completes a job that is not direct.
func completedType(o rowOptions) arcp.Type {
	if o.Workflow {
		return arcp.WorkflowComplete
	}
	return arcp.JobCompleted
}

// terminalPayload returns the payload of a terminal event other than job.completed.
func terminalPayload(o *job.Outcome, direct bool) (arcp.Type, any) {
	switch {
	case o.State == arcp.StateCompleted:
		return arcp.ToolResult, arcp.ToolResultPayload{Value: o.Value}
	case o.State == arcp.StateCancelled && direct:
		return arcp.ToolError, arcp.Errorf(o.Code, "%s", o.Reason)
	case o.State == arcp.StateCancelled:
		return arcp.JobCancelled, arcp.JobCancelledPayload{Reason: o.Reason, Code: o.Code}
	case direct:
		return arcp.ToolError, o.Err
	}
	return arcp.JobFailed, o.Err
}
