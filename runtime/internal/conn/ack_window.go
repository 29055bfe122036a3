package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// lagWarning is the number of events by which a client that acknowledges may be behind before
// it is told, once (SPEC.md §5.3).
const lagWarning = 1000

// Actions against a slow consumer: a metric label.
const (
	slowAckLag  = "ack_lag"
	slowBacklog = "backlog_overflow"
	slowSkipped = "feed_gap"
	slowClosed  = "feed_closed"
)

// ackWindow is the position of the client in the session's log. It bounds how far events are
// sent ahead of the acknowledgements, and trims acknowledged events.
type ackWindow struct {
	c        *conn
	start    uint64         // first position of the cursor
	acked    uint64         // last event that the client has acknowledged
	position resumePosition // any goroutine reads it
	acks     bool           // the client acknowledges
	held     bool           // the client may still ask for a position: no event is sent
	locating bool           // the position that the client asked for is being looked up
	lagging  bool           // the client was told that it falls behind
}

// apply holds back the events that are too far ahead of the acknowledgements. While hold is in
// force, all events are held back.
func (aw *ackWindow) apply() {
	if aw.held {
		return
	}
	limit := uint64(eventlog.NoLimit)
	if w := aw.c.m.Window(); w > 0 && aw.acks {
		limit = aw.base() + uint64(w)
	}
	aw.c.cursor.SetLimit(limit)
}

// base returns the last event that the client is known to have: the one that it has
// acknowledged, or the position that it asked for, which may be later.
func (aw *ackWindow) base() uint64 { return max(aw.acked, aw.start) }

// hold holds back all events until release: the client may still ask for a position.
func (aw *ackWindow) hold() {
	aw.held = true
	aw.c.cursor.SetLimit(aw.start)
}

// release ends hold. From then on acknowledgements may pass other frames.
func (aw *ackWindow) release() {
	aw.held = false
	id := aw.c.id
	aw.c.inbox.ackSession.Store(&id)
	aw.apply()
}

// receive handles session.ack.
func (aw *ackWindow) receive(_ time.Time, _ *arcp.Envelope, p *arcp.SessionAckPayload) error {
	aw.acknowledge(p.LastProcessedSeq)
	return nil
}

// acknowledge trims the events that the client has processed. A number above the last event
// that was sent counts as that one (SPEC.md §5.3).
func (aw *ackWindow) acknowledge(seq uint64) {
	seq = min(seq, aw.c.cursor.Position())
	aw.c.srv.opts.Metrics.AckLag.Observe(float64(aw.c.cursor.Position() - max(seq, min(aw.acked, aw.c.cursor.Position()))))
	aw.acked = max(aw.acked, seq)
	aw.position.acknowledged(aw.acked)
	if !aw.acks {
		aw.acks, aw.c.row.Acks = true, true
		aw.c.session.SetAcks((*sessionConn)(aw.c))
		aw.c.saveRow()
	}
	if aw.acked-aw.c.row.TrimmedTo >= trimStep || aw.acked == aw.c.cursor.Position() {
		aw.trim()
	}
	if aw.lagging && aw.c.cursor.Position()-aw.base() <= lagWarning/2 {
		aw.lagging = false
	}
	aw.apply()
}

// trimStep is the number of acknowledged events that are trimmed at once while others are
// unacknowledged: a client may acknowledge each event.
const trimStep = 64

// trim trims the acknowledged events.
func (aw *ackWindow) trim() {
	if aw.acked <= aw.c.row.TrimmedTo {
		return
	}
	aw.c.row.TrimmedTo = aw.acked
	aw.c.srv.opts.Log.Free(aw.c.id, aw.acked)
	aw.c.append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: aw.c.id, Seq: aw.acked}}, NoSync: true})
}

// warn tells a client that acknowledges that it falls behind, once.
func (aw *ackWindow) warn(now time.Time, seq uint64) {
	if aw.lagging || seq <= aw.base()+lagWarning {
		return
	}
	aw.lagging = true
	aw.slow(now, slowAckLag)
}

// slow counts a slow client and sends backpressure.
func (aw *ackWindow) slow(now time.Time, reason string) {
	aw.c.srv.opts.Metrics.SlowConsumers.WithLabelValues(reason).Inc()
	aw.c.send(now, arcp.Frame(arcp.Backpressure, arcp.BackpressurePayload{Reason: reason}))
}

// overflow closes a connection that still has to send events up to upTo, which are not kept.
func (aw *ackWindow) overflow(now time.Time, upTo uint64) {
	if aw.c.cursor == nil || aw.c.cursor.Position() >= upTo || aw.c.ending.close != nil {
		return
	}
	aw.tooFarBehind(now)
}

// tooFarBehind closes a connection whose next events are not kept any more, after a
// backpressure message.
func (aw *ackWindow) tooFarBehind(now time.Time) {
	aw.slow(now, slowBacklog)
	aw.c.ending.close = &machine.Close{Code: int(transport.CloseOverloaded), Reason: slowBacklog}
}

// sent counts a numbered event that is about to be written. If the client does not acknowledge,
// it trims the events that are not kept for a replay.
func (aw *ackWindow) sent(now time.Time, seq uint64, size int) {
	if aw.acks {
		aw.warn(now, seq)
		return
	}
	trim, free := aw.c.session.Replay.Next(seq, size, aw.position.load(), uint64(aw.c.srv.opts.ReplayEvents), uint64(aw.c.srv.opts.ReplayBytes))
	if trim > 0 {
		aw.c.append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: aw.c.id, Seq: trim}}, NoSync: true})
	}
	if free {
		aw.c.srv.opts.Log.Free(aw.c.id, seq)
	}
}

// save stores the position at which the connection has ended, if the client does not
// acknowledge. After a restart the session continues from it.
func (aw *ackWindow) save() {
	if n := aw.position.load(); !aw.acks && n != aw.c.row.Written {
		aw.c.row.Written = n
		aw.c.saveRow()
	}
}
