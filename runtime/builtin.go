package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/engine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// jobsGetIn are the arguments of jobs.get.
type jobsGetIn struct {
	JobID string `json:"job_id" jsonschema:"description=the job to describe"`
}

// jobDescription is what jobs.get returns (SPEC.md §7.3).
type jobDescription struct {
	JobID        arcp.JobID     `json:"job_id"`
	Agent        string         `json:"agent"`
	Status       arcp.JobState  `json:"status"`
	Attempt      uint32         `json:"attempt"`
	CreatedAt    time.Time      `json:"created_at"`
	EndedAt      time.Time      `json:"ended_at,omitzero"`
	SessionID    arcp.SessionID `json:"session_id,omitzero"`
	TraceID      string         `json:"trace_id,omitzero"`
	LastEventSeq uint64         `json:"last_event_seq"`
	Outcome      arcp.Raw       `json:"outcome,omitzero"` // the payload of the terminal event
}

// builtins are the names of the runtime's own tools.
var builtins = []string{"jobs.get"}

// registerBuiltins adds the runtime's own tools.
func (r *Runtime) registerBuiltins() error {
	get, err := tool.New(tool.Capability{Name: "jobs.get", Source: tool.SourceBuiltin, SideEffect: tool.SideEffectRead,
		Description: "the row and the outcome of one of the caller's jobs",
		Limits:      tool.Limits{MaxResponseBytes: -1}}, r.jobsGet)
	if err != nil {
		return err
	}
	return r.cfg.Tools.RegisterBuiltin(get)
}

func (r *Runtime) jobsGet(ctx context.Context, job tool.Job, in jobsGetIn) (jobDescription, error) {
	caller, ok := job.(engine.Caller)
	if !ok {
		return jobDescription{}, errors.New("jobs.get needs a caller")
	}
	j, refusal := r.visible(ctx, caller.Principal(), arcp.JobID(in.JobID))
	if refusal != nil {
		return jobDescription{}, refusal
	}
	d := jobDescription{JobID: j.ID, Agent: j.Agent, Status: j.State, Attempt: j.Attempt, CreatedAt: j.CreatedAt.UTC(),
		SessionID: j.Session, TraceID: j.TraceID, LastEventSeq: j.LastSeq}
	if j.State.Terminal() {
		d.EndedAt = j.EndedAt.UTC()
		outcome, err := r.outcome(ctx, &j)
		if err != nil {
			return jobDescription{}, err
		}
		d.Outcome = outcome
	}
	return d, nil
}

// outcome is the payload of a job's terminal event.
func (r *Runtime) outcome(ctx context.Context, j *store.Job) (arcp.Raw, error) {
	var payload arcp.Raw
	var failed error
	err := r.cfg.Store.JobEvents(ctx, j.ID, j.LastJSeq-1, func(e *store.Event) bool {
		env, err := arcp.Decode(store.AppendFrame(nil, store.FrameHead(arcp.Version, j.Session), 0, "", e))
		payload, failed = env.Payload, err
		return false
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("read outcome of %s: %w", j.ID, err)
	}
	return payload, nil
}
