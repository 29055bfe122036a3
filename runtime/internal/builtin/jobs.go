package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/jobview"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

type jobsGetIn struct {
	JobID arcp.JobID `json:"job_id" jsonschema:"description=the job to describe"`
}

type jobsWaitIn struct {
	JobID     arcp.JobID `json:"job_id" jsonschema:"description=the job to wait for"`
	TimeoutMS int64      `json:"timeout_ms,omitzero" jsonschema:"description=default 30 s,minimum=1,maximum=3600000"`
}

type jobsDeleteIn struct {
	JobID arcp.JobID `json:"job_id" jsonschema:"description=the job to delete"`
}

type jobDeleted struct {
	Deleted bool `json:"deleted"`
}

type jobTools struct {
	engine   *engine.Engine
	sessions *session.Directory
	jobs     *jobview.Reader
	store    store.Store
	vault    *credential.Vault // nil: there are no secret values
	changes  txn.Committer
	audit    audit.Log
	logger   zerolog.Logger
	callers  *callers
}

func (t *jobTools) register(r *registrar) {
	register(r, readTool("jobs.get", "the state and the outcome of a job that the caller may observe"), r.callers.find, t.get)
	register(r, waitTool("jobs.wait", "waits until a job has ended, and returns the result of jobs.get"), r.callers.find, t.wait)
	register(r, writeTool("jobs.delete", "deletes an ended job of the caller, with its events"), r.callers.find, t.delete)
}

func (t *jobTools) get(ctx context.Context, caller *Caller, in jobsGetIn) (v arcp.JobView, err error) {
	j, refused := t.jobs.Get(ctx, &caller.Actor, in.JobID)
	if refused != nil {
		return v, refused
	}
	v = arcp.JobView{JobID: j.ID, Principal: j.Principal, Agent: j.Agent, Status: j.State, Attempt: j.Attempt, CreatedAt: j.CreatedAt.UTC(),
		SessionID: j.Session, TraceID: j.TraceID, LastEventSeq: j.LastSeq, ParentJobID: j.Parent}
	if !j.StartedAt.IsZero() {
		v.StartedAt = j.StartedAt.UTC()
	}
	t.addArguments(&v, &j, caller.Principal)
	v.Lease, v.LeaseConstraints, v.Budget = t.engine.LeaseOf(&j)
	if !j.State.Terminal() {
		v.Waiting = engine.WaitingOf(t.engine, j.ID)
	} else {
		v.EndedAt = j.EndedAt.UTC()
		v.Outcome, err = t.jobs.Outcome(ctx, &j)
	}
	if err == nil {
		err = t.addChildren(ctx, &v)
	}
	return v, err
}

// Bounds of a JobView (SPEC.md §7.3).
const (
	maxViewArguments = 256 << 10 // bytes
	maxViewChildren  = 100
)

// addArguments adds the arguments of a job for a principal, without the values of credentials, or says why they are
// omitted. Arguments of built-in tools can have answers to questions and contents of artifacts.
func (t *jobTools) addArguments(v *arcp.JobView, j *store.Job, viewer string) {
	name, _, _ := strings.Cut(j.Agent, "@")
	v.ArgumentsState = arcp.ArgumentsOmitted
	switch {
	case j.Principal != viewer:
		v.ArgumentsMessage = "only " + j.Principal + ", which submitted the job, is shown them"
		return
	case t.jobs.IsBuiltin(name):
		v.ArgumentsMessage = "those of the runtime's own tools are not shown"
		return
	case len(j.Arguments) > maxViewArguments:
		v.ArgumentsMessage = fmt.Sprintf("they have %d bytes, and at most %d are shown", len(j.Arguments), maxViewArguments)
		return
	}
	v.Arguments, v.ArgumentsState = j.Arguments, ""
	if t.vault == nil {
		return
	}
	if scrubbed := t.vault.Scrub(j.Arguments); !bytes.Equal(scrubbed, j.Arguments) {
		v.Arguments, v.ArgumentsState, v.ArgumentsMessage = scrubbed, arcp.ArgumentsRedacted, "values of credentials are removed"
	}
}

func (t *jobTools) addChildren(ctx context.Context, v *arcp.JobView) error {
	children, more, err := engine.ChildJobs(ctx, t.store, v.JobID, maxViewChildren)
	for i := range children {
		v.Children = append(v.Children, arcp.JobChild{JobID: children[i].ID, Agent: children[i].Agent, Status: children[i].State})
	}
	v.MoreChildren = more
	return err
}

