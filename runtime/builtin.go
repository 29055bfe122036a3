package runtime

import (
	"context"
	"errors"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/tool"
)

// jobsGetIn are the arguments of jobs.get.
type jobsGetIn struct {
	JobID string `json:"job_id" jsonschema:"description=the job to describe"`
}

// builtins are the names of the runtime's own tools.
var builtins = []string{"jobs.get", "jobs.wait", "jobs.delete", "sessions.list", "sessions.evict", "jobs.credentials", "jobs.forget_credentials", "jobs.rotate_credentials",
	"approval.request", "approval.list", "approval.get", "approval.resolve", "approval.cancel", "approval.wait",
	"approval.questions", "approval.answer", "approval.gate", "approval.elevate",
	"registry.register", "registry.update_status", "registry.get", "registry.list", "registry.deregister",
	"registry.lease", "registry.touch", "registry.release", "registry.leases", "registry.reap",
	"tools.list", "tools.describe", "tools.policy", "tools.calls", "tools.overlay", "tools.refresh",
	"host.register_agent", "host.unregister_agent", "host.set_status", "host.agents", "host.events", "host.subscribe"}

// registerBuiltins adds the runtime's own tools.
func (r *Runtime) registerBuiltins() error {
	return errors.Join(
		r.registerApprovals(),
		r.registerCredentials(),
		r.registerRegistry(),
		r.registerTools(),
		r.registerHost(),
		builtin(r, "jobs.get", tool.SideEffectRead, "the row and the outcome of a job of the caller, or of somebody whom it may observe", r.jobsGet),
		builtinFor(r, "jobs.wait", "waits until a job has ended; then it is as jobs.get", r.jobsWait),
		builtin(r, "jobs.delete", tool.SideEffectWrite, "deletes a job of the caller that has ended, with its events", r.jobsDelete),
		builtin(r, "sessions.list", tool.SideEffectRead, "the sessions of the caller and of whom it may observe, the oldest first; an admin sees everybody's", r.sessionsList),
		builtin(r, "sessions.evict", tool.SideEffectWrite, "takes the connection from one of the caller's sessions, or ends it; an admin may do so to anybody's", r.sessionsEvict),
	)
}

func builtin[In, Out any](r *Runtime, name string, effect tool.SideEffect, description string, run func(context.Context, tool.Job, In) (Out, error)) error {
	return builtinLike(r, tool.Capability{Name: name, SideEffect: effect, Description: description}, run)
}

// builtinFor adds a tool that may take its time, and that a restart has run again.
func builtinFor[In, Out any](r *Runtime, name, description string, run func(context.Context, tool.Job, In) (Out, error)) error {
	return builtinLike(r, tool.Capability{Name: name, SideEffect: tool.SideEffectExternal, Description: description,
		Recovery: tool.RecoveryRerun, Limits: tool.Limits{Timeout: -1, Concurrency: -1}}, run)
}

func builtinLike[In, Out any](r *Runtime, c tool.Capability, run func(context.Context, tool.Job, In) (Out, error)) error {
	c.Source, c.Limits.MaxResponseBytes = tool.SourceBuiltin, -1
	t, err := tool.New(c, func(ctx context.Context, job tool.Job, in In) (Out, error) {
		out, err := run(ctx, job, in)
		r.auditDenial(c.Name, job, err)
		return out, err
	})
	if err != nil {
		return err
	}
	return r.cfg.Tools.RegisterBuiltin(t)
}

// auditDenial records that a caller may not do what it has asked a built-in tool for.
func (r *Runtime) auditDenial(name string, job tool.Job, err error) {
	e, ok := errors.AsType[*arcp.Error](err)
	c, called := job.(engine.Caller)
	if ok && called && e.Code == arcp.CodePermissionDenied {
		r.audit.Event(name, c.Principal(), c.Session()).Str("job_id", string(job.ID())).Str("decision", "denied").Str("reason", e.Message).Msg("audit")
	}
}

func (r *Runtime) jobsGet(ctx context.Context, job tool.Job, in jobsGetIn) (arcp.JobView, error) {
	who, err := r.caller(job)
	if err != nil {
		return arcp.JobView{}, err
	}
	j, refusal := r.jobs.Visible(ctx, &who, arcp.JobID(in.JobID))
	if refusal != nil {
		return arcp.JobView{}, refusal
	}
	d := arcp.JobView{JobID: j.ID, Agent: j.Agent, Status: j.State, Attempt: j.Attempt, CreatedAt: j.CreatedAt.UTC(),
		SessionID: j.Session, TraceID: j.TraceID, LastEventSeq: j.LastSeq}
	if j.State.Terminal() {
		d.EndedAt = j.EndedAt.UTC()
		outcome, err := r.jobs.Outcome(ctx, &j)
		if err != nil {
			return arcp.JobView{}, err
		}
		d.Outcome = outcome
	}
	return d, nil
}
