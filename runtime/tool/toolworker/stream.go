package toolworker

import (
	"context"
	"encoding/base64"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
)

// streamHost is the tool.StreamHost of a stream in a worker.
type streamHost struct {
	h  host
	st *client.WorkerStream
}

func (h host) OpenStream(p arcp.StreamOpenPayload) (tool.StreamHost, error) {
	st, err := h.call.OpenStream(h.ctx, p)
	if err != nil {
		return nil, wireError(err)
	}
	return streamHost{h, st}, nil
}

func (h host) AcceptStream(context.Context) (tool.ClientStreamHost, error) {
	return nil, unoffered("read streams of clients")
}

func (s streamHost) ID() arcp.StreamID { return s.st.ID }

func (s streamHost) Chunk(p arcp.StreamChunkPayload) error {
	if err := checkSize(arcp.StreamChunk, p); err != nil {
		return err
	}
	return wireError(s.st.Chunk(s.h.ctx, p))
}

func (s streamHost) End(err *arcp.Error) error {
	if err != nil {
		return wireError(s.st.CloseWithError(s.h.ctx, err))
	}
	return wireError(s.st.Close(s.h.ctx))
}

// resultHost is the tool.ResultHost of a job in a worker. Its zero value has no result.
type resultHost struct {
	h       host
	next    arcp.JobResultChunkPayload // without the content
	summary string
	closed  bool
}

func (h host) OpenResult(o tool.ResultOptions) (tool.ResultHost, error) {
	r := h.result
	if r.next.ResultID != "" {
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "result: the attempt has a result in chunks already")
	}
	r.h = h
	r.next = arcp.JobResultChunkPayload{ResultID: arcp.NewID(arcp.ResultPrefix), Encoding: "utf8", ContentType: o.ContentType}
	if o.Binary {
		r.next.Encoding = "base64"
	}
	return r, nil
}

func (r *resultHost) Chunk(content []byte) error { return r.send(content, true) }

func (r *resultHost) End(content []byte, summary string) error {
	if err := r.send(content, false); err != nil {
		return err
	}
	r.closed, r.summary = true, summary
	return nil
}

func (r *resultHost) send(content []byte, more bool) error {
	p := r.next
	p.More = more
	if p.Data = string(content); p.Encoding == "base64" {
		p.Data = base64.StdEncoding.EncodeToString(content)
	}
	if err := r.h.call.ResultChunk(r.h.ctx, p); err != nil {
		return wireError(err)
	}
	r.next.ChunkSeq++
	r.next.ContentType = ""
	return nil
}
