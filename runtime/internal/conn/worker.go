package conn

import (
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/worker"
)

// Bounds of what a session may have said of its jobs before it was dealt with;
// until it is, nothing more is read from it. One frame is always taken.
const (
	maxWorkFrames = 256
	maxWorkBytes  = 1 << 20
)

// load is what a session has said of the jobs that it does and was not dealt with.
type load struct{ frames, bytes atomic.Int64 }

func (l *load) full() bool {
	return l.frames.Load() >= maxWorkFrames || l.bytes.Load() >= maxWorkBytes
}

// executes reports whether the session may be given jobs.
func (c *conn) executes() bool { return c.negotiated(arcp.FeatureExecutes) }

// offerWork says that the session is there to be given jobs.
func (c *conn) offerWork(who approval.Actor) {
	switch {
	case !c.executes():
	case who.Worker:
		c.srv.opts.Workers.Attach(who, c)
	default: // not any more
		c.srv.opts.Workers.Detach(c.id, c)
	}
}

var _ worker.Conn = (*conn)(nil)

// Deliver has the loop send an envelope.
func (c *conn) Deliver(env arcp.Envelope) {
	size := len(env.Payload)
	c.output.box.expect(size)
	c.inbox.post(&dispatch{env, size})
}

// Queued is how many bytes wait for the peer.
func (c *conn) Queued() int { return c.output.box.queued() }

// work takes what the session says of a job that it does.
func (c *conn) work(now time.Time, env *arcp.Envelope) {
	size := int64(len(env.Payload))
	c.pending.load.frames.Add(1)
	c.pending.load.bytes.Add(size)
	if err := c.srv.opts.Workers.Receive(c.id, env, func() { c.unload(size) }); err != nil {
		c.srv.opts.Metrics.ProtocolErrors.WithLabelValues("stale_work").Inc()
		c.nack(now, env.ID, err)
	}
}

// unload is told, by any goroutine, that a frame was dealt with.
func (c *conn) unload(size int64) {
	was := c.pending.load.full()
	c.pending.load.frames.Add(-1)
	if c.pending.load.bytes.Add(-size); was {
		c.wake()
	}
}
