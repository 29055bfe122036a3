package tooltest

import (
	"context"
	"fmt"
	"io"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// clientStreamHost is the tool.ClientStreamHost of Script.Streams[n].
type clientStreamHost struct {
	host
	n      int
	stream ClientStream
}

// AcceptStream returns the next stream of the script. After the last one it waits until ctx ends.
func (h host) AcceptStream(ctx context.Context) (tool.ClientStreamHost, error) {
	h.j.mu.Lock()
	n := h.j.accepted
	if n < len(h.j.script.Streams) {
		h.j.accepted++
	}
	h.j.mu.Unlock()
	if n < len(h.j.script.Streams) {
		return &clientStreamHost{h, n, h.j.script.Streams[n]}, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (cs *clientStreamHost) Opened() (arcp.StreamID, arcp.StreamOpenPayload) {
	return arcp.StreamID(fmt.Sprintf("str_client%d", cs.n)), cs.stream.StreamOpenPayload
}

func (cs *clientStreamHost) Next(ctx context.Context) (tool.ClientChunk, error) {
	if ctx.Err() != nil {
		return tool.ClientChunk{}, context.Cause(ctx)
	}
	if len(cs.stream.Chunks) == 0 {
		if cs.stream.Err != nil {
			return tool.ClientChunk{}, cs.stream.Err
		}
		return tool.ClientChunk{}, io.EOF
	}
	c := cs.stream.Chunks[0]
	cs.stream.Chunks = cs.stream.Chunks[1:]
	return c, nil
}

func (cs *clientStreamHost) Close(err *arcp.Error) {
	cs.update(func(r *Record) {
		id, _ := cs.Opened()
		r.Closed = append(r.Closed, ClosedStream{id, err})
	})
}
