// Package engine runs jobs: it accepts submits, gives each running job a
// supervisor, and ends every job exactly once.
//
// A submit becomes a durable job and its job.accepted in one commit; the caller
// never waits for it. One goroutine, the supervisor, owns the machine of a
// running job and is the only one to append to its log, so a job's events are in
// the order in which they were emitted. A queued job is a row and a place in its
// tool's queue, without a goroutine.
package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/runtime/metrics"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
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

	Limits
}

// Limits bounds the jobs that have not ended.
type Limits struct {
	MaxJobs             int // of everybody
	MaxJobsPerPrincipal int
	MaxJobsPerSession   int
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
	perSession   map[arcp.SessionID]int
	perPrincipal map[string]int
	lanes        map[*tool.Tool]*lane
	draining     bool
	drained      chan struct{} // closed when draining and no job is left

	order order

	pool *pool.Pool
	wg   sync.WaitGroup // supervisors
	quit chan struct{}  // closed when Stop does not wait any longer
}

// New returns an engine. Call Recover before the first Submit.
func New(cfg Config) *Engine {
	return &Engine{cfg: cfg, limits: cfg.Limits, runs: make(map[arcp.JobID]*run), perSession: make(map[arcp.SessionID]int),
		perPrincipal: make(map[string]int), lanes: make(map[*tool.Tool]*lane),
		order: order{held: make(map[arcp.SessionID][]step)}, drained: make(chan struct{}), quit: make(chan struct{}), pool: pool.New()}
}

// SetLimits changes the limits; jobs that are over the new ones go on.
func (e *Engine) SetLimits(l Limits) {
	e.mu.Lock()
	e.limits = l
	e.mu.Unlock()
}

// Live is the number of jobs that have not ended.
func (e *Engine) Live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}

// Recover ends the jobs that an earlier process left behind: each is failed
// once with ABORTED, which may be retried.
func (e *Engine) Recover(ctx context.Context) (int, error) {
	var left []store.Job
	err := e.cfg.Store.Live(ctx, func(j store.Job) bool {
		left = append(left, j)
		return true
	})
	if err != nil {
		return 0, err
	}
	results := make(chan error, len(left))
	for i := range left {
		e.cfg.Log.Append(abort(&left[i]), func(r *store.Result) { results <- r.Err })
	}
	for i := range left {
		if err := <-results; err != nil {
			return i, err
		}
		e.cfg.Metrics.JobsRecovered.WithLabelValues(string(tool.RecoveryFail)).Inc()
	}
	return len(left), nil
}

func abort(j *store.Job) *store.Write {
	common := commonOf(j)
	failure := arcp.Errorf(arcp.CodeAborted, "the runtime stopped while the job was %s", j.State)
	ev := terminalEvent(j, &common, failedOutcome(failure), time.Now())
	return &store.Write{Job: j.ID, Attempt: j.Attempt, Events: []*store.Event{ev}, State: arcp.StateFailed,
		Code: failure.Code}
}

// Drain refuses submits from now on.
func (e *Engine) Drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.draining {
		e.draining = true
		e.noteDrained()
	}
}

// noteDrained is called with e.mu when draining begins, and at every job's end.
func (e *Engine) noteDrained() {
	if e.draining && len(e.runs) == 0 {
		close(e.drained)
	}
}

// ErrStopping is the cause with which tools are stopped by Stop.
var ErrStopping = errors.New("the runtime is shutting down")

// Stop waits for the jobs, also those that are queued or being accepted, until
// ctx ends, then stops their supervisors without ending the jobs: the next
// Recover does. No supervisor runs when it returns. It is called once.
func (e *Engine) Stop(ctx context.Context) {
	e.Drain()
	defer e.pool.Close()
	done := make(chan struct{})
	go func() {
		select {
		case <-e.drained:
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
	e.mu.Lock()
	for _, r := range e.runs {
		r.quit()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

// release takes an ended job off the books.
func (e *Engine) release(r *run) {
	r.count(arcp.StateFailed) // whatever it was: it is not counted any more
	e.mu.Lock()
	delete(e.runs, r.row.ID)
	count(e.perSession, r.row.Session, -1)
	count(e.perPrincipal, r.row.Principal, -1)
	e.noteDrained()
	e.mu.Unlock()
}

func count[K comparable](m map[K]int, k K, d int) {
	if n := m[k] + d; n == 0 {
		delete(m, k)
	} else {
		m[k] = n
	}
}
