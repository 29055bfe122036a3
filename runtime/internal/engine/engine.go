// Package engine runs jobs: it accepts submits, gives each running job a
// supervisor, and ends every job exactly once.
//
// A submit becomes a durable job and its job.accepted in one commit; the caller
// never waits for it. One goroutine, the supervisor, owns the machine of a
// running job and is the only one to append to its log, so a job's events are in
// the order in which they were emitted. A job that is queued, or waits for its
// next attempt, is a row and a place in its tool's queue or a timer, without a
// goroutine.
//
// Attempts of a job follow each other, with a supervisor each: what an earlier
// one still emits is refused. After a restart Recover goes on with every job as
// its tool's recovery says.
package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// Config is what an Engine needs. A limit that is zero or negative is off.
type Config struct {
	Log     *eventlog.Log
	Store   store.Store
	Tools   *tool.Registry
	Metrics *metrics.Metrics
	Logger  zerolog.Logger

	Heartbeat    time.Duration // of jobs
	Block        bool          // missed heartbeats block a job instead of failing it
	ResumeWindow time.Duration // how long a blocked job waits for a heartbeat

	// Full, if set, reports whether the disk is nearly full: no job is accepted
	// then, and tools wait before they emit, until SpaceFreed. It must not block.
	Full func() bool

	// Questions are shown to the sessions that can be asked; nil: there are none.
	Questions Questions

	// Catalogue is what a session of a principal that is trusted so much sees of
	// Tools, now; nil: all of them. It must not block.
	Catalogue func(session arcp.SessionID, principal, trust string) *tool.Snapshot

	// Slots is how many jobs of each tool from workers may run at once, and Runs
	// reports whether a session may be given the jobs of one: it must not answer
	// their gates nor grant them permissions. Neither may block.
	Slots *tool.Slots
	Runs  func(ref string, session arcp.SessionID) bool

	// Vault gives jobs credentials; nil: none. It is recovered before Recover.
	Vault *credential.Vault

	// Resources keeps the leases that jobs take on things outside; nil: none.
	Resources Resources

	// Fetcher is what jobs fetch with, each within its authority; nil: the default.
	Fetcher *access.Fetcher

	RequireModelLease bool // a job whose lease does not speak of models may use none
	PreemptExpired    bool // a job ends when its lease does, not at its next operation

	Limits
}

// Limits bounds the jobs that have not ended.
type Limits struct {
	MaxJobs             int // of everybody
	MaxJobsPerPrincipal int
	MaxJobsPerSession   int
	MaxData             int64 // bytes of their arguments
}

// Answerer takes answers for a connection; see eventlog.Cursor.
type Answerer interface {
	Post(answer any) bool   // behind the events so far
	Answer(answer any) bool // before the events to come
}

// Engine runs jobs. Its methods may be called by many goroutines.
type Engine struct {
	cfg Config

	mu           sync.Mutex
	limits       Limits
	runs         map[arcp.JobID]*run // every job that has not ended
	perSession   map[arcp.SessionID]jobList
	perPrincipal map[string]int          // not those of built-in tools
	over         atomic.Pointer[run]     // concluded since settleOver, linked; not guarded
	counted      int                     // of runs: those that count for Limits.MaxJobs
	data         int64                   // bytes of the arguments of runs, for Limits.MaxData
	perCaller    map[string]int          // of them, by principal
	leases       map[arcp.LeaseID]permit // permission leases of jobs that have not ended
	toolQueues   map[toolQueueKey]*toolQueue
	rates        rates
	resting      int // jobs that Stop does not wait for: between attempts, or endless
	draining     bool
	empty        bool          // drained is closed
	drained      chan struct{} // closed when draining and no job is left that does not rest

	pausing atomic.Bool // jobs stop at their next checkpoint
	retired atomic.Bool // jobs that rest are left to the next start

	order order

	pool *pool.Pool
	wg   sync.WaitGroup // supervisors
	quit chan struct{}  // closed when Stop does not wait any longer

	calls sync.WaitGroup          // calls of built-in tools; added to with mu while the engine does not drain
	ctx   context.Context         // of the calls
	halt  context.CancelCauseFunc // ends ctx
}

