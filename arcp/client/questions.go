package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// questions is the state of the questions that Handlers answer.
type questions struct {
	c *Client

	mu      sync.Mutex
	open    map[arcp.MessageID]*question
	waiting []*question // wait for a free handler (Limits.Handlers)
	running int
	closed  []arcp.MessageID // the newest closed questions, which are not handled again
}

// question is a question that a handler answers or will answer.
type question struct {
	id     arcp.MessageID
	job    arcp.JobID
	answer answerFunc
	ctx    context.Context
	cancel context.CancelCauseFunc
}

const (
	// maxWaiting bounds the questions that wait for a handler, far above the rate at which
	// people answer.
	maxWaiting = 1_024
	// maxClosed bounds the closed questions. They recognise a repeated question, for
	// example in the history of a followed job.
	maxClosed = 1_024
)

// receive passes a question to its handler, and ends the handler of a closed question. It reports
// whether the message was for a handler. Only the reader calls it.
func (q *questions) receive(env *arcp.Envelope) bool {
	h := &q.c.opts.Handlers
	switch {
	case !h.any():
		return false
	case env.Type == arcp.HumanInputCancelled:
		return q.cancelled(env)
	case env.Type.Terminal():
		q.jobEnded(env.JobID)
		return false
	}
	answer, err := h.answerFunc(env)
	if err != nil {
		q.c.opts.Log("decode question", "type", env.Type, "error", err)
		return false
	}
	return answer != nil && q.add(&question{id: env.ID, job: env.JobID, answer: answer})
}

// add starts a handler or queues the question.
func (q *questions) add(a *question) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open[a.id] != nil || slices.Contains(q.closed, a.id) {
		return true
	}
	if q.running >= q.c.opts.Limits.Handlers && len(q.waiting) >= maxWaiting {
		q.c.opts.Log("too many questions wait for a handler", "job", a.job)
		return false
	}
	a.ctx, a.cancel = context.WithCancelCause(q.c.life)
	if q.open == nil {
		q.open = make(map[arcp.MessageID]*question)
	}
	q.open[a.id] = a
	q.waiting = append(q.waiting, a)
	q.startLocked()
	return true
}

// startLocked starts handlers for waiting questions. Only goroutines of Client.group call it.
func (q *questions) startLocked() {
	for len(q.waiting) > 0 && q.running < q.c.opts.Limits.Handlers && q.c.life.Err() == nil {
		a := q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		q.running++
		q.c.group.Go(func() { q.handle(a) })
	}
}

// cancelled ends the handler of a question that expired, was withdrawn or was answered by others.
func (q *questions) cancelled(env *arcp.Envelope) bool {
	p, _ := arcp.DecodePayload[arcp.HumanInputCancelledPayload](env) // an invalid payload has no reason
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.open[env.CorrelationID]
	if a == nil {
		return false
	}
	code, _ := arcp.ParseCode(string(p.Code))
	q.cancelLocked(a, &RemoteError{Type: env.Type, Code: code, RawCode: string(p.Code), Message: cmp.Or(p.Message, p.Reason)})
	return true
}

// jobEnded ends the handlers of the questions of a job.
func (q *questions) jobEnded(job arcp.JobID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.open {
		if a.job == job {
			q.cancelLocked(a, errJobEnded)
		}
	}
}

var errJobEnded = errors.New("the job has ended")

// cancelLocked ends a handler. A waiting question is closed.
func (q *questions) cancelLocked(a *question, cause error) {
	a.cancel(cause)
	if i := slices.Index(q.waiting, a); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.removeLocked(a, true)
	}
}

// removeLocked removes a question. A closed question is not handled again.
func (q *questions) removeLocked(a *question, closed bool) {
	delete(q.open, a.id)
	if !closed {
		return
	}
	if len(q.closed) == maxClosed {
		q.closed = slices.Delete(q.closed, 0, 1)
	}
	q.closed = append(q.closed, a.id)
}

// handle runs on the goroutine of a handler.
func (q *questions) handle(a *question) {
	err := q.answerOne(a)
	cancelled := a.ctx.Err() != nil
	if err != nil && !cancelled {
		q.c.opts.Log("question not answered", "question", a.id, "job", a.job, "error", err)
	}
	a.cancel(nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	q.removeLocked(a, cancelled || isFinal(err))
	q.startLocked()
}

// isFinal reports whether a question is closed: its answer was accepted, or no answer can be
// accepted any more.
func isFinal(err error) bool {
	if refusal, ok := errors.AsType[*RemoteError](err); ok {
		return !refusal.Retryable && refusal.Code != arcp.CodeInvalidArgument
	}
	return err == nil
}

// answerOne calls the handler until its answer is accepted or it returns an error.
func (q *questions) answerOne(a *question) error {
	var refused *RemoteError
	for range MaxHandlerCalls {
		t, payload, err := a.answer(a.ctx, refused)
		switch {
		case a.ctx.Err() != nil:
			return context.Cause(a.ctx)
		case err != nil:
			return fmt.Errorf("no answer: %w", err)
		}
		if err = q.c.respond(a.ctx, a.id, t, payload); err == nil {
			return nil
		}
		invalid, ok := errors.AsType[*RemoteError](err)
		if !ok || invalid.Type != arcp.Nack || invalid.Code != arcp.CodeInvalidArgument {
			return err
		}
		refused = invalid
	}
	return refused
}
