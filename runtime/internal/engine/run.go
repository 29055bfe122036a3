package engine

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of a job's events that are not yet durable.
const (
	maxQueuedEvents = 1024            // as many as a fast tool emits during one commit
	maxQueuedBytes  = 1 << 20         //
	maxPayload      = 512 << 10       // of one event
	maxResult       = 256 << 20       // of a result, in chunks
	abandonAfter    = 5 * time.Second // a tool may take this long to return after its job has ended
)

// run is a job that has not ended. While an attempt runs, or something is to be
// done to the job, it has a supervisor, which owns the members that are not
// guarded; everything below mu may be touched by anyone who holds it.
type run struct {
	e    *Engine
	row  store.Job // as it was claimed or found; the store's, too: not changed
	tool *tool.Tool

	catalogue *tool.Snapshot // in which it was found, and in which it finds the tools that it calls
	roles     []string       // of the principal when the first of the family was submitted; nil: not known

	barred []arcp.SessionID // never answer its gates, besides its own session

	tm      *metrics.Tool
	common  store.Common
	created time.Time

	maxRuntime                  time.Duration
	retry                       tool.Retry
	origin                      *arcp.RestoredFrom // its first attempt goes on from there; nil: from the start
	direct, strict, withSession bool

	// The supervisor's, which follow each other.
	attempt     uint32
	state       arcp.JobState // when no attempt runs
	progress    progress
	progressRev uint64           // of its record; 0: unknown
	points      *points          // nil: none was made or read
	gauge       prometheus.Gauge // of the state it is counted in; nil: none
	jseq        uint64           // of the last event in the log

	questions []*question // with mu to change; see question
	lineage
	seen time.Time // leases end by the time that has passed since

	// Guarded by Engine.mu.
	slot         bool          // holds one of its tool's slots
	waiting      bool          // has a place in its tool's queue
	passed       int           // how often another of its principal's was given the slot that it was next for
	resting      bool          // is between attempts: Stop does not wait for it
	before, next *run          // of its session
	overc        chan struct{} // closed when it is off the books; nil: nobody waits for that
	over         bool          // its end is durable; see Engine.settleOver
	overNext     *run          // not guarded: of Engine.over

	committed chan error    // buffered 1: the supervisor's own write is durable
	kick      chan struct{} // buffered 1: look again

	mu       sync.Mutex
	auth     lease.Authority
	guidance string      // of an interrupt's answer; the tool has not seen it
	cur      *supervisor // nil: there is none
	demands  []demand    // to be met by the supervisor
	due      *time.Timer // of the next attempt
	limit    *time.Timer // of the maximum runtime, while no attempt runs
	wanted   bool        // the supervisor shall start as soon as it may
	placed   bool        // the claim has its place in the log: what is appended now comes behind it
	accepted bool        // the claim is durable
	dropped  bool        // the claim failed: there is no job
	stopped  bool        // by quit
	ended    bool        // its end is on its way to the store
	closed   bool        // and has come there: nothing is taken any more
}

func (e *Engine) newRun(t *tool.Tool) *run {
	return &run{e: e, tool: t, tm: e.cfg.Metrics.Tool(t.Name), attempt: 1, state: arcp.StateAccepted, seen: time.Now(),
		kick: make(chan struct{}, 1), committed: make(chan error, 1)}
}

// launch starts the supervisor, if there is none, and not before the claim is
// placed.
func (r *run) launch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = true
	r.launchLocked()
}

func (r *run) launchLocked() {
	if !r.wanted || !r.placed || r.cur != nil || r.dropped || r.stopped || r.ended {
		return
	}
	s := &supervisor{run: r, attempt: r.attempt, endc: make(chan struct{})}
	s.space.L = &r.mu
	r.cur, r.wanted = s, false
	r.e.wg.Add(1)
	r.e.pool.Run(s.supervise)
}

// place is told that the claim is in the log.
func (r *run) place() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.placed = true
	r.launchLocked()
}

