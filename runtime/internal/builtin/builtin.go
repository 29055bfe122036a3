// Package builtin has the runtime's own tools: jobs.*, sessions.*, approval.*, registry.*,
// tools.* and host.* (SPEC.md §7). Each file has one group.
package builtin

import (
	"context"
	"errors"
	"slices"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/jobs"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/resources"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// jobsGetIn are the arguments of jobs.get.
type jobsGetIn struct {
	JobID string `json:"job_id" jsonschema:"description=the job to describe"`
}

// Tools are the runtime's own tools: what they work on. They are registered once, before
// anything is served; after that the fields do not change.
type Tools struct {
	Store     store.Store
	Registry  *tool.Registry
	Engine    *engine.Engine
	Sessions  *session.Directory
	Questions *questions.Broker
	Agents    *agents.Service
	Resources *resources.Service
	Jobs      *jobs.Reader
	Vault     *credential.Vault // nil: there are no provisioners
	Auth      *auth.Set
	Changes   txn.Committer
	Cursors   *paging.Cursors
	Metrics   *metrics.Metrics
	Audit     audit.Log
	Logger    zerolog.Logger

	// Refresh, if set, makes the sources of Registry list their tools anew. It is called by
	// one goroutine at a time.
	Refresh func(ctx context.Context) error

	refresh refreshTurns
}

// names are the names of the runtime's own tools.
var names = []string{"jobs.get", "jobs.wait", "jobs.delete", "sessions.list", "sessions.evict", "jobs.credentials", "jobs.forget_credentials", "jobs.rotate_credentials",
	"approval.request", "approval.list", "approval.get", "approval.resolve", "approval.cancel", "approval.wait",
	"approval.questions", "approval.answer", "approval.gate", "approval.elevate",
	"registry.register", "registry.update_status", "registry.get", "registry.list", "registry.deregister",
	"registry.lease", "registry.touch", "registry.release", "registry.leases", "registry.reap",
	"tools.list", "tools.describe", "tools.policy", "tools.calls", "tools.overlay", "tools.refresh",
	"host.register_agent", "host.unregister_agent", "host.set_status", "host.agents", "host.events", "host.subscribe"}

// Is reports whether a name is that of one of the runtime's own tools.
func Is(name string) bool { return slices.Contains(names, name) }

// Register adds the tools to the registry.
func (b *Tools) Register() error {
	b.refresh.turn = make(chan struct{}, 1)
	return errors.Join(
		b.registerApprovals(),
		b.registerCredentials(),
		b.registerRegistry(),
		b.registerTools(),
		b.registerHost(),
		builtin(b, "jobs.get", tool.SideEffectRead, "the row and the outcome of a job of the caller, or of somebody whom it may observe", b.jobsGet),
		builtinFor(b, "jobs.wait", "waits until a job has ended; then it is as jobs.get", b.jobsWait),
		builtin(b, "jobs.delete", tool.SideEffectWrite, "deletes a job of the caller that has ended, with its events", b.jobsDelete),
		builtin(b, "sessions.list", tool.SideEffectRead, "the sessions of the caller and of whom it may observe, the oldest first; an admin sees everybody's", b.sessionsList),
		builtin(b, "sessions.evict", tool.SideEffectWrite, "takes the connection from one of the caller's sessions, or ends it; an admin may do so to anybody's", b.sessionsEvict),
	)
}

func builtin[In, Out any](b *Tools, name string, effect tool.SideEffect, description string, run func(context.Context, tool.Job, In) (Out, error)) error {
	return builtinLike(b, tool.Capability{Name: name, SideEffect: effect, Description: description}, run)
}

// builtinFor adds a tool that may take its time, and that a restart has run again.
func builtinFor[In, Out any](b *Tools, name, description string, run func(context.Context, tool.Job, In) (Out, error)) error {
	return builtinLike(b, tool.Capability{Name: name, SideEffect: tool.SideEffectExternal, Description: description,
		Recovery: tool.RecoveryRerun, Limits: tool.Limits{Timeout: -1, Concurrency: -1}}, run)
}

func builtinLike[In, Out any](b *Tools, c tool.Capability, run func(context.Context, tool.Job, In) (Out, error)) error {
	c.Source, c.Limits.MaxResponseBytes = tool.SourceBuiltin, -1
	t, err := tool.New(c, func(ctx context.Context, job tool.Job, in In) (Out, error) {
		out, err := run(ctx, job, in)
		b.auditDenial(c.Name, job, err)
		return out, err
	})
	if err != nil {
		return err
	}
	return b.Registry.RegisterBuiltin(t)
}

// auditDenial records that a caller may not do what it has asked a built-in tool for.
func (b *Tools) auditDenial(name string, job tool.Job, err error) {
	e, ok := errors.AsType[*arcp.Error](err)
	c, called := job.Host().(engine.Caller)
	if ok && called && e.Code == arcp.CodePermissionDenied {
		b.Audit.Event(name, c.Principal(), c.Session()).Str("job_id", string(job.ID())).Str("decision", "denied").Str("reason", e.Message).Msg("audit")
	}
}

func (b *Tools) jobsGet(ctx context.Context, job tool.Job, in jobsGetIn) (arcp.JobView, error) {
	who, err := b.caller(job)
	if err != nil {
		return arcp.JobView{}, err
	}
	j, refusal := b.Jobs.Visible(ctx, &who, arcp.JobID(in.JobID))
	if refusal != nil {
		return arcp.JobView{}, refusal
	}
	d := arcp.JobView{JobID: j.ID, Agent: j.Agent, Status: j.State, Attempt: j.Attempt, CreatedAt: j.CreatedAt.UTC(),
		SessionID: j.Session, TraceID: j.TraceID, LastEventSeq: j.LastSeq}
	if j.State.Terminal() {
		d.EndedAt = j.EndedAt.UTC()
		outcome, err := b.Jobs.Outcome(ctx, &j)
		if err != nil {
			return arcp.JobView{}, err
		}
		d.Outcome = outcome
	}
	return d, nil
}
