package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/arcpd/arcpd/runtime/tool"
)

type collectArgs struct {
	IntervalMS millis `json:"interval_ms" jsonschema:"minimum=0,maximum=3600000,default=0,description=Before each chunk is read."`
}

type collectResult struct {
	Name   string `json:"name,omitzero"`
	Chunks int    `json:"chunks"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"` // hexadecimal
}

func newCollect() (*tool.Tool, error) {
	c := capability("collect", "Reads a stream of the client to its end.")
	c.ReadsStreams = true
	return tool.New(c, collect)
}

func collect(ctx context.Context, job tool.Job, a collectArgs) (out collectResult, err error) {
	st, err := job.AcceptStream(ctx)
	if err != nil {
		return out, err
	}
	pace := newPacer(a.IntervalMS)
	defer pace.stop()
	out.Name = st.Name
	sum := sha256.New()
	for {
		if err := pace.wait(ctx); err != nil {
			return out, err
		}
		chunk, err := st.Next()
		if errors.Is(err, io.EOF) {
			out.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out.Chunks++
		out.Bytes += len(chunk.Data)
		sum.Write(chunk.Data)
	}
}
