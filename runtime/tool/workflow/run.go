package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// run is an attempt of a workflow. Each step has a goroutine.
type run struct {
	*graph
	job   tool.Job
	ctx   context.Context // of the attempt
	input any
	slots chan struct{} // one for each call that runs
	steps map[*step]*progress

	// failing is ended by the first failure. After it no call begins, but the calls of earlier
	// attempts are found: they may run or have to be compensated.
	failing context.Context
	fail    context.CancelCauseFunc

	mu        sync.Mutex
	calls     int // of tools, with the compensations that may follow
	values    int // bytes
	undo      []compensation
	undoBytes int
}

// progress is the progress of a step.
type progress struct {
	done  chan struct{} // closed at the end; the other members do not change after it
	state State         // Completed or Skipped; empty: the step has failed or did not start
	value any
}

// run runs an attempt. It is a tool.Func.
func (g *graph) run(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
	if saved := job.Restored(); saved != nil {
		return nil, g.resumeCompensation(ctx, job, saved)
	}
	r := &run{graph: g, job: job, ctx: ctx, input: decodeValue(args), slots: make(chan struct{}, MaxCalls), steps: make(map[*step]*progress)}
	r.failing, r.fail = context.WithCancelCause(ctx)
	defer r.fail(nil)
	g.emitSteps(job)
	for _, s := range g.steps {
		r.steps[s] = &progress{done: make(chan struct{})}
	}
	var all sync.WaitGroup
	for _, s := range g.steps {
		all.Go(func() { r.runStep(s) })
	}
	all.Wait()
	var value arcp.Raw
	if r.failing.Err() == nil {
		var err error
		if value, err = g.result.render(ctx, r.variables(stepsByName(g.steps))); err != nil {
			r.fail(expressionError("result", err))
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case r.failing.Err() != nil:
		return nil, g.compensate(ctx, job, context.Cause(r.failing), r.undo)
	}
	return value, nil
}

func stepsByName(steps []*step) map[string]*step {
	all := make(map[string]*step)
	for _, s := range steps {
		all[s.name] = s
	}
	return all
}

// expressionError returns the error of an expression that cannot be evaluated.
func expressionError(where string, err error) *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidArgument, "%s: %s", where, err)
}

// runStep runs a step after its needs.
func (r *run) runStep(s *step) {
	p := r.steps[s]
	defer close(p.done)
	for _, need := range s.needs {
		if <-r.steps[need].done; r.steps[need].state == "" {
			return
		}
	}
	if r.ctx.Err() != nil {
		return
	}
	vars, at := r.variables(s.ancestors), StepEvent{Step: s.name}
	runs, err := r.condition(s, vars)
	switch {
	case err != nil:
	case runs:
		p.value, err = r.value(s, vars, &at)
	default:
		p.state, at.State = Skipped, Skipped
		emit(r.job, at)
		return
	}
	if err != nil {
		r.failStep(at, err)
		return
	}
	p.state = Completed
}

// value runs the calls of a step and returns its value.
func (r *run) value(s *step, vars map[string]any, at *StepEvent) (any, error) {
	if s.each == nil {
		return r.call(s, vars, at)
	}
	at.State = Running
	emit(r.job, *at)
	value, err := r.fanOut(s, vars)
	if err == nil {
		at.State = Completed
		emit(r.job, *at)
	}
	return value, err
}

// failStep fails the workflow with the error of a step, unless it fails already.
func (r *run) failStep(at StepEvent, err error) {
	if r.ctx.Err() != nil || errors.Is(err, errFailing) {
		return
	}
	e, _ := arcp.AsError(err)
	at.State, at.Code = Failed, e.Code
	emit(r.job, at)
	failure := *e
	failure.Message, failure.Retryable = fmt.Sprintf("step %s: %s", at.key(), e.Message), false
	r.fail(&failure)
}

// errFailing is the error of a call that does not begin because the workflow fails.
var errFailing = errors.New("the workflow fails")

// variables returns the variables of an expression that may use some steps, which have ended.
func (r *run) variables(steps map[string]*step) map[string]any {
	states := make(map[string]any, len(steps))
	for name, s := range steps {
		p := r.steps[s]
		states[name] = map[string]any{"value": p.value, "state": string(p.state)}
	}
	return map[string]any{"input": r.input, "steps": states}
}

// condition reports whether a step runs.
func (r *run) condition(s *step, vars map[string]any) (bool, error) {
	if s.when == nil {
		for _, need := range s.needs {
			if r.steps[need].state != Completed {
				return false, nil
			}
		}
		return true, nil
	}
	v, err := s.when.eval(r.ctx, vars)
	if err != nil {
		return false, expressionError("when", err)
	}
	runs, ok := v.(bool)
	if !ok {
		return false, expressionError("when", errors.New("the value is not a bool"))
	}
	return runs, nil
}

