package engine

import (
	"math/rand/v2"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// retryData is the data of the event retry (SPEC.md §5.6).
type retryData struct {
	Attempt uint32    `json:"attempt"` // the next one
	Code    arcp.Code `json:"code"`
	DelayMS int64     `json:"delay_ms"`
}

// retryOf returns the retry policy of a job: the submit's option, or the tool's default.
func retryOf(t *tool.Tool, option arcp.Raw) (tool.Retry, *arcp.Error) {
	if len(option) == 0 || option.Kind() == 'n' {
		return t.Retry, nil
	}
	if len(option) > maxRetryOption {
		return tool.Retry{}, arcp.Errorf(arcp.CodeInvalidRequest, "retry may have at most %d bytes", maxRetryOption)
	}
	r, err := tool.ParseRetry(option)
	switch {
	case err != nil:
		return tool.Retry{}, err
	case r.MaxAttempts > 1 && !*t.Idempotent:
		return tool.Retry{}, arcp.Errorf(arcp.CodeInvalidRequest, "retry: %s is not idempotent, so it must not be called again", t.Name)
	}
	return r, nil
}

// failAttempt ends the attempt with an error. The job ends unless another attempt follows.
func (s *supervisor) failAttempt(now time.Time, err *arcp.Error) {
	s.progress.endBlock(now)
	backoff := s.retry.Delay(s.progress.Failed+1, rand.Float64())
	delay, ok := s.progress.RetryDelay(now, err, s.retry.MaxAttempts, backoff, s.deadline())
	if !ok || s.exit == exitRetry {
		s.machine.Fail(now, err)
		return
	}
	if s.machine.Retry(now, err); s.machine.State() == arcp.StateQueued {
		s.exit.set(exitRetry)
		s.retryCause = failure{now, err.Code, delay}
		s.progress.Fail(now, delay)
		s.progress.unsaved = true
	}
}

// retryEvent returns the event that another attempt follows a failure.
func (d *definition) retryEvent(next uint32, f failure) *store.Event {
	data, err := arcp.Marshal(retryData{next, f.code, f.delay.Milliseconds()})
	if err != nil { // three plain members
		panic("engine: " + err.Error())
	}
	return d.event(arcp.EventEmit, f.at, d.row.Priority, arcp.EventEmitPayload{Name: "retry", Data: data})
}

// suspend leaves the job without a supervisor until its next attempt, which a paused job
// gets at the next start of the runtime. The slot is released when the tool has returned.
func (s *supervisor) suspend() {
	s.state = s.machine.State()
	next, end, due := s.progress.Next, earliest(s.deadline(), s.leaseOrQuestionDue()), earliest(s.due, s.leaseOrQuestionDue())
	if s.exit == exitRewind {
		next = time.Now()
	}
	slot := s.exit != exitIdle && s.beginRest()
	s.mu.Lock()
	s.current = nil
	s.commands.wanted = s.commands.wanted && s.exit == exitIdle || len(s.commands.list) > 0
	s.launchLocked()
	if s.current == nil && s.e.shutdown.stopResting.Load() {
		s.lifecycle.apply(onStop)
	}
	s.mu.Unlock()
	if s.call.begun {
		s.awaitTool()
	}
	if slot {
		s.e.startNext(func(q *toolQueues) *run { return q.freeSlot(s.tool) })
	}
	switch s.exit {
	case exitRetry, exitRewind:
		s.setTimers(next, end)
	case exitIdle:
		s.setTimers(time.Time{}, due)
	}
}

// beginRest records that the job rests. It reports whether the job had a slot, which the caller
// releases.
func (r *run) beginRest() (slot bool) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	slot = r.slot == slotHeld
	r.e.jobs.markResting(r)
	r.e.shutdown.check(&r.e.jobs, &r.e.queues)
	return slot
}

// resume gives a job whose next attempt is due a slot, or a place in the queue without a bound. During
// a shutdown the job waits for the next start of the runtime.
func (r *run) resume() {
	r.e.mu.Lock()
	ready := r.slot == slotResting && !r.e.shutdown.draining()
	if ready {
		r.e.jobs.markActive(r)
		ready = r.e.queues.enqueue(r, -1) && r.slot == slotHeld
	}
	r.e.mu.Unlock()
	if ready {
		r.markSlotGranted()
	}
}
