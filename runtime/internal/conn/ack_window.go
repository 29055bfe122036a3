package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// lagWarning is the number of unacknowledged events after which the client is sent backpressure,
// once (SPEC.md §5.3).
const lagWarning = 1000

// Actions for slow consumers, a metric label.
const (
	slowAckLag  = "ack_lag"
	slowBacklog = "backlog_overflow"
	slowSkipped = "feed_gap"
	slowClosed  = "feed_closed"
)

// ackWindow has the position of the client in the session's log. It bounds the unacknowledged
// events, and trims the acknowledged ones.
type ackWindow struct {
	c          *conn
	startSeq   uint64         // event_seq before the first position of the cursor
	acked      uint64         // event_seq of the last acknowledged event
	position   resumePosition // any goroutine may read it
	clientAcks bool           // the client sends acknowledgements
	paused     bool           // no event is sent, because the client may still send resume
	locating   bool           // the position of a resume is being read
	warned     bool           // the client was sent backpressure
	followed   []arcp.JobID   // jobs of other sessions that the session followed when it was resumed
}

var ackRoutes = map[arcp.Type]handler{
	arcp.SessionAck: on(ackOf, (*ackWindow).handleAck),
	arcp.Resume:     on(ackOf, (*ackWindow).handleResume),
}

func ackOf(c *conn) *ackWindow { return &c.ack }

// attach sets the positions of a connection whose cursor starts after the event after. The events up
// to trimmed are acknowledged.
func (aw *ackWindow) attach(after, trimmed uint64, clientAcks bool) {
	aw.startSeq, aw.acked, aw.clientAcks = after, trimmed, clientAcks
	aw.position.start(after, clientAcks, trimmed)
}

// apply sets the limit of the cursor to the acknowledged events and the window. While paused, the
// limit stays.
func (aw *ackWindow) apply() {
	if aw.paused {
		return
	}
	limit := uint64(eventlog.NoLimit)
	if w := aw.c.machine.Window(); w > 0 && aw.clientAcks {
		limit = aw.confirmed() + uint64(w)
	}
	aw.c.events.cursor.SetLimit(limit)
}

// confirmed returns the event_seq of the last event that the client is known to have: the last
// acknowledged one, or the start of the cursor if that is later.
func (aw *ackWindow) confirmed() uint64 { return max(aw.acked, aw.startSeq) }

// pause stops the events until unpause, because the client may still send resume.
func (aw *ackWindow) pause() {
	aw.paused = true
	aw.c.events.cursor.SetLimit(aw.startSeq)
}

// unpause starts the events. From then on the inbox coalesces acknowledgements.
func (aw *ackWindow) unpause() {
	aw.paused = false
	id := aw.c.id
	aw.c.inbox.ackSession.Store(&id)
	aw.apply()
}

// handleAck handles session.ack.
func (aw *ackWindow) handleAck(_ time.Time, _ *arcp.Envelope, p *arcp.SessionAckPayload) error {
	aw.acknowledge(p.LastProcessedSeq)
	return nil
}

// acknowledge applies an acknowledgement of the events up to seq, at most up to the last sent event
// (SPEC.md §5.3).
func (aw *ackWindow) acknowledge(seq uint64) {
	seq = min(seq, aw.c.events.cursor.Position())
	aw.c.srv.opts.Metrics.AckLag.Observe(float64(aw.c.events.cursor.Position() - max(seq, min(aw.acked, aw.c.events.cursor.Position()))))
	aw.acked = max(aw.acked, seq)
	aw.position.acknowledged(aw.acked)
	if !aw.clientAcks {
		aw.clientAcks, aw.c.session.row.Acks = true, true
		aw.c.session.SetAcks((*sessionConn)(aw.c))
		aw.c.session.saveRow()
	}
	if aw.acked-aw.c.session.row.TrimmedTo >= trimStep || aw.acked == aw.c.events.cursor.Position() {
		aw.trim()
	}
	if aw.warned && aw.c.events.cursor.Position()-aw.confirmed() <= lagWarning/2 {
		aw.warned = false
	}
	aw.apply()
}

// trimStep is the number of acknowledged events for one trim while other events are unacknowledged,
// because a client may acknowledge each event.
const trimStep = 64

// trim trims the acknowledged events.
func (aw *ackWindow) trim() {
	if aw.acked <= aw.c.session.row.TrimmedTo {
		return
	}
	aw.c.session.row.TrimmedTo = aw.acked
	aw.c.srv.opts.Log.Release(aw.c.id, aw.acked)
	aw.c.append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: aw.c.id, Seq: aw.acked}}, NoSync: true})
}

// warnIfLagging sends backpressure, once, when seq is lagWarning events ahead of the client.
func (aw *ackWindow) warnIfLagging(now time.Time, seq uint64) {
	if aw.warned || seq <= aw.confirmed()+lagWarning {
		return
	}
	aw.warned = true
	aw.sendBackpressure(now, slowAckLag)
}

// sendBackpressure counts a slow client and sends backpressure.
func (aw *ackWindow) sendBackpressure(now time.Time, reason string) {
	aw.c.srv.opts.Metrics.SlowConsumers.WithLabelValues(reason).Inc()
	aw.c.send(now, arcp.Frame(arcp.Backpressure, arcp.BackpressurePayload{Reason: reason}))
}

// overflow closes the connection if it has not sent the events up to upTo, which are deleted.
func (aw *ackWindow) overflow(now time.Time, upTo uint64) {
	if aw.c.events.cursor == nil || aw.c.events.cursor.Position() >= upTo || aw.c.ending.close != nil {
		return
	}
	aw.closeForOverflow(now)
}

// closeForOverflow sends backpressure and closes the connection, because its next events are
// deleted.
func (aw *ackWindow) closeForOverflow(now time.Time) {
	aw.sendBackpressure(now, slowBacklog)
	aw.c.ending.closeWith(transport.CloseOverloaded, slowBacklog)
}

// eventSent counts a numbered event that was appended to the batch. For a client that does not
// acknowledge, it trims the events beyond the replay window.
func (aw *ackWindow) eventSent(now time.Time, seq uint64, size int) {
	if aw.clientAcks {
		aw.warnIfLagging(now, seq)
		return
	}
	events, bytes := uint64(aw.c.srv.opts.ReplayEvents), uint64(aw.c.srv.opts.ReplayBytes)
	trim, free := aw.c.session.Replay.Count(seq, size, aw.position.load(), events, bytes)
	if trim > 0 {
		aw.c.append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: aw.c.id, Seq: trim}}, NoSync: true})
	}
	if free {
		aw.c.srv.opts.Log.Release(aw.c.id, seq)
	}
}

// savePosition stores the position of an ended connection, if the client does not acknowledge.
// After a restart the session continues from it.
func (aw *ackWindow) savePosition() {
	if n := aw.position.load(); !aw.clientAcks && n != aw.c.session.row.Written {
		aw.c.session.row.Written = n
		aw.c.session.saveRow()
	}
}
