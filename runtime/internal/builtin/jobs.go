package builtin

import (
	"context"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of jobs.wait: those of approval.wait.
const (
	defaultJobWait = defaultApprovalWait
	maxJobWait     = maxApprovalWait
)

type jobsWaitIn struct {
	JobID     string `json:"job_id" jsonschema:"description=the job to wait for"`
	TimeoutMS int64  `json:"timeout_ms,omitzero" jsonschema:"description=default 30 s,minimum=1,maximum=3600000"`
}

type jobsDeleteIn struct {
	JobID string `json:"job_id" jsonschema:"description=the job to delete"`
}

type jobDeleted struct {
	Deleted bool `json:"deleted"`
}

// jobsWait is jobsGet once the job has ended, or the time is over.
func (b *Tools) jobsWait(ctx context.Context, job tool.Job, in jobsWaitIn) (arcp.JobView, error) {
	who, err := b.caller(job)
	if err != nil {
		return arcp.JobView{}, err
	}
	j, refusal := b.Jobs.Visible(ctx, &who, arcp.JobID(in.JobID))
	if refusal != nil {
		return arcp.JobView{}, refusal
	}
	timeout := defaultJobWait
	if in.TimeoutMS > 0 {
		timeout = min(time.Duration(in.TimeoutMS)*time.Millisecond, maxJobWait)
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	select {
	case <-b.Engine.Over(j.ID):
	case <-end.C:
	case <-ctx.Done():
		return arcp.JobView{}, context.Cause(ctx)
	}
	return b.jobsGet(ctx, job, jobsGetIn{in.JobID})
}

// jobsDelete does what the retention would do later.
func (b *Tools) jobsDelete(ctx context.Context, job tool.Job, in jobsDeleteIn) (jobDeleted, error) {
	who, err := b.caller(job)
	if err != nil {
		return jobDeleted{}, err
	}
	j, refusal := b.Jobs.Visible(ctx, &who, arcp.JobID(in.JobID))
	if refusal == nil {
		refusal = b.deletable(ctx, &who, &j)
	}
	if refusal != nil {
		return jobDeleted{}, refusal
	}
	select { // its end may be known before all is written that belongs to it
	case <-b.Engine.Over(j.ID):
	case <-ctx.Done():
		return jobDeleted{}, context.Cause(ctx)
	}
	b.Audit.Decision("jobs.delete", who.Principal, who.Session, in.JobID, nil)
	if err := b.Changes.Commit(ctx, store.NewWrite(&store.DeleteJob{Job: j.ID}), func(error) {}); err != nil {
		return jobDeleted{}, txn.Refusal(b.Logger, fmt.Errorf("%s: %w", j.ID, err), "delete a job")
	}
	return jobDeleted{true}, nil
}

// deletable refuses to delete a job of another principal, one that has not ended, one with a
// live ancestor, and one whose events its session has not got. Nothing of that can change back
// later: a job that has ended gets no ancestor, and the position of a session does not fall.
func (b *Tools) deletable(ctx context.Context, who *approval.Actor, j *store.Job) *arcp.Error {
	switch {
	case j.Principal != who.Principal:
		return arcp.Errorf(arcp.CodePermissionDenied, "%s is a job of %s", j.ID, j.Principal)
	case !j.State.Terminal():
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the job is %s: cancel it, or wait for its end", j.State)
	}
	above, err := b.Engine.LivingAncestor(ctx, j)
	switch {
	case err != nil:
		b.Logger.Error().Err(err).Str("job_id", string(j.ID)).Msg("read the jobs above one")
		return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read").RetryAfter(1)
	case above != "":
		return arcp.Errorf(arcp.CodeFailedPrecondition, "a job above it goes on, and may ask what came of it or what it has left: %s", above)
	}
	// What its session was given up to its end goes with it, of other jobs, too.
	s := b.Sessions.Find(j.Session)
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
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the session that has submitted it has acknowledged its events up to %d: %s has to acknowledge %d first", got, j.Session, j.LastSeq)
	default:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the session that has submitted it has got its events up to %d: %s has to read up to %d first", got, j.Session, j.LastSeq)
	}
}
