package engine

import (
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/tool"
)

// workerWait is the wait of an attempt for a worker: for one that is connected and free, or for its own
// one to reconnect.
type workerWait struct {
	// mu guards the members up to applied. No other lock is taken while it is held.
	mu       sync.Mutex
	reported *tool.WorkerWait // nil: a connected worker executes the attempt, or no worker does
	endedAt  time.Time        // when the applied wait ended; zero: it has not
	missed   time.Duration    // waits that began and ended after the supervisor applied the latest one
	applied  *tool.WorkerWait // as the supervisor knows it; only the supervisor writes it

	events waitEvents // owned by the supervisor
}

// SetWait sets the wait. It takes only the lock of the wait, because the pool of workers calls it with its own.
func (j toolJob) SetWait(w *tool.WorkerWait) {
	j.s.workerWait.set(time.Now(), w)
	j.s.wake()
}

// set ends the present wait, and begins the next one unless it is nil.
func (w *workerWait) set(now time.Time, next *tool.WorkerWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.reported {
	case nil:
	case w.applied:
		w.endedAt = now
	default:
		w.missed += now.Sub(w.reported.Since)
	}
	w.reported = next
}

// current returns the present wait; nil: there is none.
func (w *workerWait) current() *tool.WorkerWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reported
}

// take makes the present wait the applied one. It returns the previous one, when that ended, and for how
// long the attempt has waited since then.
func (w *workerWait) take() (previous *tool.WorkerWait, endedAt time.Time, missed time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	previous, endedAt, missed = w.applied, w.endedAt, w.missed
	w.applied, w.endedAt, w.missed = w.reported, time.Time{}, 0
	return previous, endedAt, missed
}

// applyWorkerWait pauses the time limit of the attempt while it waits. While its worker has no connection,
// missing heartbeats do not count: the pool of workers decides when the attempt is lost. It reports whether the
// wait has changed.
func applyWorkerWait(s *supervisor, now time.Time) (changed bool) {
	w := &s.workerWait
	previous, endedAt, missed := w.take()
	if w.applied == previous && missed == 0 {
		return false
	}
	if previous != nil && w.applied != previous {
		s.limit.Resume(endedAt, job.PauseWorker)
	}
	s.limit.Extend(missed)
	if w.applied == nil {
		w.events.announced = ""
	} else {
		s.limit.Pause(w.applied.Since, job.PauseWorker)
	}
	reconnects := w.applied != nil && w.applied.Reason == arcp.WaitReconnect
	if s.machine.SuspendSilence(now, reconnects); missed > 0 && !reconnects {
		s.machine.Heartbeat(now)
	}
	return true
}

// waitAnnouncedAt returns when an event announces the wait; zero: there is no wait, it is announced, or the job
// waits for an answer.
func waitAnnouncedAt(s *supervisor) time.Time {
	w := &s.workerWait
	if w.applied == nil || s.questions.Pending() != nil {
		return time.Time{}
	}
	return w.events.due(w.applied.Reason, w.applied.Since)
}

// workerWaitDue returns when the supervisor has to act on the wait; zero: never.
func workerWaitDue(s *supervisor) time.Time {
	return earliest(waitAnnouncedAt(s), startTimesOutAt(s))
}

// startTimesOutAt returns when the start timeout ends a wait without a connected worker; zero: never.
func startTimesOutAt(s *supervisor) time.Time {
	w := s.workerWait.applied
	if w == nil || w.Reason != arcp.WaitWorker {
		return time.Time{}
	}
	if timeout := currentStartTimeout(s.run); timeout > 0 {
		return w.Since.Add(timeout)
	}
	return time.Time{}
}

// currentStartTimeout returns how long a job may wait without a connected worker; 0: for ever.
func currentStartTimeout(r *run) time.Duration {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return startTimeoutOf(r, r.e.jobs.limits.StartTimeout)
}

// advanceWorkerWait announces a wait that has lasted, and fails the job at its start timeout.
func advanceWorkerWait(s *supervisor, now time.Time) {
	if w := &s.workerWait; hasPassed(waitAnnouncedAt(s), now) {
		w.events.record(now, w.applied.Reason)
		if s.running() {
			announceWait(s, now, viewOf(w.applied).view(s.tool.Ref()))
		}
	}
	if hasPassed(startTimesOutAt(s), now) && s.running() {
		s.machine.Fail(now, errStartTimeout(s.run, currentStartTimeout(s.run)))
	}
}

// viewOf returns the wait of an attempt for a worker as the wait of its job.
func viewOf(w *tool.WorkerWait) *jobWait {
	return &jobWait{reason: w.Reason, since: w.Since, worker: w.Worker, next: w.Until}
}
