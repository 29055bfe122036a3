package conn

import (
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/worker"
)

// Bounds of the messages of a worker that the pool has not handled. At a bound, the loop handles no
// more frames of the connection.
const (
	maxWorkFrames = 256
	maxWorkBytes  = 1 << 20
)

// workerLink is the view of the connection for the pool of workers. It counts the messages that the
// pool has not handled yet.
type workerLink struct {
	c             *conn
	frames, bytes atomic.Int64
}

var _ worker.Conn = (*workerLink)(nil)

// full reports whether a bound is reached.
func (wl *workerLink) full() bool {
	return wl.frames.Load() >= maxWorkFrames || wl.bytes.Load() >= maxWorkBytes
}

// offer attaches the session to the pool if it may execute jobs. Otherwise the session loses its jobs.
func (wl *workerLink) offer(actor approval.Actor) {
	switch {
	case !wl.c.session.negotiated(arcp.FeatureExecutes):
	case actor.Worker:
		wl.c.srv.opts.Workers.Attach(actor, wl)
	default:
		wl.c.srv.opts.Workers.Revoke(wl.c.id, wl)
	}
}

// detach detaches the session from the pool.
func (wl *workerLink) detach() {
	if wl.c.session.negotiated(arcp.FeatureExecutes) {
		wl.c.srv.opts.Workers.Detach(wl.c.id, wl)
	}
}

// Expect counts the bytes of an envelope for a later Deliver.
func (wl *workerLink) Expect(bytes int) { wl.c.output.outbox.expect(bytes) }

// Deliver sends an expected envelope to the worker.
func (wl *workerLink) Deliver(env arcp.Envelope) {
	wl.c.inbox.post(&workerFrame{env, len(env.Payload) + len(env.Sidecar)})
}

// Queued returns the bytes that wait for the worker, including expected ones.
func (wl *workerLink) Queued() int { return wl.c.output.outbox.queued() }

// Registered calls Program.Registered.
func (wl *workerLink) Registered() {
	if p := wl.c.principal.program; p != nil && p.Registered != nil {
		p.Registered()
	}
}

// receive passes a message about a job that the session executes to the pool.
func (wl *workerLink) receive(now time.Time, env *arcp.Envelope) {
	size := int64(len(env.Payload) + len(env.Sidecar))
	wl.frames.Add(1)
	wl.bytes.Add(size)
	if err := wl.c.srv.opts.Workers.Receive(wl.c.id, env, func() { wl.handled(size) }); err != nil {
		wl.c.srv.opts.Metrics.ProtocolErrors.WithLabelValues("stale_work").Inc()
		wl.c.nack(now, env.ID, err)
	}
}

// handled counts a message of size bytes as handled. Any goroutine may call it.
func (wl *workerLink) handled(size int64) {
	was := wl.full()
	wl.frames.Add(-1)
	if wl.bytes.Add(-size); was {
		wl.c.scheduler.wake()
	}
}
