package demo

import (
	"context"

	"github.com/arcpd/arcpd/runtime/tool"
)

type progressArgs struct {
	Steps      int    `json:"steps" jsonschema:"minimum=0,maximum=10000000,description=How many steps to make."`
	IntervalMS millis `json:"interval_ms" jsonschema:"minimum=0,maximum=3600000,description=How long a step takes."`
}

type progressResult struct {
	Steps int `json:"steps"`
}

func newProgress() (*tool.Tool, error) {
	return tool.New(interruptible("progress", "Makes steps and reports each as progress."), progress)
}

func progress(ctx context.Context, job tool.Job, a progressArgs) (progressResult, error) {
	pace := newPacer(a.IntervalMS)
	defer pace.stop()
	total := float64(a.Steps)
	for step := range a.Steps {
		if err := pace.step(ctx, job, nil); err != nil {
			return progressResult{}, err
		}
		if err := job.ProgressOf(float64(step+1), total); err != nil {
			return progressResult{}, err
		}
	}
	return progressResult{a.Steps}, nil
}
