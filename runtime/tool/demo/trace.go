package demo

import (
	"context"
	"errors"
	"strconv"

	"github.com/arcpd/arcpd/runtime/tool"
)

type traceArgs struct {
	Spans int    `json:"spans" jsonschema:"minimum=0,maximum=100,description=How many spans to emit; the parent of each is the one before."`
	Error string `json:"error,omitzero" jsonschema:"description=The error of the last span."`
}

type traceResult struct {
	Traceparent string `json:"traceparent,omitzero"` // of the job
}

func newTrace() (*tool.Tool, error) {
	return tool.New(failingAtRestart("trace", "Emits nested spans."), trace)
}

func trace(_ context.Context, job tool.Job, a traceArgs) (traceResult, error) {
	var spans []*tool.Span
	parent := job.Span
	for n := range a.Spans {
		s := parent("step "+strconv.Itoa(n), map[string]any{"n": n})
		spans, parent = append(spans, s), s.Span
	}
	var failure error
	if a.Error != "" {
		failure = errors.New(a.Error)
	}
	for n := len(spans) - 1; n >= 0; n-- {
		if err := spans[n].End(failure); err != nil {
			return traceResult{}, err
		}
		failure = nil
	}
	return traceResult{job.Traceparent()}, nil
}
