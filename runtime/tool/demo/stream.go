package demo

import (
	"context"
	"strconv"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type streamArgs struct {
	Kind       string `json:"kind" jsonschema:"enum=text|binary|event|log|metric|thought,default=text,description=The kind of the stream."`
	Name       string `json:"name,omitzero" jsonschema:"maxLength=256,description=The name of the stream."`
	Chunks     int    `json:"chunks" jsonschema:"minimum=0,maximum=1000000,description=How many chunks to write."`
	Bytes      int    `json:"bytes" jsonschema:"minimum=1,maximum=65536,default=16,description=The length of the content of each chunk."`
	IntervalMS millis `json:"interval_ms" jsonschema:"minimum=0,maximum=3600000,default=0,description=Between two chunks."`
}

type streamResult struct {
	StreamID arcp.StreamID `json:"stream_id"`
	Chunks   int           `json:"chunks"`
}

func newStream() (*tool.Tool, error) {
	return tool.New(capability("stream", "Writes numbered chunks to a stream."), stream)
}

func stream(ctx context.Context, job tool.Job, a streamArgs) (streamResult, error) {
	st, err := job.OpenStream(tool.StreamOptions{Kind: a.Kind, Name: a.Name})
	if err != nil {
		return streamResult{}, err
	}
	pace := newPacer(a.IntervalMS)
	defer pace.stop()
	var buffer []byte
	for n := range a.Chunks {
		if n > 0 {
			if err := pace.wait(ctx); err != nil {
				return streamResult{}, err
			}
		}
		if buffer, err = writeChunk(st, buffer, a.Kind, n, a.Bytes); err != nil {
			if e, _ := arcp.AsError(err); e.Code == arcp.CodeCancelled && ctx.Err() == nil { // a client cancelled the stream
				return streamResult{st.ID(), n}, nil
			}
			return streamResult{}, err
		}
	}
	return streamResult{st.ID(), a.Chunks}, st.Close()
}

// writeChunk writes chunk n with a content of size bytes: the number, a line feed, and dots between them.
// It builds the content in buffer, and returns the buffer.
func writeChunk(st *tool.Stream, buffer []byte, kind string, n, size int) ([]byte, error) {
	number := strconv.Itoa(n)
	content := append(buffer[:0], number[:min(len(number), size)]...)
	for len(content) < size-1 {
		content = append(content, dots[:min(len(dots), size-1-len(content))]...)
	}
	if len(content) < size {
		content = append(content, '\n')
	}
	switch kind {
	case arcp.StreamText, arcp.StreamBinary:
		_, err := st.Write(content)
		return content, err
	case arcp.StreamThought:
		return content, st.WriteThought(tool.Thought{Role: "assistant_thought", Text: string(content)})
	case arcp.StreamLog:
		return content, st.WriteJSON(arcp.LogPayload{Level: arcp.LevelInfo, Message: string(content)})
	case arcp.StreamMetric:
		return content, st.WriteJSON(arcp.MetricPayload{Name: "demo.chunk", Value: arcp.Number(number), Unit: "count"})
	}
	return content, st.WriteJSON(map[string]any{"n": n, "text": string(content)})
}

const dots = "................................................................"
