package engine

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Cancel is a request to end a job.
type Cancel struct {
	Request   arcp.MessageID
	Job       arcp.JobID
	Principal string
	Admin     bool // may end jobs of other principals
	Session   arcp.SessionID
	Reason    string
	Deadline  time.Duration
	Answers   Answerer
}

// Reasons of cancel.refused (§5.7).
const (
	RefusedTerminal = "already_terminal"
	RefusedUnknown  = "not_found"
	RefusedDenied   = "permission_denied"

	refusedUnavailable = "unavailable"
)

// Cancel asks a job to end; the answer, accepted or refused, precedes the job's
// terminal event.
func (e *Engine) Cancel(ctx context.Context, c Cancel) {
	r := e.run(c.Job)
	switch {
	case r == nil:
		c.Answers.Answer(e.refuseEnded(ctx, &c))
	case r.row.Principal != c.Principal && c.Admin:
		e.auditCancel(r, &c)
		if !r.post(&c) {
			c.tooLate(e, r.isStopped())
		}
	case r.row.Principal != c.Principal: // not visible: as if it did not exist
		c.Answers.Answer(refused(&c, RefusedUnknown, arcp.CodeJobNotFound, "no such job"))
	case r.strict && r.row.Session != c.Session:
		e.auditDenied("cancel", c.Principal, c.Session, string(c.Job), strictly)
		c.Answers.Answer(refused(&c, RefusedDenied, arcp.CodePermissionDenied, "only the submitting session may cancel this job"))
	case !r.post(&c):
		c.tooLate(e, r.isStopped())
	}
}

// auditCancel records that an admin ends a job of another principal.
func (e *Engine) auditCancel(r *run, c *Cancel) {
	e.audit().Event("cancel", c.Principal, c.Session).Str("job_id", string(c.Job)).Str("owner", r.row.Principal).Str("decision", "allowed").Msg("audit")
}

// tooLate refuses a cancel for which nothing can be done any more.
func (c *Cancel) tooLate(_ *Engine, stopped bool) {
	if stopped {
		c.Answers.Answer(refused(c, refusedUnavailable, arcp.CodeUnavailable, "the runtime is shutting down"))
		return
	}
	c.Answers.Answer(refused(c, RefusedTerminal, arcp.CodeFailedPrecondition, "the job has ended"))
}

func (r *run) isStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped && !r.ended
}

// meet cancels the job. That is answered when it is durable that the job ends:
// one that was said to be cancelled must not come back after a restart.
func (c *Cancel) meet(s *supervisor, now time.Time) {
	reason := c.Reason
	if reason == "" {
		reason = "cancelled by client"
	}
	if !s.m.Cancel(now, reason, c.Deadline) {
		c.tooLate(s.e, false)
		return
	}
	s.asked = append(s.asked, c)
	if s.progress.Cancel == nil {
		s.progress.Cancel, s.unsaved = &reason, true
	}
}

func (c *Cancel) settled(s *supervisor, err error) {
	switch {
	case err == nil:
		env := arcp.Frame(arcp.CancelAccepted, arcp.CancelAcceptedPayload{TargetID: string(c.Job)})
		env.CorrelationID = c.Request
		c.Answers.Answer(env)
	case gone(err):
		c.tooLate(s.e, false)
	default:
		c.Answers.Answer(refused(c, refusedUnavailable, arcp.CodeUnavailable, "the store cannot be written"))
	}
}

// gone reports whether a job's write was refused because the job has ended.
func gone(err error) bool {
	return errors.Is(err, store.ErrTerminal) || errors.Is(err, store.ErrNotFound)
}

func (e *Engine) refuseEnded(ctx context.Context, c *Cancel) arcp.Envelope {
	_, err := e.ended(ctx, c.Job, c.Principal, c.Admin)
	switch {
	case err == nil:
		return refused(c, RefusedTerminal, arcp.CodeFailedPrecondition, "the job has ended")
	case err.Code == arcp.CodeJobNotFound:
		return refused(c, RefusedUnknown, err.Code, err.Message)
	}
	return refused(c, refusedUnavailable, err.Code, err.Message)
}

// ended reads the row of a job that is not on the books.
func (e *Engine) ended(ctx context.Context, id arcp.JobID, principal string, admin bool) (store.Job, *arcp.Error) {
	j, err := e.cfg.Store.Job(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && j.Principal != principal && !admin:
		return j, arcp.Errorf(arcp.CodeJobNotFound, "no such job")
	case err != nil:
		e.cfg.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read job")
		return j, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read")
	}
	return j, nil
}

func refused(c *Cancel, reason string, code arcp.Code, message string) arcp.Envelope {
	env := arcp.Frame(arcp.CancelRefused, arcp.CancelRefusedPayload{TargetID: string(c.Job), Reason: reason, Code: code, Message: message})
	env.CorrelationID = c.Request
	return env
}

// nobody takes the answers of cancels that the runtime itself asks for.
type nobody struct{}

func (nobody) Post(any) bool   { return false }
func (nobody) Answer(any) bool { return false }

// CancelSession cancels the jobs a session has submitted: all of them, or those
// that were to end with their session's connection.
func (e *Engine) CancelSession(id arcp.SessionID, reason string, all bool) {
	e.mu.Lock()
	var jobs []*run
	for r := e.perSession[id].first; r != nil; r = r.next {
		if all || r.withSession {
			jobs = append(jobs, r)
		}
	}
	e.mu.Unlock()
	for _, r := range jobs {
		r.post(&Cancel{Job: r.row.ID, Reason: reason, Answers: nobody{}})
	}
}

// HasJobs reports whether a session has jobs that have not ended.
func (e *Engine) HasJobs(id arcp.SessionID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.perSession[id].n > 0
}

// Leashed returns the sessions with jobs that are to end with their connection.
// After a restart none of them has one until it is resumed.
func (e *Engine) Leashed() []arcp.SessionID {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []arcp.SessionID
	for id, jobs := range e.perSession {
		for r := jobs.first; r != nil; r = r.next {
			if r.withSession {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}
