package demo

import (
	"context"
	"fmt"

	"github.com/arcpd/arcpd/runtime/tool"
)

type reportArgs struct {
	Bytes      int    `json:"bytes" jsonschema:"minimum=0,maximum=268435456,description=The length of the report."`
	ChunkBytes int    `json:"chunk_bytes" jsonschema:"minimum=1,maximum=65536,default=65536,description=The length of each chunk but the last."`
	Encoding   string `json:"encoding" jsonschema:"enum=utf8|base64,default=utf8,description=How the chunks are encoded."`
	IntervalMS millis `json:"interval_ms" jsonschema:"minimum=0,maximum=3600000,default=0,description=Between two chunks."`
}

func newReport() (*tool.Tool, error) {
	return tool.New(capability("report", "Returns a report of numbered lines in chunks."), report)
}

func report(ctx context.Context, job tool.Job, a reportArgs) (any, error) {
	res, err := job.Result(tool.ResultOptions{Binary: a.Encoding == "base64"})
	if err != nil {
		return nil, err
	}
	pace := newPacer(a.IntervalMS)
	defer pace.stop()
	var lines []byte
	for sent, n := 0, 0; sent < a.Bytes; {
		size := min(a.ChunkBytes, a.Bytes-sent)
		for ; len(lines) < size; n++ {
			lines = fmt.Appendf(lines, "line %d\n", n)
		}
		if _, err := res.Write(lines[:size]); err != nil {
			return nil, err
		}
		lines = append(lines[:0], lines[size:]...)
		if sent += size; sent == a.Bytes {
			break // the last chunk is for Close
		}
		if err := res.Flush(); err != nil {
			return nil, err
		}
		if err := pace.wait(ctx); err != nil {
			return nil, err
		}
	}
	return nil, res.CloseWithSummary(fmt.Sprintf("a report of %d bytes", a.Bytes))
}
