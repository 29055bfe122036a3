package conn

import (
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/worker"
)

// Bounds of the messages about its jobs that a worker has sent and that are not handled. While
// they are exceeded, no frame of the worker is handled; one frame is always accepted.
const (
	maxWorkFrames = 256
	maxWorkBytes  = 1 << 20
)

// workerLink is the connection as the pool of workers sees it. It counts the messages about
// jobs that the pool has not handled yet.
type workerLink struct {
	c             *conn
	frames, bytes atomic.Int64
}

var _ worker.Conn = (*workerLink)(nil)

// full reports whether too many messages are not handled yet.
func (wl *workerLink) full() bool {
	return wl.frames.Load() >= maxWorkFrames || wl.bytes.Load() >= maxWorkBytes
}

// offer attaches the session to the pool if it may execute jobs, and detaches it if it no longer
// may.
func (wl *workerLink) offer(actor approval.Actor) {
	switch {
	case !wl.c.negotiated(arcp.FeatureExecutes):
	case actor.Worker:
		wl.c.srv.opts.Workers.Attach(actor, wl)
	default:
		wl.detach()
	}
}

// detach detaches the session from the pool.
func (wl *workerLink) detach() {
	if wl.c.negotiated(arcp.FeatureExecutes) {
		wl.c.srv.opts.Workers.Detach(wl.c.id, wl)
	}
}

// Expect counts bytes of an envelope that is about to be delivered.
func (wl *workerLink) Expect(bytes int) { wl.c.output.box.expect(bytes) }

// Deliver queues an expected envelope for the worker.
func (wl *workerLink) Deliver(env arcp.Envelope) { wl.c.inbox.post(&dispatch{env, len(env.Payload)}) }

// Queued returns the bytes that wait for the client.
func (wl *workerLink) Queued() int { return wl.c.output.box.queued() }

// Registered tells the owner of the program, if the runtime started the peer.
func (wl *workerLink) Registered() {
	if p := wl.c.principal.program; p != nil && p.Registered != nil {
		p.Registered()
	}
}

// receive handles a message about a job that the session executes.
func (wl *workerLink) receive(now time.Time, env *arcp.Envelope) {
	size := int64(len(env.Payload))
	wl.frames.Add(1)
	wl.bytes.Add(size)
	if err := wl.c.srv.opts.Workers.Receive(wl.c.id, env, func() { wl.handled(size) }); err != nil {
		wl.c.srv.opts.Metrics.ProtocolErrors.WithLabelValues("stale_work").Inc()
		wl.c.nack(now, env.ID, err)
	}
}

// handled counts a message that the pool has handled. Any goroutine may call it.
func (wl *workerLink) handled(size int64) {
	was := wl.full()
	wl.frames.Add(-1)
	if wl.bytes.Add(-size); was {
		wl.c.scheduler.wake()
	}
}
