package engine

import (
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/tool"
)

// workerWait is the wait of an attempt for a worker: for one that is connected and free, or for its own
// one to reconnect. The supervisor owns the members, except reported.
type workerWait struct {
	reported atomic.Pointer[tool.WorkerWait] // nil: a connected worker executes the attempt, or no worker does
	applied  *tool.WorkerWait                // the latest one that the supervisor has seen
	events   waitEvents
}

// SetWait sets the wait. It takes no lock, because the pool of workers calls it with its own.
func (j toolJob) SetWait(w *tool.WorkerWait) {
	j.s.workerWait.reported.Store(w)
	j.s.wake()
}

// apply pauses the time limit of the attempt while it waits.
func (w *workerWait) apply(now time.Time, limit *job.TimeLimit) {
	reported := w.reported.Load()
	if reported == w.applied {
		return
	}
	if w.applied = reported; reported == nil {
		w.events.announced = ""
		limit.Resume(now, job.PauseWorker)
		return
	}
	limit.Pause(reported.Since, job.PauseWorker)
}

// announcesAt returns when an event announces the wait; zero: there is no wait, or it is announced.
func (w *workerWait) announcesAt() time.Time {
	if w.applied == nil {
		return time.Time{}
	}
	return w.events.due(w.applied.Reason, w.applied.Since)
}

// workerWaitDue returns when the supervisor has to act on the wait; zero: never.
func workerWaitDue(s *supervisor) time.Time {
	return earliest(s.workerWait.announcesAt(), startTimesOutAt(s))
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
	w := &s.workerWait
	if hasPassed(w.announcesAt(), now) {
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