// fanOut calls the tool of a step for each item, and returns the list of the values.
func (r *run) fanOut(s *step, vars map[string]any) (any, error) {
	v, err := s.each.eval(r.ctx, vars)
	if err != nil {
		return nil, expressionError("each", err)
	}
	items, ok := v.([]any)
	if !ok || len(items) > MaxItems {
		return nil, expressionError("each", fmt.Errorf("want a list of at most %d items", MaxItems))
	}
	values := make([]any, len(items))
	failures := make([]error, len(items))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(s.parallel, len(items)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(items); i = int(next.Add(1)) - 1 {
				values[i], failures[i] = r.callItem(s, vars, items[i], i)
			}
		})
	}
	all.Wait()
	var stopped error
	for _, err := range failures {
		if err != nil && !errors.Is(err, errFailing) {
			return nil, err
		}
		stopped = cmp.Or(stopped, err)
	}
	return values, stopped
}

// callItem calls the tool of a step for an item. A failure fails the workflow.
func (r *run) callItem(s *step, vars map[string]any, item any, i int) (any, error) {
	own := maps.Clone(vars)
	own["item"] = item
	at := StepEvent{Step: s.name, Item: &i}
	value, err := r.call(s, own, &at)
	if err != nil {
		r.failStep(at, err)
	}
	return value, err
}

// key returns the key of a call.
func (e *StepEvent) key() string {
	if e.Item == nil {
		return e.Step
	}
	return e.Step + "[" + strconv.Itoa(*e.Item) + "]"
}

// call calls the tool of a step until it completes or is not to be retried.
func (r *run) call(s *step, vars map[string]any, at *StepEvent) (any, error) {
	own := maps.Clone(vars)
	for attempt := 1; ; attempt++ {
		own["attempt"], at.Attempt, at.Child = int64(attempt), attempt, ""
		raw, err := r.attempt(s, own, at)
		if err == nil {
			return r.complete(s, vars, at, raw)
		}
		e, ok := errors.AsType[*arcp.Error](err)
		if !ok || !e.Retryable || attempt >= s.retry.MaxAttempts || r.ctx.Err() != nil {
			return nil, err
		}
		failed := *at
		failed.State, failed.Code = Retrying, e.Code
		emit(r.job, failed)
		select {
		case <-time.After(s.retry.Delay(attempt, rand.Float64())):
		case <-r.failing.Done():
		}
	}
}

// attempt calls the tool of a step once.
func (r *run) attempt(s *step, vars map[string]any, at *StepEvent) (arcp.Raw, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-r.ctx.Done():
		return nil, context.Cause(r.ctx)
	}
	c, err := s.call.render(r.ctx, "", vars)
	if err != nil {
		return nil, err
	}
	if c.FindOnly, err = r.begin(s); err != nil {
		return nil, err
	}
	c.MaxRuntime = s.timeout
	c.Key = at.key() + "/" + strconv.Itoa(at.Attempt)
	c.OnChild = func(child arcp.JobID) {
		at.State, at.Child = Running, child
		emit(r.job, *at)
	}
	raw, err := r.job.Call(r.ctx, c)
	if errors.Is(err, tool.ErrNotCalled) {
		return nil, errFailing
	}
	return raw, err
}

// render returns a call with its arguments and lease. where is a prefix for errors.
func (c *call) render(ctx context.Context, where string, vars map[string]any) (tool.Call, error) {
	arguments, err := c.arguments.render(ctx, vars)
	if err != nil {
		return tool.Call{}, expressionError(where+"arguments", err)
	}
	made := tool.Call{Tool: c.tool, Arguments: arguments}
	if c.lease.doc != nil {
		if made.Lease, err = c.lease.render(ctx, vars); err != nil {
			return tool.Call{}, expressionError(where+"lease", err)
		}
	}
	return made, nil
}

// begin counts a call and its compensation, and reports whether the call is only to be found. Calls do
// not use up the children of the job that the compensations need.
func (r *run) begin(s *step) (findOnly bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing.Err() != nil {
		return true, nil
	}
	n := 1
	if s.onFailure != nil {
		n++
	}
	if r.calls += n; r.calls > MaxChildren {
		return false, permanent(arcp.CodeResourceExhausted, "the workflow calls more than %d tools, with its compensations", MaxChildren)
	}
	return false, nil
}

// permanent returns an error that is not retryable.
func permanent(code arcp.Code, format string, args ...any) *arcp.Error {
	e := arcp.Errorf(code, format, args...)
	e.Retryable = false
	return e
}

// complete records a completed call, and returns its value.
func (r *run) complete(s *step, vars map[string]any, at *StepEvent, raw arcp.Raw) (any, error) {
	value := decodeValue(raw)
	if err := r.addCompensation(s, vars, at.Item, value); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.values += len(raw)
	tooLarge := r.values > MaxValues
	r.mu.Unlock()
	if tooLarge {
		return nil, permanent(arcp.CodeResourceExhausted, "the values of the steps have more than %d bytes", MaxValues)
	}
	at.State = Completed
	emit(r.job, *at)
	return value, nil
}
