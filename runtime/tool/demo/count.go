package demo

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type countArgs struct {
	To         int    `json:"to" jsonschema:"minimum=0,maximum=10000000,description=How far to count."`
	IntervalMS millis `json:"interval_ms" jsonschema:"minimum=0,maximum=3600000,description=How long a step takes."`
}

type countResult struct {
	Count       int `json:"count"`
	ResumedFrom int `json:"resumed_from"`
}

// countCheckpoint is the data of a checkpoint of demo.count.
type countCheckpoint struct {
	N int `json:"n"`
}

func newCount() (*tool.Tool, error) {
	c := interruptible("count", "Counts, with a checkpoint at every step, and continues from the last one after a restart.")
	c.Recovery = tool.RecoveryCheckpoint
	return tool.New(c, count)
}

func count(ctx context.Context, job tool.Job, a countArgs) (countResult, error) {
	var from countCheckpoint
	if raw := job.Restored(); raw != nil {
		if err := arcp.Unmarshal(raw, &from); err != nil {
			return countResult{}, err
		}
	}
	pace := newPacer(a.IntervalMS)
	defer pace.stop()
	total := float64(a.To)
	for n := from.N + 1; n <= a.To; n++ {
		if err := pace.step(ctx, job, countCheckpoint{n - 1}); err != nil {
			return countResult{}, err
		}
		if err := job.ProgressOf(float64(n), total); err != nil {
			return countResult{}, err
		}
		if err := job.Checkpoint("", countCheckpoint{n}); err != nil {
			return countResult{}, err
		}
	}
	return countResult{a.To, from.N}, nil
}