// durable is told that the claim is committed.
func (r *run) durable(start bool) {
	r.mu.Lock()
	r.accepted, r.placed = true, true
	var due time.Time
	if start && r.cur == nil { // else its supervisor knows
		due = r.otherDue()
	}
	r.launchLocked()
	r.mu.Unlock()
	switch {
	case start && r.holdsSlot():
		r.launch()
	case start && !due.IsZero():
		r.arm(time.Time{}, due)
	}
	r.wake()
}

// granted is told that a slot has become free for it.
func (r *run) granted() {
	r.mu.Lock()
	ready := r.accepted
	r.mu.Unlock()
	if ready {
		r.launch()
	}
	r.wake()
}

func (r *run) holdsSlot() bool {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.slot
}

// drop forgets a job whose claim was not committed.
func (r *run) drop() {
	r.mu.Lock()
	r.dropped = true
	launched, late := r.cur != nil, r.unmetLocked()
	r.mu.Unlock()
	if launched {
		r.wake()
		return
	}
	r.e.release(r)
	r.e.vacate(r)
	for _, d := range late {
		d.tooLate(r.e, false)
	}
}

// unmetLocked takes the demands that no supervisor will see.
func (r *run) unmetLocked() (late []demand) {
	if r.cur == nil {
		late, r.demands = r.demands, nil
	}
	return late
}

// quit stops the supervisor without ending the job, which can have no other one.
func (r *run) quit() {
	r.mu.Lock()
	r.stopped = true
	r.stopTimers()
	r.mu.Unlock()
	r.wake()
}

// unhurried reports whether a shutdown does not wait for the job: it does not end
// by itself, or it is one of the runtime's own that waits for people and goes on
// at the next start.
func (r *run) unhurried() bool {
	return r.tool.Endless || r.builtin() && r.tool.Recovery == tool.RecoveryRerun && r.tool.Limits.Timeout <= 0
}

// quitUnhurried is quit for a job that a shutdown does not wait for.
func (r *run) quitUnhurried() {
	if r.unhurried() {
		r.quit()
	}
}

// retire is quit for a job that is between attempts: what is being done to it
// is finished.
func (r *run) retire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cur == nil {
		r.stopped = true
		r.stopTimers()
	}
}

// stopTimers is called with r.mu.
func (r *run) stopTimers() {
	for _, t := range [...]*time.Timer{r.due, r.limit} {
		if t != nil {
			t.Stop()
		}
	}
}

func (r *run) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// look has a supervisor see what time has done to the job.
func (r *run) look() {
	r.launch()
	r.wake()
}

// demand is something that a client wants done to a job. Its supervisor does it.
type demand interface {
	// meet does it. What must be durable before it is answered joins s.asked, what
	// is to be done when the job has ended s.late.
	meet(s *supervisor, now time.Time)
	// settled answers one that was in s.asked.
	settled(s *supervisor, err error)
	// tooLate answers one for which the job, or the runtime, has ended too early.
	tooLate(e *Engine, stopped bool)
}

// post has a demand met by the supervisor, which is started for it if the job
// waits. It reports false if it comes too late.
func (r *run) post(d demand) bool {
	r.mu.Lock()
	if r.closed || r.dropped || r.stopped {
		r.mu.Unlock()
		return false
	}
	r.demands = append(r.demands, d)
	r.wanted = true
	r.launchLocked()
	r.mu.Unlock()
	r.wake()
	return true
}

// postpone has a demand on an attempt met when the attempt runs, if it is about to
// start: who has read job.accepted may well be faster than the first turn of the
// job's supervisor. It reports false if there is nothing to wait for.
func (s *supervisor) postpone(d demand) bool {
	if !s.started.IsZero() || s.m.State().Terminal() || s.progress.Cancel != nil || !s.holdsSlot() {
		return false
	}
	if !s.post(d) {
		d.tooLate(s.e, s.isStopped())
	}
	return true
}

// count moves the job to another state's gauge; an ended one to none.
func (r *run) count(to arcp.JobState) {
	if r.gauge != nil {
		r.gauge.Dec()
	}
	if r.gauge = nil; !to.Terminal() {
		r.gauge = r.e.cfg.Metrics.JobState(to)
		r.gauge.Inc()
	}
}
