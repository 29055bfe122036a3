package engine

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of the checkpoints that clients wait for (SPEC.md §5.6).
const (
	maxCheckpointRequests    = job.MaxCheckpoints // of an attempt
	checkpointRequestExpires = 30 * time.Second
)

// checkpointRequest is a request of a client that the tool saves a checkpoint.
type checkpointRequest struct {
	label     string
	expiresAt time.Time // the request is forgotten then
}

// checkpointRequests are the requests for checkpoints of an attempt, in their order. Each
// one gets a checkpoint of its own. They are guarded by run.mu. c is readable while list
// is not empty.
type checkpointRequests struct {
	list    []checkpointRequest
	wantedc chan struct{} // buffered 1; nil: the tool does not look
}

// add reports whether there was room.
func (w *checkpointRequests) add(label string, now time.Time) bool {
	w.expire(now)
	if len(w.list) >= maxCheckpointRequests {
		return false
	}
	w.list = append(w.list, checkpointRequest{label, now.Add(checkpointRequestExpires)})
	w.signal()
	return true
}

// next removes the first request that has not expired.
func (w *checkpointRequests) next() (first checkpointRequest, ok bool) {
	if len(w.list) == 0 { // as nearly always
		return checkpointRequest{}, false
	}
	if w.expire(time.Now()); len(w.list) == 0 {
		return checkpointRequest{}, false
	}
	first, w.list = w.list[0], w.list[1:]
	w.signal()
	return first, true
}

func (w *checkpointRequests) expire(now time.Time) {
	w.list = slices.DeleteFunc(w.list, func(x checkpointRequest) bool { return !now.Before(x.expiresAt) })
	w.signal()
}

// signal makes the channel readable if there is a request.
func (w *checkpointRequests) signal() {
	if len(w.list) == 0 {
		select {
		case <-w.wantedc:
		default:
		}
		return
	}
	select {
	case w.wantedc <- struct{}{}:
	default:
	}
}

func (j toolJob) CheckpointWanted() <-chan struct{} {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if j.s.requests.wantedc == nil {
		j.s.requests.wantedc = make(chan struct{}, 1)
		j.s.requests.signal()
	}
	return j.s.requests.wantedc
}

// Create is a request for a checkpoint of a running job.
type Create struct {
	Requester
	Job   arcp.JobID
	Label string // of the checkpoint; empty: as its tool says
}

// CreateCheckpoint asks a running job for a checkpoint: its next one has the
// label, and comes behind the answer. An attempt that makes none in time, or
// ends before, is not asked again.
func (e *Engine) CreateCheckpoint(from Requester, id arcp.JobID, p *arcp.CheckpointCreatePayload) {
	c := Create{from, id, p.Label}
	r := e.run(c.Job)
	switch {
	case r == nil:
		c.refuseEnded(e, c.Job)
	case r.row.Principal != c.Principal:
		c.refuse(errNoSuchJob())
	case r.tool.Recovery != tool.RecoveryCheckpoint:
		c.refuse(errNoCheckpoints(r.tool))
	case !r.supervised():
		c.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "no attempt of the job runs now"))
	case !r.post(&c):
		c.rejected(e, r.stopped())
	}
}

// refuseEnded refuses a request about a job that is not in the jobTable.
func (from Requester) refuseEnded(e *Engine, id arcp.JobID) {
	from.Answers.AnswerBeforeEvents(eventlog.DeferredAnswer(func(ctx context.Context) arcp.Envelope {
		if _, err := endedJob(ctx, e, id, from.Principal, false); err != nil {
			return answerTo(from.Request, arcp.Nack, err)
		}
		return answerTo(from.Request, arcp.Nack, errHasEnded())
	}))
}

func errHasEnded() *arcp.Error { return arcp.Errorf(arcp.CodeFailedPrecondition, "the job has ended") }

func errNoSuchJob() *arcp.Error { return arcp.Errorf(arcp.CodeJobNotFound, "no such job") }

func errNoCheckpoints(t *tool.Tool) *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, "%s does not go on from checkpoints", t.Name)
}

// apply passes the request to the tool. Only the checkpoint itself becomes durable.
func (c *Create) apply(s *supervisor, now time.Time) {
	switch state := s.m.State(); {
	case state.Terminal():
		c.refuse(errHasEnded())
	case s.postpone(c):
	case state != arcp.StateRunning && state != arcp.StateBlocked:
		c.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "no attempt of the job runs now: it is %s", state))
	case s.progress.Cancel != nil:
		c.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "the job is being cancelled"))
	case !c.add(s, now):
		c.refuse(arcp.Errorf(arcp.CodeResourceExhausted, "%d checkpoints of the job are asked for already", maxCheckpointRequests).RetryAfter(retryAfter))
	default: // the checkpoint is written later, by this goroutine
		c.Answers.AnswerBeforeEvents(answerTo(c.Request, arcp.Ack, arcp.AckPayload{}))
	}
}

func (c *Create) add(s *supervisor, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests.add(c.Label, now)
}

func (c *Create) committed(*supervisor, error) {} // apply answers at once

func (c *Create) rejected(_ *Engine, stopped bool) {
	if stopped {
		c.refuse(errShuttingDown())
		return
	}
	c.refuse(errHasEnded())
}

func errShuttingDown() *arcp.Error {
	return arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down").RetryAfter(retryAfter)
}

func (c *Create) refuse(err *arcp.Error) {
	c.Answers.AnswerBeforeEvents(answerTo(c.Request, arcp.Nack, err))
}

func answerTo(request arcp.MessageID, t arcp.Type, payload any) arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	return env
}