// wait returns the job when it has ended, or at the timeout. The caller must be permitted to see the
// job at the start and at the end.
func (t *jobTools) wait(ctx context.Context, caller *Caller, in jobsWaitIn) (v arcp.JobView, err error) {
	if _, refused := t.jobs.Get(ctx, &caller.Actor, in.JobID); refused != nil {
		return v, refused
	}
	timeout := waitTimer(in.TimeoutMS)
	defer timeout.Stop()
	select {
	case <-t.engine.Done(in.JobID):
	case <-timeout.C:
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
	caller, err = t.callers.find(caller.Job)
	if err != nil {
		return v, err
	}
	return t.get(ctx, caller, jobsGetIn{in.JobID})
}

// delete handles jobs.delete. It waits until the end of the job is durable.
func (t *jobTools) delete(ctx context.Context, caller *Caller, in jobsDeleteIn) (jobDeleted, error) {
	j, refused := t.jobs.Get(ctx, &caller.Actor, in.JobID)
	if refused == nil {
		refused = t.deletable(ctx, caller, &j)
	}
	if refused != nil {
		return jobDeleted{}, refused
	}
	select { // the state may be terminal before the job's last write is durable
	case <-t.engine.Done(j.ID):
	case <-ctx.Done():
		return jobDeleted{}, context.Cause(ctx)
	}
	t.audit.Decision("jobs.delete", caller.Principal, caller.Session, string(in.JobID), nil)
	if err := t.changes.Commit(ctx, store.NewWrite(&store.DeleteJob{Job: j.ID}), func(error) {}); err != nil {
		return jobDeleted{}, txn.Refusal(t.logger, fmt.Errorf("%s: %w", j.ID, err), "delete a job")
	}
	return jobDeleted{true}, nil
}

// receivedByOwner refuses to delete a job that was handed over to a session that has not received its events.
func (t *jobTools) receivedByOwner(ctx context.Context, j *store.Job) *arcp.Error {
	owner, err := t.engine.SessionJobs().Owner(ctx, j)
	s := t.sessions.Find(owner)
	if err == nil && (owner == j.Session || s == nil) {
		return nil
	}
	waits := false
	if err == nil {
		if c := s.Conn(); c != nil {
			c.Sync(ctx)
		}
		err = t.store.SessionEvents(ctx, owner, s.Position(), func(d store.Delivery) bool {
			waits = d.Event.JobID() == j.ID
			return !waits
		})
	}
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrTrimmed): // it has ended, or has lost events anyway
		return nil
	case err != nil:
		t.logger.Error().Err(err).Str("job_id", string(j.ID)).Msg("read the events of the owner of a job")
		return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read").RetryAfter(1)
	case waits:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the session %s, which owns it, has not received its last events", owner)
	}
	return nil
}

// deletable refuses to delete a job of another principal, a live job, a job with a live ancestor,
// and a job with events that its session has not received. A job that may be deleted stays so: it
// gets no ancestor, and a position does not decrease.
func (t *jobTools) deletable(ctx context.Context, caller *Caller, j *store.Job) *arcp.Error {
	switch {
	case j.Principal != caller.Principal:
		return arcp.Errorf(arcp.CodePermissionDenied, "%s is a job of %s", j.ID, j.Principal)
	case !j.State.Terminal():
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the job is %s: cancel it, or wait for its end", j.State)
	}
	ancestor, err := t.engine.LivingAncestor(ctx, j)
	switch {
	case err != nil:
		t.logger.Error().Err(err).Str("job_id", string(j.ID)).Msg("read the ancestors of a job")
		return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read").RetryAfter(1)
	case ancestor != "":
		return arcp.Errorf(arcp.CodeFailedPrecondition, "a job above it goes on, and may ask what came of it or what it has left: %s", ancestor)
	}
	if refused := t.receivedByOwner(ctx, j); refused != nil {
		return refused
	}
	s := t.sessions.Find(j.Session)
	if s == nil {
		return nil
	}
	if c := s.Conn(); c != nil && s.Position() < j.LastSeq {
		c.Sync(ctx)
	}
	switch got := s.Position(); {
	case got >= j.LastSeq:
		return nil
	case s.Acks():
		return arcp.Errorf(arcp.CodeFailedPrecondition,
			"the session that has submitted it has acknowledged its events up to %d: %s has to acknowledge %d first", got, j.Session, j.LastSeq)
	default:
		return arcp.Errorf(arcp.CodeFailedPrecondition,
			"the session that has submitted it has got its events up to %d: %s has to read up to %d first", got, j.Session, j.LastSeq)
	}
}
