package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/runtime/internal/tracing"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// Config configures an Engine. A limit that is zero or negative is off.
type Config struct {
	Log     *eventlog.Log
	Store   store.Store
	Tools   *tool.Registry
	Metrics *metrics.Metrics
	Logger  zerolog.Logger
	Tracer  *tracing.Tracer // nil: no spans

	LogToolErrors bool          // the log has the texts of errors of tools
	Heartbeat     time.Duration // of jobs
	Block         bool          // missed heartbeats block a job instead of failing it
	ResumeWindow  time.Duration // how long a blocked job waits for a heartbeat

	Space Space // nil: there is always space

	// Questions delivers questions to sessions; nil: no session can be asked.
	Questions QuestionBroker

	// Catalog returns the tools that a session of a principal with a trust level
	// sees now; nil: all of Tools. It must not block.
	Catalog func(session arcp.SessionID, principal string, trust arcp.TrustLevel) *catalog.Snapshot

	// Rights returns what a principal may do now, by a Submit.Identity; nil: what it could do then. An error
	// refuses the job of an occurrence, a clean-up tool, and the call of a tool after an approval. It must not
	// block.
	Rights func(identity arcp.Raw) (Rights, *arcp.Error)

	// Slots has the number of jobs that each tool of workers may run at once. Runs
	// reports whether a session may be assigned the jobs of a tool. Such a session
	// answers no gates of the jobs and grants them no permissions. Neither may block.
	Slots *catalog.Slots
	Runs  func(ref string, session arcp.SessionID) bool

	// Connected reports whether a connected worker executes a tool for a principal; nil: always. It is
	// called without a lock of the engine.
	Connected func(ref, principal string) bool

	// Vault issues credentials to jobs; nil: none. It is recovered before Recover.
	Vault *credential.Vault

	// Resources holds the leases of jobs on external resources; nil: none.
	Resources Resources

	// Artifacts has the artifacts that jobs put and open; nil: none.
	Artifacts *artifact.Store

	// Fetcher fetches for jobs, each within its authority; nil: the default.
	Fetcher *access.Fetcher

	RequireModelLease bool // a job whose lease has no model namespace may use no model
	PreemptExpired    bool // a job ends with its lease, not at its next operation after that

	// Shared reports whether clients of more than one principal may come: the shares of Limits apply.
	// It must not block. nil: they do not apply.
	Shared func() bool

	Limits
}

func (c *Config) full() bool { return c.Space.DiskFull() || c.Space.DataFull() }

// Limits bounds the jobs that have not ended.
type Limits struct {
	MaxJobs             int // of all principals
	MaxJobsPerPrincipal int
	MaxJobsPerSession   int
	MaxArguments        int64 // bytes of their arguments

	// Shares bound each principal while Config.Shared reports true; 0: none. JobShare does not apply to a
	// principal that has another limit of its jobs, and ArgumentShare not to the only job of a principal.
	JobShare      int
	ArgumentShare int64 // bytes

	StartTimeout time.Duration // of jobs in the queue without a connected worker, unless the tool has its own
}

// Space says how much can be stored. While DiskFull or DataFull reports true, no job is accepted, and tools wait before
// they emit, until Engine.SpaceFreed. Built-in tools can be called until DiskExhausted reports true. The methods must not
// block; any goroutine calls them.
type Space interface {
	DiskFull() bool      // reports whether the disk is nearly full
	DiskExhausted() bool // reports whether the disk has no space for calls of built-in tools either
	DataFull() bool      // reports whether the store has reached its bound
}

// boundless is the Space of an engine without one.
type boundless struct{}

func (boundless) DiskFull() bool      { return false }
func (boundless) DiskExhausted() bool { return false }
func (boundless) DataFull() bool      { return false }

// AnswerSender sends the answers to the requests of a connection; see eventlog.Cursor.
type AnswerSender interface {
	AnswerAfterEvents(answer any) bool  // behind all events that are in the log
	AnswerBeforeEvents(answer any) bool // before the events of the write in progress
}

// Requester is the session that sends a request about a job.
type Requester struct {
	Request   arcp.MessageID // id of the message that makes the request
	Principal string
	Admin     bool // may cancel jobs and revoke leases of other principals
	Session   arcp.SessionID
	Answers   AnswerSender // nil for requests that report their result to a function
}

// Engine runs jobs. Any goroutine may call its methods. While mu is held, no run is
// locked, and only functions that do not block are called in other packages, such as
// catalog.Slots.Of and tool.Tool.VisibleTo.
type Engine struct {
	cfg Config

	mu       sync.Mutex // guards the tables that follow
	jobs     jobTable
	queues   toolQueues
	rates    toolRates
	shutdown shutdown

	leases  leaseIndex
	streams streamIndex

	clientStreams clientStreamIndex

	handoffs handoffLocks

	order     submitOrder
	slow      slowTools
	handovers handovers
	calls     callGroup
	scheduler scheduler
	watch     queueWatch
	pool      *pool.Pool
	wg        sync.WaitGroup // supervisors, and submits that wait for credentials
}

