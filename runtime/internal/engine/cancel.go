package engine

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/store"
)

// cancelJob is a request to end a job.
type cancelJob struct {
	Requester
	Job      arcp.JobID
	Reason   string
	Deadline time.Duration // 0: job.DefaultCancelDeadline
}

// internalCancel returns a cancel by the runtime itself. It has no answer.
func internalCancel(id arcp.JobID, reason string) *cancelJob {
	return &cancelJob{Requester: Requester{Answers: discardAnswers{}}, Job: id, Reason: reason}
}

// atOnce is the shortest deadline of a cancel. Zero is job.DefaultCancelDeadline.
const atOnce = time.Nanosecond

// cancelDeadline converts the deadline of a cancel. A deadline of 0 ms is atOnce (SPEC.md §5.7).
func cancelDeadline(ms *uint64) time.Duration {
	if ms == nil {
		return 0
	}
	d := time.Duration(min(*ms, uint64(job.MaxCancelDeadline/time.Millisecond))) * time.Millisecond
	return max(d, atOnce)
}

// Reasons of cancel.refused (§5.7).
const (
	RefusedTerminal = "already_terminal"
	RefusedUnknown  = "not_found"
	RefusedDenied   = "permission_denied"

	refusedUnavailable = "unavailable"
)

// Cancel cancels the job target_id. The answer, accepted or refused, precedes the terminal event of
// the job.
func (e *Engine) Cancel(from Requester, p *arcp.CancelPayload) {
	c := cancelJob{Requester: from, Job: arcp.JobID(p.TargetID), Reason: p.Reason, Deadline: cancelDeadline(p.DeadlineMS)}
	r := e.run(c.Job)
	switch {
	case r == nil:
		c.Answers.AnswerBeforeEvents(eventlog.DeferredAnswer(func(ctx context.Context) arcp.Envelope { return c.refusalOfEnded(ctx, e) }))
	case r.row.Principal != c.Principal && c.Admin:
		e.cfg.audit().cancelled(r, &c)
		if !r.post(&c) {
			c.rejected(e, r.stopped())
		}
	case r.row.Principal != c.Principal: // the job is not visible to the principal
		c.refuse(RefusedUnknown, errNoSuchJob())
	case r.strictCancel && r.owner() != c.Session:
		e.cfg.audit().denied("cancel", c.Principal, c.Session, string(c.Job), strictCancel)
		c.refuse(RefusedDenied, arcp.Errorf(arcp.CodePermissionDenied, "only the session that owns the job may cancel it"))
	case !r.post(&c):
		c.rejected(e, r.stopped())
	}
}

// rejected refuses a cancel of a job that has ended.
func (c *cancelJob) rejected(_ *Engine, stopped bool) {
	if stopped {
		c.refuse(refusedUnavailable, errShuttingDown())
		return
	}
	c.refuse(RefusedTerminal, errHasEnded())
}

// apply cancels the job. The answer follows when the cancel is durable, so that a restart does not
// resume the job.
func (c *cancelJob) apply(s *supervisor, now time.Time) {
	reason := c.Reason
	if reason == "" {
		reason = "cancelled by client"
	}
	if !s.machine.Cancel(now, reason, c.Deadline) {
		c.rejected(s.e, false)
		return
	}
	s.write.addCommands(c)
	if s.progress.Cancel == nil {
		s.progress.Cancel, s.progress.unsaved = &reason, true
	}
}

func (c *cancelJob) committed(jw *jobWriter, err error) {
	switch {
	case err == nil:
		c.Answers.AnswerBeforeEvents(answerTo(c.Request, arcp.CancelAccepted, arcp.CancelAcceptedPayload{TargetID: string(c.Job)}))
	case jobEnded(err):
		c.rejected(jw.run.e, false)
	default:
		c.refuse(refusedUnavailable, errStore())
	}
}

// jobEnded reports whether a write was refused because its job has ended.
func jobEnded(err error) bool {
	return errors.Is(err, store.ErrTerminal) || errors.Is(err, store.ErrNotFound)
}

// refusalOfEnded returns the answer to a cancel of a job that is not in the jobTable.
func (c *cancelJob) refusalOfEnded(ctx context.Context, e *Engine) arcp.Envelope {
	_, err := endedJob(ctx, &e.cfg, c.Job, c.Principal, c.Admin)
	switch {
	case err == nil:
		return c.refusal(RefusedTerminal, errHasEnded())
	case err.Code == arcp.CodeJobNotFound:
		return c.refusal(RefusedUnknown, err)
	}
	return c.refusal(refusedUnavailable, err)
}

func (c *cancelJob) refuse(reason string, err *arcp.Error) {
	c.Answers.AnswerBeforeEvents(c.refusal(reason, err))
}

func (c *cancelJob) refusal(reason string, err *arcp.Error) arcp.Envelope {
	return cancelRefusal(c.Request, string(c.Job), reason, err)
}

func cancelRefusal(request arcp.MessageID, target, reason string, err *arcp.Error) arcp.Envelope {
	return answerTo(request, arcp.CancelRefused, arcp.CancelRefusedPayload{
		TargetID: target,
		Reason:   reason,
		Code:     err.Code,
		Message:  err.Message,
	})
}

// endedJob reads the row of a job that is not in the jobTable.
func endedJob(ctx context.Context, cfg *Config, id arcp.JobID, principal string, admin bool) (store.Job, *arcp.Error) {
	j, err := cfg.Store.Job(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && j.Principal != principal && !admin:
		return j, errNoSuchJob()
	case err != nil:
		cfg.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read job")
		return j, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read")
	}
	return j, nil
}

// discardAnswers drops the answers to commands of the runtime itself.
type discardAnswers struct{}

func (discardAnswers) AnswerAfterEvents(any) bool  { return false }
func (discardAnswers) AnswerBeforeEvents(any) bool { return false }
