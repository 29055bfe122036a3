package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// asking are the questions that handlers answer. Guarded by the Client's lock.
type asking struct {
	open    map[arcp.MessageID]*asked
	waiting []*asked // for one of Limits.Handlers
	running int
	settled []arcp.MessageID // the newest, so that they are not asked again
}

// asked is a question that a handler answers, or will.
type asked struct {
	id     arcp.MessageID
	job    arcp.JobID
	ask    asker
	ctx    context.Context
	cancel context.CancelCauseFunc
}

const (
	// maxWaiting bounds the questions that wait for a handler: more than one person
	// will answer.
	maxWaiting = 1_024
	// maxSettled is for questions that come twice, such as in the history of a job
	// that is followed too.
	maxSettled = 1_024
)

// question has a handler called for a question, and ends it when the question is
// settled otherwise. It reports whether the message was for a handler. Only the
// reader calls it.
func (c *Client) question(env *arcp.Envelope) bool {
	switch {
	case !c.opts.Handlers.any():
		return false
	case env.Type == arcp.HumanInputCancelled:
		return c.withdraw(env)
	case env.Type.Terminal():
		c.withdrawAll(env.JobID)
		return false
	}
	ask, err := c.opts.Handlers.asker(env)
	if err != nil {
		c.opts.Log("the question cannot be read", "type", env.Type, "error", err)
		return false
	}
	return ask != nil && c.pose(&asked{id: env.ID, job: env.JobID, ask: ask})
}

// pose starts a handler, or lets the question wait for one.
func (c *Client) pose(a *asked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.asking
	if q.open[a.id] != nil || slices.Contains(q.settled, a.id) {
		return true
	}
	if q.running >= c.opts.Limits.Handlers && len(q.waiting) >= maxWaiting {
		c.opts.Log("too many questions wait for a handler", "job", a.job)
		return false
	}
	a.ctx, a.cancel = context.WithCancelCause(c.life)
	if q.open == nil {
		q.open = make(map[arcp.MessageID]*asked)
	}
	q.open[a.id] = a
	q.waiting = append(q.waiting, a)
	c.startHandlersLocked()
	return true
}

func (c *Client) startHandlersLocked() {
	q := &c.asking
	for len(q.waiting) > 0 && q.running < c.opts.Limits.Handlers && c.err == nil {
		a := q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		q.running++
		c.group.Go(func() { c.handle(a) })
	}
}

// withdraw ends the handler of a question that is settled.
func (c *Client) withdraw(env *arcp.Envelope) bool {
	p, _ := arcp.DecodePayload[arcp.HumanInputCancelledPayload](env) // that it is settled is enough
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.asking.open[env.CorrelationID]
	if a == nil {
		return false
	}
	code, _ := arcp.ParseCode(string(p.Code))
	c.endLocked(a, &RemoteError{Type: env.Type, Code: code, RawCode: string(p.Code), Message: cmp.Or(p.Message, p.Reason)})
	return true
}

// withdrawAll ends the handlers for the questions of a job that has ended.
func (c *Client) withdrawAll(job arcp.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.asking.open {
		if a.job == job {
			c.endLocked(a, errJobEnded)
		}
	}
}

var errJobEnded = errors.New("the job has ended")

// endLocked ends a handler; one that has not begun does not.
func (c *Client) endLocked(a *asked, cause error) {
	a.cancel(cause)
	if i := slices.Index(c.asking.waiting, a); i >= 0 {
		c.asking.waiting = slices.Delete(c.asking.waiting, i, i+1)
		c.asking.forget(a, true)
	}
}

// forget takes a question out; a settled one is not asked again.
func (q *asking) forget(a *asked, settled bool) {
	delete(q.open, a.id)
	if !settled {
		return
	}
	if len(q.settled) == maxSettled {
		q.settled = slices.Delete(q.settled, 0, 1)
	}
	q.settled = append(q.settled, a.id)
}

// handle is the goroutine of a handler.
func (c *Client) handle(a *asked) {
	err := c.consult(a)
	withdrawn := a.ctx.Err() != nil
	if err != nil && !withdrawn {
		c.opts.Log("a question was not answered", "question", a.id, "job", a.job, "error", err)
	}
	a.cancel(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking.running--
	c.asking.forget(a, withdrawn || settled(err))
	c.startHandlersLocked()
}

// settled reports whether a question need not be asked again: the answer was taken,
// or nobody can give one.
func settled(err error) bool {
	if refusal, ok := errors.AsType[*RemoteError](err); ok {
		return !refusal.Retryable && refusal.Code != arcp.CodeInvalidArgument
	}
	return err == nil
}

// consult asks the handler until its answer is taken, or it has none.
func (c *Client) consult(a *asked) error {
	var refused *RemoteError
	for range MaxTries {
		t, payload, err := a.ask(a.ctx, refused)
		switch {
		case a.ctx.Err() != nil:
			return context.Cause(a.ctx)
		case err != nil:
			return fmt.Errorf("no answer: %w", err)
		}
		if err = c.respond(a.ctx, a.id, t, payload); err == nil {
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