// New returns an engine. Call Recover before the first Submit.
func New(cfg Config) *Engine {
	if cfg.Questions == nil {
		cfg.Questions = noQuestions{}
	}
	if cfg.Catalog == nil {
		all := catalog.New(cfg.Tools, nil)
		cfg.Catalog = func(_ arcp.SessionID, principal string, trust arcp.TrustLevel) *catalog.Snapshot {
			return all.Snapshot(catalog.Viewer{Trust: trust, Principal: principal}, nil)
		}
	}
	if cfg.Fetcher == nil {
		cfg.Fetcher = access.NewFetcher(nil, access.FetchOptions{})
	}
	if cfg.Space == nil {
		cfg.Space = boundless{}
	}
	if cfg.Shared == nil {
		cfg.Shared = func() bool { return false }
	}
	goroutines := pool.New()
	e := &Engine{cfg: cfg, jobs: newJobTable(cfg.Limits, cfg.Shared), shutdown: newShutdown(), calls: newCallGroup(), pool: goroutines,
		leases: leaseIndex{byID: make(map[arcp.LeaseID]leaseRef), gauges: cfg.Metrics.Leases},
		queues: toolQueues{slots: cfg.Slots, byTool: make(map[toolQueueKey]*toolQueue)},
		order:  submitOrder{pool: goroutines, waiting: make(map[arcp.SessionID][]submitStep)}}
	if cfg.Vault != nil {
		cfg.Vault.RotateFor(vaultJobs{e})
	}
	return e
}

// SetLimits changes the limits. Running jobs beyond the new limits continue.
func (e *Engine) SetLimits(l Limits) {
	e.mu.Lock()
	e.jobs.limits = l
	e.mu.Unlock()
}

// run returns a job that has not ended; nil if there is none.
func (e *Engine) run(id arcp.JobID) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.jobs.runs[id]
}

// Lives reports whether a job has not ended.
func (e *Engine) Lives(id arcp.JobID) bool { return e.run(id) != nil }

// LivingAncestor returns the nearest ancestor of a job that has not ended, even if this
// process does not run it. It is empty if there is none, or if an ancestor in between is deleted. A
// schedule is no ancestor: it needs its jobs no longer when they have ended.
func (e *Engine) LivingAncestor(ctx context.Context, row *store.Job) (arcp.JobID, error) {
	for id := row.Parent; id != ""; {
		p, err := e.cfg.Store.Job(ctx, id)
		switch {
		case err == nil && isScheduleRow(&p):
			return "", nil
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
		case <-e.Done(id): // clients get its end before it is released
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		id = p.Parent
	}
	return "", nil
}

// Done returns a channel that is closed when a job has ended and nothing more is
// written for it. The channel of a job that the engine does not know is closed.
func (e *Engine) Done(id arcp.JobID) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.jobs.runs[id]
	switch {
	case r == nil:
		return closedc
	case r.entry.releasedc == nil:
		r.entry.releasedc = make(chan struct{})
	}
	return r.entry.releasedc
}

var closedc = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// LiveCount returns the number of jobs that have not ended.
func (e *Engine) LiveCount() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.jobs.runs)
}

// SpaceFreed wakes the tools that wait to emit because there was no space.
func (e *Engine) SpaceFreed() { e.eachRun((*run).wakeTool) }

// Drain refuses submits from now on, except for children of running jobs. Jobs whose
// tools recover from checkpoints are paused at their next checkpoint.
func (e *Engine) Drain() {
	e.shutdown.pausing.Store(true)
	e.scheduler.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shutdown.drain()
}

// ErrStopping is the cause with which tools are stopped by Stop.
var ErrStopping = errors.New("the runtime is shutting down")

// Stop drains the engine. It waits until every job has ended, is paused, waits for a retry or for the approval of
// its call, or waits for a slot of a tool of which no job has one. It does not wait for jobs that do not end by themselves. When ctx ends first, Stop stops the supervisors without ending their jobs. The next
// Recover resumes the jobs. No supervisor runs when Stop returns. It is called once.
func (e *Engine) Stop(ctx context.Context) {
	e.Drain()
	e.mu.Lock()
	e.shutdown.phase = max(e.shutdown.phase, shutdownStopping)
	e.shutdown.check(&e.jobs, &e.queues)
	e.mu.Unlock()
	e.eachRun((*run).wake) // for leaveAtGate
	defer e.pool.Close()
	done := make(chan struct{})
	go func() {
		select {
		case <-e.shutdown.drainedc:
			e.calls.Wait()
			e.shutdown.stopResting.Store(true)
			e.eachRun((*run).stopUnsupervised)
			e.eachRun(stopEndless)
			e.eachRun(stopQueued)
			e.wg.Wait()
			close(done)
		case <-e.shutdown.quitc:
		}
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	close(e.shutdown.quitc)
	e.calls.cancel(ErrStopping)
	e.eachRun((*run).stop)
	e.wg.Wait()
	e.eachRun((*run).rejectUnhandled)
	e.calls.Wait()
}

// eachRun calls f for every job that has not ended, without e.mu: f may lock the run.
func (e *Engine) eachRun(f func(*run)) {
	e.mu.Lock()
	runs := slices.Collect(maps.Values(e.jobs.runs))
	e.mu.Unlock()
	for _, r := range runs {
		f(r)
	}
}

// release removes an ended job from the tables.
func (e *Engine) release(r *run) {
	e.scheduler.remove(r)
	r.gauge.set(e.cfg.Metrics, arcp.StateFailed) // any state that is not counted
	r.mu.Lock()
	r.timers.stop()
	r.mu.Unlock()
	for _, g := range r.authority.Grants.All() {
		e.leases.remove(g.ID)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs.remove(r)
	e.shutdown.check(&e.jobs, &e.queues)
}
