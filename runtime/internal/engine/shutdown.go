package engine

import (
	"sync/atomic"
	"time"
)

// shutdown is the progress of Engine.Stop. phase is guarded by Engine.mu.
type shutdown struct {
	phase    shutdownPhase
	since    time.Time     // when the draining began
	drainedc chan struct{} // closed with shutdownDrained
	quitc    chan struct{} // closed when Stop does not wait any longer

	pausing     atomic.Bool // jobs stop at their next checkpoint
	stopResting atomic.Bool // resting jobs are left to the next start
}

type shutdownPhase uint8

const (
	shutdownNone     shutdownPhase = iota // submits are accepted
	shutdownDraining                      // only children of running jobs are accepted
	shutdownStopping                      // Stop waits for the active jobs
	shutdownDrained                       // no job is active, and none becomes active any more
)

func newShutdown() shutdown {
	return shutdown{drainedc: make(chan struct{}), quitc: make(chan struct{})}
}

func (s *shutdown) drain() {
	if s.phase == shutdownNone {
		s.phase, s.since = shutdownDraining, time.Now()
	}
}

func (s *shutdown) draining() bool { return s.phase != shutdownNone }

// quitting reports whether Stop does not wait any longer. Stop stops only the jobs that it finds then:
// no other job is added, which the caller ensures by holding Engine.mu for this and for the addition.
func (s *shutdown) quitting() bool {
	select {
	case <-s.quitc:
		return true
	default:
		return false
	}
}

// check ends the draining when no job is active. It is called after each change of the number of
// active jobs.
func (s *shutdown) check(t *jobTable, q *toolQueues) {
	if s.phase == shutdownStopping && activeJobs(t, q) == 0 {
		s.phase = shutdownDrained
		close(s.drainedc)
	}
}

// activeJobs returns the number of jobs for which Engine.Stop waits. It does not wait for a job that
// rests, for one whose call waits for an approval, or for one in the queue of a tool of which no active job
// has a slot: the tool of these jobs was not called, so that they continue in the next process whatever
// their recovery is.
func activeJobs(t *jobTable, q *toolQueues) int {
	n := len(t.runs) - t.resting
	for _, gated := range t.gated {
		n -= gated
	}
	for key, tq := range q.byTool {
		if tq.running <= t.gated[key] {
			n -= tq.waiting()
		}
	}
	return n
}

// markGated records that the call of a job's tool waits for an approval.
func markGated(r *run) {
	e := r.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.jobs.runs[r.row.ID] == r {
		e.jobs.setGated(r, true)
		e.shutdown.check(&e.jobs, &e.queues)
	}
}

// unmarkGated records that the call of a job's tool waits for no approval any more. It reports whether
// Stop has not waited for the job: the tool must not be called then.
func unmarkGated(r *run) (abandoned bool) {
	e := r.e
	e.mu.Lock()
	defer e.mu.Unlock()
	abandoned = r.entry.gated && e.shutdown.phase == shutdownDrained
	e.jobs.setGated(r, false)
	return abandoned
}

// stopWaiting stops a job that is in the queue of its tool, or whose call waits for an approval.
func stopWaiting(r *run) {
	r.e.mu.Lock()
	waits := r.entry.gated || r.slot == slotQueued
	r.e.mu.Unlock()
	if waits {
		r.stop()
	}
}
