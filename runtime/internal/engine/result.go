package engine

import (
	"encoding/base64"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// toolResult is the result that the tool of an attempt writes in chunks. The tool calls the methods of
// tool.ResultHost, one at a time.
type toolResult struct {
	toolGoroutine
	id, encoding string
	opened       arcp.JobCompletedPayload // the reference without what the end has

	// Guarded by run.mu.
	chunks    uint64
	size      uint64                    // of the content
	reference *arcp.JobCompletedPayload // refers to the whole result; nil: it is not closed
}

var _ tool.ResultHost = (*toolResult)(nil)

// OpenResult begins the result of the attempt.
func (j toolJob) OpenResult(o tool.ResultOptions) (tool.ResultHost, error) {
	r := &toolResult{toolGoroutine: j.toolGoroutine, id: arcp.NewID(arcp.ResultPrefix), encoding: "utf8"}
	if o.Binary {
		r.encoding = "base64"
	}
	r.opened = arcp.JobCompletedPayload{ResultID: r.id, ContentType: j.s.e.cfg.scrubber().text(o.ContentType)}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	switch {
	case j.s.direct:
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "result: a direct job has no result in chunks")
	case j.s.events.result != nil:
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "result: the attempt has a result in chunks already")
	}
	j.s.events.result = r
	return r, nil
}

// Chunk queues a chunk that others follow.
func (r *toolResult) Chunk(content []byte) error { return r.append(content, nil) }

// End queues the last chunk.
func (r *toolResult) End(content []byte, summary string) error {
	p := r.opened
	p.Summary = r.s.e.cfg.scrubber().text(summary)
	return r.append(content, &p)
}

// append queues a chunk: the last one if reference is not nil.
func (r *toolResult) append(content []byte, reference *arcp.JobCompletedPayload) error {
	r.s.mu.Lock()
	p := arcp.JobResultChunkPayload{ResultID: r.id, ChunkSeq: r.chunks, Encoding: r.encoding, More: reference == nil}
	r.s.mu.Unlock()
	if p.ChunkSeq == 0 {
		p.ContentType = r.opened.ContentType
	}
	if r.encoding == "base64" {
		p.Data = base64.StdEncoding.EncodeToString(content)
	} else {
		content = r.s.e.cfg.scrubber().bytes(content)
		p.Data = string(content)
	}
	ev, err := r.encode(arcp.JobResultChunk, p, &r.s.common)
	if err != nil {
		return err
	}
	return r.enqueue(ev, nil, func() (*store.Event, *arcp.Error) {
		r.chunks++
		r.size += uint64(len(content))
		if reference != nil {
			reference.ResultSize = new(r.size)
			r.reference = reference
		}
		return nil, nil
	})
}

// resultReference returns the reference to the result in chunks; nil: the attempt has none. value is
// what the tool returned. The error is FAILED_PRECONDITION if the tool did not close the result, or
// returned a value as well.
func (q *eventQueue) resultReference(value arcp.Raw) (*arcp.JobCompletedPayload, *arcp.Error) {
	switch {
	case q.result == nil:
		return nil, nil
	case q.result.reference == nil:
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the tool returned without the end of its result in chunks")
	case len(value) > 0 && string(value) != "null":
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the tool returned a value, and wrote a result in chunks")
	}
	return q.result.reference, nil
}
