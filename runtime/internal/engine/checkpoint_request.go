package engine

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of the checkpoints that clients wait for (SPEC.md §5.6).
const (
	maxCheckpointRequests    = keptPoints // of an attempt
	checkpointRequestExpires = 30 * time.Second
)

// checkpointRequest is a request of a client that the tool saves a checkpoint.
type checkpointRequest struct {
	label string
	until time.Time // it counts
}

// checkpointRequests are those of one attempt, in their order; each is met by a checkpoint
// of its own.
type checkpointRequests struct {
	list []checkpointRequest
	c    chan struct{} // buffered 1: there is one; nil: the tool does not look
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

// take removes the first.
func (w *checkpointRequests) take(now time.Time) (first checkpointRequest, ok bool) {
	if w.expire(now); len(w.list) == 0 {
		return checkpointRequest{}, false
	}
	first, w.list = w.list[0], w.list[1:]
	w.signal()
	return first, true
}

func (w *checkpointRequests) expire(now time.Time) {
	w.list = slices.DeleteFunc(w.list, func(x checkpointRequest) bool { return !now.Before(x.until) })
	w.signal()
}

// signal has the channel say whether there is one.
func (w *checkpointRequests) signal() {
	if len(w.list) == 0 {
		select {
		case <-w.c:
		default:
		}
		return
	}
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// wish takes the first wish that a checkpoint made now meets.
func (s *supervisor) wish() (checkpointRequest, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.checkpointRequests.list) == 0 { // as nearly always
		return checkpointRequest{}, false
	}
	return s.checkpointRequests.take(time.Now())
}

func (j toolJob) CheckpointWanted() <-chan struct{} {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if j.s.checkpointRequests.c == nil {
		j.s.checkpointRequests.c = make(chan struct{}, 1)
		j.s.checkpointRequests.signal()
	}
	return j.s.checkpointRequests.c
}

// Create is a request for a checkpoint of a running job.
type Create struct {
	Request   arcp.MessageID
	Job       arcp.JobID
	Principal string
	Label     string // of the checkpoint; empty: as its tool says
	Answers   Answerer
}

// CreateCheckpoint asks a running job for a checkpoint: its next one has the
// label, and comes behind the answer. An attempt that makes none in time, or
// ends before, is not asked again.
func (e *Engine) CreateCheckpoint(ctx context.Context, c Create) {
	r := e.run(c.Job)
	switch {
	case r == nil:
		c.refuse(e.notLive(ctx, c.Job, c.Principal))
	case r.row.Principal != c.Principal:
		c.refuse(errNoSuchJob())
	case r.tool.Recovery != tool.RecoveryCheckpoint:
		c.refuse(errNoCheckpoints(r.tool))
	case !r.supervised():
		c.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "no attempt of the job runs now"))
	case !r.post(&c):
		c.tooLate(e, r.isStopped())
	}
}

// notLive says why nothing can be done to a job that is not on the books.
func (e *Engine) notLive(ctx context.Context, id arcp.JobID, principal string) *arcp.Error {
	if _, err := e.ended(ctx, id, principal, false); err != nil {
		return err
	}
	return errHasEnded()
}

func errHasEnded() *arcp.Error { return arcp.Errorf(arcp.CodeFailedPrecondition, "the job has ended") }

func errNoSuchJob() *arcp.Error { return arcp.Errorf(arcp.CodeJobNotFound, "no such job") }

func errNoCheckpoints(t *tool.Tool) *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, "%s does not go on from checkpoints", t.Name)
}

func (r *run) supervised() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cur != nil
}

// meet tells the tool. There is nothing to make durable but the checkpoint.
func (c *Create) meet(s *supervisor, now time.Time) {
	switch state := s.m.State(); {
	case state.Terminal():
		c.refuse(errHasEnded())
	case s.postpone(c):
	case state != arcp.StateRunning && state != arcp.StateBlocked:
		c.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "no attempt of the job runs now: it is %s", state))
	case s.progress.Cancel != nil:
		c.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "the job is being cancelled"))
	case !s.expect(c.Label, now):
		c.refuse(arcp.Errorf(arcp.CodeResourceExhausted, "%d checkpoints of the job are asked for already", maxCheckpointRequests).RetryAfter(retryAfter))
	default: // the checkpoint is written later, by this goroutine
		c.Answers.Answer(answerTo(c.Request, arcp.Ack, arcp.AckPayload{}))
	}
}

func (s *supervisor) expect(label string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkpointRequests.add(label, now)
}

func (c *Create) settled(*supervisor, error) {} // it is answered at once

func (c *Create) tooLate(_ *Engine, stopped bool) {
	if stopped {
		c.refuse(errShuttingDown())
		return
	}
	c.refuse(errHasEnded())
}

func errShuttingDown() *arcp.Error {
	return arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down").RetryAfter(retryAfter)
}

func (c *Create) refuse(err *arcp.Error) { c.Answers.Answer(answerTo(c.Request, arcp.Nack, err)) }

func answerTo(request arcp.MessageID, t arcp.Type, payload any) arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	return env
}
