package demo

import (
	"context"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type emitArgs struct {
	Count      int    `json:"count" jsonschema:"minimum=0,maximum=10000000,description=How many log events to emit."`
	Bytes      int    `json:"bytes" jsonschema:"minimum=0,maximum=262144,description=The length of each message."`
	IntervalMS millis `json:"interval_ms" jsonschema:"minimum=0,maximum=3600000,default=0,description=Between two events."`
	DelayMS    millis `json:"delay_ms" jsonschema:"minimum=0,maximum=3600000,default=0,description=Before the first event."`
}

type emitResult struct {
	Emitted int `json:"emitted"`
}

func newEmit() (*tool.Tool, error) {
	return tool.New(failingAtRestart("emit", "Emits numbered log events."), emit)
}

func emit(ctx context.Context, job tool.Job, a emitArgs) (emitResult, error) {
	if err := pause(ctx, a.DelayMS); err != nil {
		return emitResult{}, err
	}
	message := strings.Repeat("x", a.Bytes)
	pace := newPacer(a.IntervalMS)
	defer pace.stop()
	var numbers numbering
	for n := range a.Count {
		if n > 0 {
			if err := pace.wait(ctx); err != nil {
				return emitResult{}, err
			}
		}
		if err := job.Log(arcp.LevelInfo, message, numbers.attributes(n)); err != nil {
			return emitResult{}, err
		}
	}
	return emitResult{a.Count}, nil
}

// numbering builds the attributes {"n":…} in blocks. Each part of a block is written once, so the caller may retain
// it.
type numbering struct{ block []byte }

const (
	blockBytes   = 4 << 10
	maxAttribute = len(`{"n":-9223372036854775808}`)
)

func (nb *numbering) attributes(n int) arcp.Raw {
	if cap(nb.block)-len(nb.block) < maxAttribute {
		nb.block = make([]byte, 0, blockBytes)
	}
	start := len(nb.block)
	nb.block = strconv.AppendInt(append(nb.block, `{"n":`...), int64(n), 10)
	nb.block = append(nb.block, '}')
	return arcp.Raw(nb.block[start:len(nb.block):len(nb.block)])
}
