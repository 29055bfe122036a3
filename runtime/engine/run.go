package engine

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/job"
	"github.com/arcpd/arcpd/runtime/metrics"
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

// run is a job that has not ended. Once launched, its supervisor owns the
// machine; everything below mu may be touched by anyone who holds it.
type run struct {
	e          *Engine
	row        store.Job // not changed after the claim
	tool       *tool.Tool
	tm         *metrics.Tool
	common     store.Common
	maxRuntime time.Duration
	created    time.Time

	direct, strict, withSession bool
	slot                        bool             // holds one of its tool's slots; guarded by Engine.mu
	gauge                       prometheus.Gauge // of the state it is counted in; nil: none

	kick      chan struct{} // buffered 1: look again
	committed chan error    // buffered 1: the supervisor's own write is durable

	mu       sync.Mutex
	space    sync.Cond
	posted   []func(*job.Machine, time.Time) // to be done by the supervisor
	manual   bool                            // the tool said that it sends the heartbeats
	beat     bool                            // and sent one
	queue    []*store.Event
	bytes    int
	wanted   bool // the supervisor shall start as soon as it may
	placed   bool // the claim has its place in the log: what is appended now comes behind it
	launched bool
	accepted bool // the claim is durable
	dropped  bool // the claim failed: there is no job
	stopped  bool // by quit
	ended    bool // nothing is taken any more
}

// launch starts the supervisor, once, and not before the claim is placed.
func (r *run) launch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = true
	r.launchLocked()
}

func (r *run) launchLocked() {
	if !r.wanted || !r.placed || r.launched || r.dropped || r.stopped {
		return
	}
	r.launched = true
	r.e.wg.Add(1)
	r.e.pool.Run(r.supervise)
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
	r.launchLocked()
	r.mu.Unlock()
	if start && r.holdsSlot() {
		r.launch()
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
	launched := r.launched
	r.mu.Unlock()
	if launched {
		r.wake()
		return
	}
	r.e.release(r)
	r.e.vacate(r)
}

// quit stops the supervisor without ending the job.
func (r *run) quit() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.wake()
}

func (r *run) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// post has f done by the supervisor, which is started for it if the job waits.
// It reports false if the job has ended.
func (r *run) post(f func(*job.Machine, time.Time)) bool {
	r.mu.Lock()
	if r.ended || r.dropped {
		r.mu.Unlock()
		return false
	}
	r.posted = append(r.posted, f)
	r.wanted = true
	r.launchLocked()
	r.mu.Unlock()
	r.wake()
	return true
}

// signal raises one of the tool's flags. Unlike with post, a tool that calls it
// in a tight loop costs nothing.
func (r *run) signal(flag *bool) {
	r.mu.Lock()
	raised := !*flag && !r.ended
	*flag = true
	r.mu.Unlock()
	if raised {
		r.wake()
	}
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
