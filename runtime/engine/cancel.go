package engine

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/job"
	"github.com/arcpd/arcpd/runtime/store"
)

// Cancel is a request to end a job.
type Cancel struct {
	Request   arcp.MessageID
	Job       arcp.JobID
	Principal string
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
)

// Cancel asks a job to end; the answer, accepted or refused, precedes the job's
// terminal event.
func (e *Engine) Cancel(ctx context.Context, c Cancel) {
	e.mu.Lock()
	r := e.runs[c.Job]
	e.mu.Unlock()
	switch {
	case r == nil:
		c.Answers.Answer(e.refuseEnded(ctx, &c))
	case r.row.Principal != c.Principal: // not visible: as if it did not exist
		c.Answers.Answer(refused(&c, RefusedUnknown, arcp.CodeJobNotFound, "no such job"))
	case r.strict && r.row.Session != c.Session:
		c.Answers.Answer(refused(&c, RefusedDenied, arcp.CodePermissionDenied, "only the submitting session may cancel this job"))
	case !r.post(c.do):
		c.Answers.Answer(refused(&c, RefusedTerminal, arcp.CodeFailedPrecondition, "the job has ended"))
	}
}

// do is the cancel on the supervisor's side.
func (c *Cancel) do(m *job.Machine, now time.Time) {
	reason := c.Reason
	if reason == "" {
		reason = "cancelled by client"
	}
	if m.Cancel(now, reason, c.Deadline) {
		env := arcp.Frame(arcp.CancelAccepted, arcp.CancelAcceptedPayload{TargetID: string(c.Job)})
		env.CorrelationID = c.Request
		c.Answers.Answer(env)
		return
	}
	c.Answers.Answer(refused(c, RefusedTerminal, arcp.CodeFailedPrecondition, "the job has ended"))
}

func (e *Engine) refuseEnded(ctx context.Context, c *Cancel) arcp.Envelope {
	j, err := e.cfg.Store.Job(ctx, c.Job)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && j.Principal != c.Principal:
		return refused(c, RefusedUnknown, arcp.CodeJobNotFound, "no such job")
	case err != nil:
		e.cfg.Logger.Error().Err(err).Msg("read job")
		return refused(c, "unavailable", arcp.CodeUnavailable, "the store cannot be read")
	}
	return refused(c, RefusedTerminal, arcp.CodeFailedPrecondition, "the job has ended")
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
	for _, r := range e.runs {
		if r.row.Session == id && (all || r.withSession) {
			jobs = append(jobs, r)
		}
	}
	e.mu.Unlock()
	for _, r := range jobs {
		c := &Cancel{Job: r.row.ID, Reason: reason, Deadline: 5 * time.Second, Answers: nobody{}}
		r.post(c.do)
	}
}

// HasJobs reports whether a session has jobs that have not ended.
func (e *Engine) HasJobs(id arcp.SessionID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.perSession[id] > 0
}
