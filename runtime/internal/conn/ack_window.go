package conn

import (
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// lagWarning is how many events a client that acknowledges may be behind before
// it is told, once (SPEC.md §5.3).
const lagWarning = 1000

// What is done about a slow consumer: a metric label.
const (
	slowAckLag  = "ack_lag"
	slowBacklog = "backlog_overflow"
	slowSkipped = "feed_gap"
	slowClosed  = "feed_closed"
)

// ackWindow is how far the client has come.
type ackWindow struct {
	start    uint64  // the cursor's first position
	acked    uint64  // the last event that the client has acknowledged
	acks     bool    // the client acknowledges
	reached  reached // where a newer connection goes on; any goroutine reads it
	held     bool    // it is not known yet where to go on: no event is sent
	locating bool    // and it is being looked for
	lagging  bool    // the client was told that it falls behind
}

// window holds events back that are too far ahead of what a client that
// acknowledges has acknowledged. While it is not known where the connection goes
// on, all are held back.
func (c *conn) window() {
	if c.ack.held {
		return
	}
	limit := uint64(eventlog.NoLimit)
	if w := c.m.Window(); w > 0 && c.ack.acks {
		limit = c.base() + uint64(w)
	}
	c.cursor.SetLimit(limit)
}

// base is what the client has for certain: what it has acknowledged, and where it
// said to go on, which may be ahead of what was stored of its acknowledgements.
func (c *conn) base() uint64 { return max(c.ack.acked, c.ack.start) }

// hold keeps all events back until release: the client may still say where to go
// on.
func (c *conn) hold() {
	c.ack.held = true
	c.cursor.SetLimit(c.ack.start)
}

// release lets the events go. From then on acknowledgements need not keep their
// place among the other messages.
func (c *conn) release() {
	c.ack.held = false
	id := c.id
	c.input.acks.session.Store(&id)
	c.window()
}

// acknowledge forgets what the client has processed; a number it was never sent
// counts as everything it was sent (SPEC.md §5.3).
func (c *conn) acknowledge(seq uint64) {
	if !c.ack.acks {
		c.ack.acks = true
		c.row.Acks = true
		c.session.SetAcks()
		c.saveRow()
	}
	seq = min(seq, c.cursor.Position())
	c.srv.opts.Metrics.AckLag.Observe(float64(c.cursor.Position() - max(seq, min(c.ack.acked, c.cursor.Position()))))
	c.ack.acked = max(c.ack.acked, seq)
	c.ack.reached.acknowledged(c.ack.acked)
	if c.ack.acked-c.row.TrimmedTo >= trimStep || c.ack.acked == c.cursor.Position() {
		c.trimAcked()
	}
	if c.ack.lagging && c.cursor.Position()-c.base() <= lagWarning/2 {
		c.ack.lagging = false
	}
	c.window()
}

// trimStep is how many acknowledged events are forgotten at once, while there are
// others on their way: a client may acknowledge each of them.
const trimStep = 64

// trimAcked forgets what was acknowledged; also when the connection ends.
func (c *conn) trimAcked() {
	if c.ack.acked <= c.row.TrimmedTo {
		return
	}
	c.row.TrimmedTo = c.ack.acked
	c.srv.opts.Log.Free(c.id, c.ack.acked)
	c.append(&store.Write{Trim: &store.Trim{Session: c.id, Seq: c.ack.acked}, NoSync: true})
}

// lags tells a client that acknowledges when it falls behind.
func (c *conn) lags(now time.Time, seq uint64) {
	if c.ack.lagging || seq <= c.base()+lagWarning {
		return
	}
	c.ack.lagging = true
	c.slow(now, slowAckLag)
}

func (c *conn) slow(now time.Time, reason string) {
	c.srv.opts.Metrics.SlowConsumers.WithLabelValues(reason).Inc()
	c.send(now, arcp.Frame(arcp.Backpressure, arcp.BackpressurePayload{Reason: reason}))
}

// overflow ends the connection of a session that is so far behind that its
// oldest events are not kept.
func (c *conn) overflow(now time.Time, upTo uint64) {
	if c.cursor == nil || c.cursor.Position() >= upTo || c.ending.close != nil {
		return
	}
	c.tooFarBehind(now)
}

// tooFarBehind ends a connection whose next events are not kept, and says so.
func (c *conn) tooFarBehind(now time.Time) {
	c.slow(now, slowBacklog)
	c.ending.close = &machine.Close{Code: int(transport.CloseOverloaded), Reason: slowBacklog}
}

// reached is where a newer connection of the session goes on: after what the
// client has acknowledged or, if it does not acknowledge, after what was written to
// it. The connection's loop and its writer tell of it, anybody may ask.
type reached struct {
	acks           atomic.Bool
	acked, written atomic.Uint64
}

// start says where the connection begins; acked only counts if the client
// acknowledges.
func (r *reached) start(after uint64, acks bool, acked uint64) {
	r.written.Store(after)
	r.acked.Store(min(after, acked))
	r.acks.Store(acks)
}

// acknowledged says that the client acknowledges, from now on, and what.
func (r *reached) acknowledged(seq uint64) {
	r.acked.Store(seq)
	r.acks.Store(true)
}

// wrote is told by the writer which event is written.
func (r *reached) wrote(seq uint64) { r.written.Store(seq) }

func (r *reached) position() uint64 {
	if r.acks.Load() {
		return r.acked.Load()
	}
	return r.written.Load()
}

// wrote is told of every numbered event that goes out.
func (c *conn) wrote(now time.Time, seq uint64, size int) {
	if c.ack.acks {
		c.lags(now, seq)
		return
	}
	trim, look := c.session.Replay.Next(seq, size, c.ack.reached.position(), uint64(c.srv.opts.ReplayEvents), uint64(c.srv.opts.ReplayBytes))
	if trim > 0 {
		c.append(&store.Write{Trim: &store.Trim{Session: c.id, Seq: trim}, NoSync: true})
	}
	if look {
		c.srv.opts.Log.Free(c.id, seq)
	}
}
