package engine

import (
	"math/rand/v2"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// maxRetryFloor bounds the wait that a tool may ask for.
const maxRetryFloor = 24 * time.Hour

// retry is an attempt that failed and shall be made again.
type retry struct {
	code  arcp.Code
	delay time.Duration
}

// retryData is the data of the event retry (SPEC.md §5.6).
type retryData struct {
	Attempt uint32    `json:"attempt"` // the one that will be made
	Code    arcp.Code `json:"code"`
	DelayMS int64     `json:"delay_ms"`
}

// retryOf returns how a submit's job is retried: as the submit says, or as usual
// for the tool.
func retryOf(t *tool.Tool, option arcp.Raw) (tool.Retry, *arcp.Error) {
	if len(option) == 0 || option.Kind() == 'n' {
		return t.Retry, nil
	}
	r, err := tool.ParseRetry(option)
	switch {
	case err != nil:
		return tool.Retry{}, err
	case r.MaxAttempts > 1 && !*t.Idempotent:
		return tool.Retry{}, arcp.Errorf(arcp.CodeInvalidRequest, "retry: %s is not idempotent, what it did once must not be done again", t.Name)
	}
	return r, nil
}

// fail ends the attempt with an error, and the job unless it is to be retried.
func (s *supervisor) fail(now time.Time, err *arcp.Error) {
	s.waitOver(now)
	delay, again := s.retries(now, err)
	if !again {
		s.m.Fail(now, err)
		return
	}
	if s.m.Retry(now, err); s.m.State() == arcp.StateQueued {
		s.again = &retry{err.Code, delay}
		s.progress.Failed++
		s.progress.Next = now.Add(delay)
		s.unsaved = true
	}
}

// retries decides whether another attempt follows on an error, and after how
// long. One that the maximum runtime would not let begin is not worth the wait.
func (s *supervisor) retries(now time.Time, err *arcp.Error) (time.Duration, bool) {
	failed := s.progress.Failed + 1
	if !err.Retryable || failed >= s.retry.MaxAttempts || s.again != nil {
		return 0, false
	}
	delay := max(s.retry.Delay(failed, rand.Float64()), retryFloor(err))
	if end := s.deadline(); !end.IsZero() && !now.Add(delay).Before(end) {
		return 0, false
	}
	return delay, true
}

// retryFloor is the wait that an error asks for.
func retryFloor(err *arcp.Error) time.Duration {
	floor, _ := arcp.RetryAfterOf(err.Details) // 0 if it asks for none
	return min(floor, maxRetryFloor)
}

func (s *supervisor) retryEvent(now time.Time) *store.Event {
	data, err := arcp.Marshal(retryData{s.attempt + 1, s.again.code, s.again.delay.Milliseconds()})
	if err != nil { // three plain members
		panic("engine: " + err.Error())
	}
	return s.event(arcp.EventEmit, now, s.row.Priority, arcp.EventEmitPayload{Name: "retry", Data: data})
}

// rest leaves the job without a supervisor until its next attempt, which for a
// paused one the next start of the runtime makes. The slot is given back when the
// tool has returned.
func (s *supervisor) rest() {
	s.state = s.m.State()
	next, end, due := s.progress.Next, earliest(s.deadline(), s.otherDue()), earliest(s.due, s.otherDue())
	if s.rewound {
		next = time.Now()
	}
	slot := !s.dozes && s.e.lay(s.run)
	s.mu.Lock()
	s.cur = nil
	s.wanted = s.wanted && s.dozes || len(s.demands) > 0
	s.launchLocked()
	s.stopped = s.stopped || s.cur == nil && s.e.retired.Load()
	s.mu.Unlock()
	if s.toolC != nil {
		s.awaitTool()
	}
	if slot {
		s.e.free(s.tool)
	}
	switch {
	case s.again != nil, s.rewound:
		s.arm(next, end)
	case s.dozes:
		s.arm(time.Time{}, due)
	}
}

// otherDue is when something is due that has nothing to do with an attempt: a
// question expires, or a lease ends.
func (r *run) otherDue() time.Time {
	return earliest(r.questionsDue(), r.preempts(), r.clocked(r.permitEnd()))
}

// arm sets the timers of a job without a supervisor: when its next attempt is
// due, if that is a matter of time, and when its maximum runtime is over.
func (r *run) arm(next, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.ended {
		return
	}
	if !next.IsZero() {
		r.due = time.AfterFunc(time.Until(next), func() { r.e.resume(r) })
	}
	if !end.IsZero() {
		if r.limit != nil {
			r.limit.Stop()
		}
		r.limit = time.AfterFunc(time.Until(end), r.look)
	}
}

// lay puts a job to rest and reports whether it had a slot, which is then the
// caller's to free.
func (e *Engine) lay(r *run) (slot bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restLocked(r)
	slot = r.slot
	r.slot = false
	e.noteDrained()
	return slot
}

// resume gives a job that has waited long enough a slot, or a place in the
// queue, which is never too long for it. When the runtime shuts down it is left
// to the next start.
func (e *Engine) resume(r *run) {
	e.mu.Lock()
	ready := r.resting && !e.draining
	if ready {
		e.rise(r)
		ready = e.enqueue(r, -1) && r.slot
	}
	e.mu.Unlock()
	if ready {
		r.granted()
	}
}

// restLocked is called with e.mu for a job that rests from now on.
func (e *Engine) restLocked(r *run) {
	if r.resting = true; !r.unhurried() { // which is counted anyway
		e.resting++
	}
}

// rise is called with e.mu for a job that rests no longer.
func (e *Engine) rise(r *run) {
	if !r.resting {
		return
	}
	if r.resting = false; !r.unhurried() {
		e.resting--
	}
}
