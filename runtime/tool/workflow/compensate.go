package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// compensation is the compensation of a completed call.
type compensation struct {
	Step      string   `json:"step"`
	Item      *int     `json:"item,omitzero"`
	Tool      string   `json:"tool"`
	Arguments arcp.Raw `json:"arguments"`
	Lease     arcp.Raw `json:"lease,omitzero"`
}

// failedWorkflow is the data of the checkpoint of a workflow that has failed.
type failedWorkflow struct {
	Job           arcp.JobID     `json:"job_id"`
	Code          arcp.Code      `json:"code"`
	Message       string         `json:"message"`
	Details       arcp.Raw       `json:"details,omitzero"`
	Compensations []compensation `json:"compensations"` // in the order in which they run
}

// Bounds of the error in the checkpoint.
const (
	maxSavedMessage = 4 << 10
	maxSavedDetails = 16 << 10
)

// addCompensation records the compensation of a completed call.
func (r *run) addCompensation(s *step, vars map[string]any, item *int, value any) error {
	if s.onFailure == nil {
		return nil
	}
	own := maps.Clone(vars)
	own["value"] = value
	c, err := s.onFailure.render(r.ctx, "on_failure: ", own)
	if err != nil {
		return err
	}
	undo := compensation{Step: s.name, Item: item, Tool: c.Tool, Arguments: c.Arguments, Lease: c.Lease}
	n := undo.size()
	if n > MaxCompensation {
		return permanent(arcp.CodeResourceExhausted, "on_failure: a compensation of %d bytes; at most %d", n, MaxCompensation)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undo, r.undoBytes = append(r.undo, undo), r.undoBytes+n // the call has completed
	if r.undoBytes > MaxCompensations {
		return permanent(arcp.CodeResourceExhausted, "all compensations have more than %d bytes", MaxCompensations)
	}
	return nil
}

// size bounds the bytes of a compensation in the checkpoint.
func (c *compensation) size() int {
	const members = 100 // their names, and the item
	return members + len(c.Step) + len(c.Tool) + len(c.Arguments) + len(c.Lease)
}

// compensate saves the compensations of a workflow that has failed, runs them, and returns the error of
// the workflow. undo is in the order of completion.
func (g *graph) compensate(ctx context.Context, job tool.Job, cause error, undo []compensation) error {
	e, _ := arcp.AsError(cause)
	if len(undo) == 0 {
		return e
	}
	slices.Reverse(undo)
	f := failedWorkflow{Job: job.ID(), Code: e.Code, Message: clip.Text(e.Message, maxSavedMessage), Details: e.Details, Compensations: undo}
	if len(f.Details) > maxSavedDetails {
		f.Details = nil
	}
	if err := job.Checkpoint("compensate", f); err != nil {
		if ctx.Err() != nil || errors.Is(err, tool.ErrPaused) {
			return err
		}
		refusal, _ := arcp.AsError(err)
		failure := f.failure()
		failure.Message += fmt.Sprintf("; no compensation has run: they could not be saved: %s: %s", refusal.Code, clip.Text(refusal.Message, maxSavedMessage))
		return failure
	}
	return f.run(ctx, job)
}

// resumeCompensation continues the compensations of a workflow that has failed in an earlier attempt.
func (g *graph) resumeCompensation(ctx context.Context, job tool.Job, saved arcp.Raw) error {
	var f failedWorkflow
	if err := arcp.Unmarshal(saved, &f); err != nil {
		return arcp.Errorf(arcp.CodeInternal, "the checkpoint cannot be read")
	}
	if f.Job != job.ID() {
		return arcp.Errorf(arcp.CodeFailedPrecondition, "a new job cannot continue a workflow that has failed: start the workflow again")
	}
	return f.run(ctx, job)
}

// failure returns the error of the workflow. It is not retryable: the completed calls are undone, or to be
// undone by hand.
func (f *failedWorkflow) failure() *arcp.Error {
	return &arcp.Error{Code: f.Code, Message: f.Message, Details: f.Details}
}

// maxNotes bounds the text about failed compensations in the message of the error.
const maxNotes = 8 << 10

// run runs the compensations one after the other. A compensation that fails does not stop the others.
func (f *failedWorkflow) run(ctx context.Context, job tool.Job) error {
	notes := ""
	for _, c := range f.Compensations {
		at := StepEvent{Step: c.Step, Item: c.Item}
		_, err := job.Call(ctx, tool.Call{Tool: c.Tool, Arguments: c.Arguments, Lease: c.Lease, Key: at.key() + "/on_failure",
			OnChild: func(child arcp.JobID) {
				at.State, at.Child = Compensating, child
				emit(job, at)
			}})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at.State = Compensated
		if err != nil {
			e, _ := arcp.AsError(err)
			at.State, at.Code = CompensationFailed, e.Code
			notes += fmt.Sprintf("; the compensation of %s failed: %s: %s", at.key(), e.Code, e.Message)
			notes = clip.Text(notes, maxNotes)
		}
		emit(job, at)
	}
	failure := f.failure()
	failure.Message += notes
	return failure
}
