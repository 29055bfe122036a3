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

// checkpointRequest is a client's request that the tool saves a checkpoint.
type checkpointRequest struct {
	label     string
	expiresAt time.Time // then it is dropped
}

// checkpointRequests are the requests for checkpoints of an attempt, in their order. Each request gets
// a checkpoint of its own. They are guarded by run.mu.
type checkpointRequests struct {
	list    []checkpointRequest
	wantedc chan struct{} // buffered 1; readable while list is not empty; nil: the tool has not asked for it
}

// add adds a request, and reports whether there was room.
func (cr *checkpointRequests) add(label string, now time.Time) bool {
	cr.expire(now)
	if len(cr.list) >= maxCheckpointRequests {
		return false
	}
	cr.list = append(cr.list, checkpointRequest{label, now.Add(checkpointRequestExpires)})
	cr.signal()
	return true
}

// next removes the first request that has not expired.
func (cr *checkpointRequests) next() (first checkpointRequest, ok bool) {
	if len(cr.list) == 0 { // as nearly always
		return checkpointRequest{}, false
	}
	if cr.expire(time.Now()); len(cr.list) == 0 {
		return checkpointRequest{}, false
	}
	first, cr.list = cr.list[0], cr.list[1:]
	cr.signal()
	return first, true
}

func (cr *checkpointRequests) expire(now time.Time) {
	cr.list = slices.DeleteFunc(cr.list, func(x checkpointRequest) bool { return !now.Before(x.expiresAt) })
	cr.signal()
}

// signal makes the channel readable if there is a request.
func (cr *checkpointRequests) signal() {
	if len(cr.list) == 0 {
		select {
		case <-cr.wantedc:
		default:
		}
		return
	}
	select {
	case cr.wantedc <- struct{}{}:
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

// createCheckpoint is a request for a checkpoint of a running job.
type createCheckpoint struct {
	Requester
	Job   arcp.JobID
	Label string // of the checkpoint; empty: the tool's label
}

// CreateCheckpoint requests a checkpoint of a running job. The attempt's next checkpoint has the label
// and follows the answer. The request is dropped if the attempt ends, or saves no checkpoint in time.
func (e *Engine) CreateCheckpoint(from Requester, id arcp.JobID, p *arcp.CheckpointCreatePayload) {
	c := createCheckpoint{from, id, p.Label}
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
func (r Requester) refuseEnded(e *Engine, id arcp.JobID) {
	r.Answers.AnswerBeforeEvents(eventlog.DeferredAnswer(func(ctx context.Context) arcp.Envelope {
		if _, err := endedJob(ctx, &e.cfg, id, r.Principal, false); err != nil {
			return answerTo(r.Request, arcp.Nack, err)
		}
		return answerTo(r.Request, arcp.Nack, errHasEnded())
	}))
}

func errHasEnded() *arcp.Error { return arcp.Errorf(arcp.CodeFailedPrecondition, "the job has ended") }

func errNoSuchJob() *arcp.Error { return arcp.Errorf(arcp.CodeJobNotFound, "no such job") }

func errNoCheckpoints(t *tool.Tool) *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, "%s does not continue from checkpoints", t.Name)
}

// apply passes the request to the tool. The request itself is not stored.
func (c *createCheckpoint) apply(s *supervisor, now time.Time) {
	switch state := s.machine.State(); {
	case state.Terminal():
		c.refuse(errHasEnded())
	case s.postpone(c):
	case state != arcp.StateRunning && state != arcp.StateBlocked:
		c.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "no attempt of the job runs now: it is %s", state))
	case s.progress.Cancel != nil:
		c.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "the job is being cancelled"))
	case !c.add(s, now):
		c.refuse(arcp.Errorf(arcp.CodeResourceExhausted,
			"%d checkpoints of the job are asked for already", maxCheckpointRequests).RetryAfter(retryAfter))
	default: // this goroutine writes the checkpoint, so the answer precedes it
		c.Answers.AnswerBeforeEvents(answerTo(c.Request, arcp.Ack, arcp.AckPayload{}))
	}
}

func (c *createCheckpoint) add(s *supervisor, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests.add(c.Label, now)
}

func (c *createCheckpoint) committed(*jobWriter, error) {} // apply answers at once

func (c *createCheckpoint) rejected(_ *Engine, stopped bool) {
	if stopped {
		c.refuse(errShuttingDown())
		return
	}
	c.refuse(errHasEnded())
}

func errShuttingDown() *arcp.Error {
	return arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down").RetryAfter(retryAfter)
}

func (c *createCheckpoint) refuse(err *arcp.Error) {
	c.Answers.AnswerBeforeEvents(answerTo(c.Request, arcp.Nack, err))
}

func answerTo(request arcp.MessageID, t arcp.Type, payload any) arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	return env
}
