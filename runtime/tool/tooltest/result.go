package tooltest

import (
	"bytes"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// resultHost is the tool.ResultHost of Record.Result.
type resultHost struct{ host }

func (h host) OpenResult(o tool.ResultOptions) (tool.ResultHost, error) {
	h.j.mu.Lock()
	defer h.j.mu.Unlock()
	if h.j.record.Result != nil {
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "result: the attempt has a result in chunks already")
	}
	h.j.record.Result = &Result{ResultOptions: o}
	return resultHost{h}, nil
}

func (r resultHost) Chunk(content []byte) error { return r.append(content, false, "") }

func (r resultHost) End(content []byte, summary string) error {
	return r.append(content, true, summary)
}

// append records a chunk, unless Script.Emit refuses the event.
func (r resultHost) append(content []byte, last bool, summary string) error {
	if err := r.accept(arcp.JobResultChunk, arcp.JobResultChunkPayload{Data: string(content), More: !last}); err != nil {
		return err
	}
	r.j.mu.Lock()
	defer r.j.mu.Unlock()
	res := r.j.record.Result
	res.Chunks = append(res.Chunks, bytes.Clone(content))
	res.Closed, res.Summary = last, summary
	return nil
}
