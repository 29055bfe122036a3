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
	start    uint64         // the cursor's first position
	acked    uint64         // the last event that the client has acknowledged
	acks     bool           // the client acknowledges
	reached  resumePosition // where a newer connection goes on; any goroutine reads it
	held     bool           // it is not known yet where to go on: no event is sent
	locating bool           // and it is being looked for
	lagging  bool           // the client was told that it falls behind
}

// window holds back the events that are too far ahead of what the client has acknowledged.
// While the position of the connection is not known, it holds back all events.
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

// base is the last event that the client certainly has: what it has acknowledged, or the
// position that it asked for, which may be ahead of the stored acknowledgement.
func (c *conn) base() uint64 { return max(c.ack.acked, c.ack.start) }

// hold holds back all events until release: the client may still ask for a position.
func (c *conn) hold() {
	c.ack.held = true
	c.cursor.SetLimit(c.ack.start)
}

// release ends hold. From then on acknowledgements may overtake other messages.
func (c *conn) release() {
	c.ack.held = false
	id := c.id
	c.inbox.ackSession.Store(&id)
	c.window()
}

func (c *conn) sessionAck(_ time.Time, _ *arcp.Envelope, p *arcp.SessionAckPayload) error {
	c.acknowledge(p.LastProcessedSeq)
	return nil
}

// acknowledge trims the events that the client has processed. A number above the last event
// that was sent counts as that one (SPEC.md §5.3).
func (c *conn) acknowledge(seq uint64) {
	seq = min(seq, c.cursor.Position())
	c.srv.opts.Metrics.AckLag.Observe(float64(c.cursor.Position() - max(seq, min(c.ack.acked, c.cursor.Position()))))
	c.ack.acked = max(c.ack.acked, seq)
	c.ack.reached.acknowledged(c.ack.acked)
	if !c.ack.acks {
		c.ack.acks, c.row.Acks = true, true
		c.session.SetAcks((*sessionConn)(c))
		c.saveRow()
	}
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
	c.append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: c.id, Seq: c.ack.acked}}, NoSync: true})
}

// lags warns a client that acknowledges and falls behind, once.
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

// tooFarBehind closes a connection whose next events are not kept any more, after a
// backpressure message.
func (c *conn) tooFarBehind(now time.Time) {
	c.slow(now, slowBacklog)
	c.ending.close = &machine.Close{Code: int(transport.CloseOverloaded), Reason: slowBacklog}
}

// resumePosition is the position after which a newer connection of the session continues: the
// last event that the client has acknowledged or, if it does not acknowledge, the last that
// was written to it. The loop and the writer set it; any goroutine reads it.
type resumePosition struct {
	acks           atomic.Bool
	acked, written atomic.Uint64
}

// start sets the position at which the connection begins. acked counts only if the client
// acknowledges.
func (r *resumePosition) start(after uint64, acks bool, acked uint64) {
	r.written.Store(after)
	r.acked.Store(min(after, acked))
	r.acks.Store(acks)
}

// acknowledged sets the last acknowledged event. From now on only acknowledgements count.
func (r *resumePosition) acknowledged(seq uint64) {
	r.acked.Store(seq)
	r.acks.Store(true)
}

// wrote sets the last event that was written. The writer calls it.
func (r *resumePosition) wrote(seq uint64) { r.written.Store(seq) }

func (r *resumePosition) position() uint64 {
	if r.acks.Load() {
		return r.acked.Load()
	}
	return r.written.Load()
}

// wrote counts a numbered event that is about to be written.
func (c *conn) wrote(now time.Time, seq uint64, size int) {
	if c.ack.acks {
		c.lags(now, seq)
		return
	}
	trim, look := c.session.Replay.Next(seq, size, c.ack.reached.position(), uint64(c.srv.opts.ReplayEvents), uint64(c.srv.opts.ReplayBytes))
	if trim > 0 {
		c.append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: c.id, Seq: trim}}, NoSync: true})
	}
	if look {
		c.srv.opts.Log.Free(c.id, seq)
	}
}