// New returns an engine. Call Recover before the first Submit.
func New(cfg Config) *Engine {
	if cfg.Questions == nil {
		cfg.Questions = silence{}
	}
	if cfg.Catalogue == nil {
		all := tool.NewCatalog(cfg.Tools, nil)
		cfg.Catalogue = func(_ arcp.SessionID, principal, trust string) *tool.Snapshot {
			return all.Snapshot(tool.Viewer{Trust: trust, Principal: principal}, nil)
		}
	}
	if cfg.Fetcher == nil {
		cfg.Fetcher = access.NewFetcher(nil, access.FetchOptions{})
	}
	e := &Engine{cfg: cfg, limits: cfg.Limits, runs: make(map[arcp.JobID]*run), leases: make(map[arcp.LeaseID]permit), perSession: make(map[arcp.SessionID]jobList),
		perPrincipal: make(map[string]int), perCaller: make(map[string]int), toolQueues: make(map[toolQueueKey]*toolQueue),
		order: order{held: make(map[arcp.SessionID][]step)}, drained: make(chan struct{}), quit: make(chan struct{}), pool: pool.New()}
	e.ctx, e.halt = context.WithCancelCause(context.Background())
	if cfg.Vault != nil {
		cfg.Vault.RotateFor(tenants{e})
	}
	return e
}

// SetLimits changes the limits; jobs that are over the new ones go on.
func (e *Engine) SetLimits(l Limits) {
	e.mu.Lock()
	e.limits = l
	e.mu.Unlock()
}

// run returns a job that has not ended; nil if there is none.
func (e *Engine) run(id arcp.JobID) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

// Lives reports whether a job has not ended.
func (e *Engine) Lives(id arcp.JobID) bool { return e.run(id) != nil }

// LivingAncestor is the nearest job above one that has not ended, also if no
// process runs it; empty if there is none. Above one that is deleted none is known.
func (e *Engine) LivingAncestor(ctx context.Context, j *store.Job) (arcp.JobID, error) {
	for id := j.Parent; id != ""; {
		p, err := e.cfg.Store.Job(ctx, id)
		switch {
		case err == nil && !p.State.Terminal():
			return id, nil
		case errors.Is(err, store.ErrNotFound) && e.Lives(id): // on its way to the store
			return id, nil
		case errors.Is(err, store.ErrNotFound):
			return "", nil
		case err != nil:
			return "", err
		}
		select {
		case <-e.Over(id): // who was told of its end is sooner
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		id = p.Parent
	}
	return "", nil
}

// Over returns a channel that is closed when a job has ended and nothing more is
// written for it, which one that the engine does not know has been for long.
func (e *Engine) Over(id arcp.JobID) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.runs[id]
	switch {
	case r == nil:
		return closed
	case r.overc == nil:
		r.overc = make(chan struct{})
	}
	return r.overc
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Live is the number of jobs that have not ended.
func (e *Engine) Live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}

// SpaceFreed wakes the tools that wait to emit because the disk was full.
func (e *Engine) SpaceFreed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.runs {
		r.mu.Lock()
		if r.cur != nil {
			r.cur.space.Broadcast()
		}
		r.mu.Unlock()
	}
}

func (e *Engine) questions() Questions { return e.cfg.Questions }

func (e *Engine) full() bool { return e.cfg.Full != nil && e.cfg.Full() }

// Drain refuses submits from now on, but for the children of jobs that run. Jobs
// whose tools go on from a checkpoint are paused at their next one.
func (e *Engine) Drain() {
	e.pausing.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.draining {
		e.draining = true
		e.noteDrained()
	}
}

// noteDrained is called with e.mu when draining begins, and when a job ends or
// is laid to rest.
func (e *Engine) noteDrained() {
	if e.draining && !e.empty && len(e.runs) == e.resting {
		e.empty = true
		close(e.drained)
	}
}

// ErrStopping is the cause with which tools are stopped by Stop.
var ErrStopping = errors.New("the runtime is shutting down")

