package engine

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
)

// shutdown is the progress of Engine.Stop. phase is guarded by Engine.mu.
type shutdown struct {
	phase    shutdownPhase
	since    time.Time     // when the draining began
	drainedc chan struct{} // closed with shutdownDrained
	quitc    chan struct{} // closed when Stop does not wait any longer

	pausing     atomic.Bool // jobs stop at their next checkpoint, or while an approval of their call is pending
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

// activeJobs returns the number of jobs for which Engine.Stop waits. It waits neither for a job that rests, nor
// for one in the queue of a tool of which no job has a slot: the tool of these was not called, so that they
// continue in the next process whatever their recovery is.
func activeJobs(t *jobTable, q *toolQueues) int {
	n := len(t.runs) - t.resting
	for _, tq := range q.byTool {
		if tq.running > 0 {
			continue
		}
		for _, r := range tq.queue {
			if r.slot == slotQueued && !r.endless() { // endless ones are resting
				n--
			}
		}
	}
	return n
}

// ActiveJob is a job for which Engine.Stop waits.
type ActiveJob struct {
	ID      arcp.JobID
	Tool    string           // name@version
	Waiting *arcp.JobWaiting // why the job waits; nil: it does not wait
}

// ListActive returns the jobs for which Stop waits, the oldest first, at most limit, and the number of all.
func ListActive(e *Engine, limit int) (list []ActiveJob, n int) {
	runs := slices.DeleteFunc(activeRuns(e), leavesAtGate)
	slices.SortFunc(runs, func(a, b *run) int { return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.row.ID, b.row.ID)) })
	list = make([]ActiveJob, min(limit, len(runs)))
	for i := range list {
		r := runs[i]
		list[i] = ActiveJob{ID: r.row.ID, Tool: r.row.Agent}
		if w := waitOf(r); w.reason != "" {
			list[i].Waiting = w.view(r.tool.Ref())
		}
	}
	return list, len(runs)
}

// leavesAtGate reports whether leaveAtGate will end the attempt of a job.
func leavesAtGate(r *run) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.direct && r.row.Parent == "" && r.questions.AwaitsLogged()
}

// activeRuns returns the runs that activeJobs counts.
func activeRuns(e *Engine) (list []*run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	called := func(r *run) bool {
		tq := e.queues.byTool[keyOf(r.tool)]
		return r.slot != slotQueued || tq != nil && tq.running > 0
	}
	for _, r := range e.jobs.runs {
		if r.slot != slotResting && !r.endless() && called(r) {
			list = append(list, r)
		}
	}
	return list
}

// leaveAtGate ends an attempt whose call waits for an approval when the runtime stops, because its tool was not
// called. The question stays open, and an answer that comes now counts for the attempt after the next start. A
// child stays, because its parent may need its result before the stop ends.
func leaveAtGate(s *supervisor, now time.Time) bool {
	if !s.e.shutdown.pausing.Load() || s.exit != exitNone || s.direct || s.row.Parent != "" || !s.questions.AwaitsLogged() || !s.machine.Rewind(now) {
		return false
	}
	s.exit.set(exitRewind)
	s.limit = job.TimeLimit{} // the attempt has ended
	return true
}

// stopQueued stops a job that is in the queue of its tool.
func stopQueued(r *run) {
	r.e.mu.Lock()
	queued := r.slot == slotQueued
	r.e.mu.Unlock()
	if queued {
		r.stop()
	}
}