// Stop drains and waits until all jobs, also those that are queued or being
// accepted, have ended, are paused, or wait for a retry, but for those that do not
// end by themselves. When ctx ends before, it
// stops their supervisors without ending the jobs: the next Recover goes on with
// them. No supervisor runs when it returns. It is called once.
func (e *Engine) Stop(ctx context.Context) {
	e.Drain()
	defer e.pool.Close()
	done := make(chan struct{})
	go func() {
		select {
		case <-e.drained:
			e.calls.Wait()
			e.retired.Store(true)
			e.each((*run).retire)
			e.each((*run).quitUnhurried)
			e.wg.Wait()
			close(done)
		case <-e.quit:
		}
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	close(e.quit)
	e.halt(ErrStopping)
	e.each((*run).quit)
	e.wg.Wait()
	e.tellUnmet()
	e.calls.Wait()
}

// tellUnmet tells those who asked something of jobs whose supervisors had not
// begun when the runtime stopped.
func (e *Engine) tellUnmet() {
	var late []demand
	e.each(func(r *run) {
		r.mu.Lock()
		defer r.mu.Unlock()
		late = append(late, r.unmetLocked()...)
	})
	for _, d := range late {
		d.tooLate(e, true)
	}
}

// each calls f for every job that has not ended.
func (e *Engine) each(f func(*run)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.runs {
		f(r)
	}
}

// enroll puts a job on the books. Called with e.mu.
func (e *Engine) enroll(r *run) {
	r.count(r.state)
	e.runs[r.row.ID] = r
	if r.unhurried() {
		e.resting++
	}
	l := e.perSession[r.row.Session]
	l.add(r)
	e.perSession[r.row.Session] = l
	e.countLimited(r, 1)
}

// concluded is told that the end of a job is durable, before anybody else is:
// whoever hears of it may submit another. What else there is of the job is released
// by its supervisor. It is called on the committer's goroutine, which must not wait.
func (e *Engine) concluded(r *run) {
	for {
		r.overNext = e.over.Load()
		if e.over.CompareAndSwap(r.overNext, r) {
			return
		}
	}
}

// settleOver has the jobs that were concluded count no more. Called with e.mu before
// it matters, and before any of them is released.
func (e *Engine) settleOver() {
	if e.over.Load() == nil {
		return
	}
	for r := e.over.Swap(nil); r != nil; {
		next := r.overNext
		r.over, r.overNext = true, nil
		e.countLimited(r, -1)
		r = next
	}
}

// release takes an ended job off the books.
func (e *Engine) release(r *run) {
	r.count(arcp.StateFailed) // whatever it was: it is not counted any more
	r.mu.Lock()
	r.stopTimers()
	r.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settleOver()
	delete(e.runs, r.row.ID)
	if r.overc != nil {
		close(r.overc)
	}
	e.forgetLeases(r)
	if !r.over {
		e.countLimited(r, -1)
	}
	l := e.perSession[r.row.Session]
	if l.remove(r); l.n == 0 {
		delete(e.perSession, r.row.Session)
	} else {
		e.perSession[r.row.Session] = l
	}
	e.rise(r)
	if r.unhurried() {
		e.resting--
	}
	e.noteDrained()
}

// countLimited counts a job for the limits of all, of its principal and of its
// session. Called with e.mu, while the job is on the books.
func (e *Engine) countLimited(r *run, d int) {
	e.data += int64(d * len(r.row.Arguments))
	if r.builtin() {
		count(e.perCaller, r.row.Principal, d)
		return
	}
	e.counted += d
	count(e.perPrincipal, r.row.Principal, d)
	l := e.perSession[r.row.Session]
	l.counted += d
	e.perSession[r.row.Session] = l
}

// jobList is the jobs of a session, linked through the runs.
type jobList struct {
	first   *run
	n       int
	counted int // of them: those that count for Limits.MaxJobsPerSession
}

func (l *jobList) add(r *run) {
	if r.next = l.first; l.first != nil {
		l.first.before = r
	}
	l.first = r
	l.n++
}

func (l *jobList) remove(r *run) {
	if r.before != nil {
		r.before.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.before = r.before
	}
	r.before, r.next = nil, nil
	l.n--
}

func count[K comparable](m map[K]int, k K, d int) {
	if n := m[k] + d; n == 0 {
		delete(m, k)
	} else {
		m[k] = n
	}
}
