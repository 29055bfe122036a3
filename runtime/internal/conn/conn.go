package conn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

const (
	maxOpeningFrame = 64 << 10    // bytes of a frame before session.accepted
	maxTurnFrames   = 64          // frames that are handled before their answers are sent
	flushTimeout    = time.Second // bound of writing the last frames
)

// conn is one connection. Only its loop touches it, and after the last turn only the reader, except for
// the fields whose comments say otherwise. Each field of a struct type has the state that changes together, with its methods.
type conn struct {
	srv     *Server
	tc      transport.Conn
	id      arcp.SessionID
	machine *machine.Machine // admits the messages of the client

	handshake handshake
	principal principal
	session   attachedSession
	dialect   dialect

	inbox      inbox      // any goroutine posts
	scheduler  *scheduler // woken by the inbox, room in the outbox and new events
	rates      rates
	unanswered unanswered
	tasks      tasks

	events  eventReader
	ack     ackWindow
	follows follows
	output  output

	commands      commands
	subscriptions subscriptions
	catalog       shownCatalog
	worker        workerLink

	keepalive keepalive
	lease     sessionLease
	renewal   renewal
	ending    ending
}

// ending is the reason why the connection ends. It is open while err and close are nil.
type ending struct {
	err       error          // the error of the reader
	close     *machine.Close // the runtime closes the connection
	halfClose *halfClose     // nil: the client may still send
	loop      sync.WaitGroup // done after the last turn
}

func (e *ending) begun() bool { return e.err != nil || e.close != nil }

// closeWith makes the loop close the connection after this turn.
func (e *ending) closeWith(code transport.CloseCode, reason string) {
	e.close = &machine.Close{Code: int(code), Reason: reason}
}

func newConn(srv *Server, tc transport.Conn) *conn {
	now := time.Now()
	c := &conn{srv: srv, tc: tc, id: arcp.NewSessionID()}
	c.ending.loop.Add(1)
	c.scheduler = newScheduler(srv.opts.Pool, c.turn)
	wake := c.scheduler.wake
	c.inbox.init(wake)
	c.unanswered.wake, c.unanswered.onDone = wake, c.unanswered.done
	c.tasks.pool, c.tasks.inbox = srv.opts.Pool, &c.inbox
	c.tasks.connected, c.tasks.disconnect = context.WithCancel(context.Background())
	c.machine = machine.New(now, srv.machineConfig(hasBinary(tc)), c.id)
	c.bindParts()
	c.handshake.startedAt = now
	c.output.outbox = newOutbox(tc, srv.opts.Pool, wake, c.ack.position.wrote)
	c.output.counts.metrics = srv.opts.Metrics
	c.rates.connection = newLimiter(srv.rate())
	return c
}

// bindParts sets the pointers of the fields to their connection. The connection speaks the RFC's
// dialect until its first frame is of the draft dialect.
func (c *conn) bindParts() {
	c.handshake.c, c.principal.c, c.session.c = c, c, c
	c.dialect = (*rfcDialect)(c)
	c.rates.c, c.events.c, c.ack.c, c.follows.c = c, c, c, c
	c.commands.c, c.subscriptions.c, c.catalog.c, c.worker.c = c, c, c, c
	c.keepalive.c, c.lease.c, c.renewal.c = c, c, c
}

// run serves the connection on the reader's goroutine, and returns when all of its goroutines
// have ended.
func (c *conn) run() error {
	c.tc.SetReadLimit(maxOpeningFrame)
	c.scheduler.wake()
	c.inbox.readFrames(c.tc)
	c.ending.loop.Wait()
	c.tasks.group.Wait()
	c.output.outbox.drain(context.Background())
	c.detach()
	return c.ending.err
}

// turn runs one turn of the loop. It returns false after the last turn.
func (c *conn) turn() bool {
	c.rates.resume()
	c.receiveFrames()
	now := time.Now()
	c.runActions(now)
	c.lease.advance(now)
	c.perform(now)
	c.keepalive.advance(now)
	unfinished := c.ending.halfClose.unfinished(c)
	c.flush(now)
	if c.ending.halfClose != nil {
		c.ending.halfClose.advance(c, now, unfinished)
	}
	if c.ending.begun() {
		c.end()
		c.ending.loop.Done()
		return false
	}
	if c.mayReceive() && c.inbox.hasFrames() {
		c.scheduler.wake()
	}
	c.schedule()
	return true
}

// receiveFrames handles frames of the inbox. It handles at most maxTurnFrames, so that their
// answers are sent together.
func (c *conn) receiveFrames() {
	for n := 0; n < maxTurnFrames && c.mayReceive(); n++ {
		f, ok := c.inbox.takeFrame()
		if !ok {
			return
		}
		c.receive(time.Now(), f)
		if c.ending.begun() {
			return
		}
	}
}

// mayReceive reports whether the loop handles frames now. It handles none while a rate limit pauses
// the client, a command runs on another goroutine, a used resume token is being stored, or full
// reports true. The end of each of these wakes the loop.
func (c *conn) mayReceive() bool {
	return c.rates.paused.IsZero() && !c.renewal.tokenPending && !c.tasks.inOrderRunning && !c.full()
}

// full reports whether too many bytes wait for the client, or too many commands for their
// answers. The end of each reason wakes the loop.
func (c *conn) full() bool {
	return c.output.outbox.queued() > outboxHard || c.worker.full() || c.unanswered.full() ||
		c.events.cursor != nil && c.events.cursor.QueuedAnswers() >= maxUnanswered
}

// receive passes a frame to the machine and performs its output. The frame may also be
// undecodable, or the error that ended the reader.
func (c *conn) receive(now time.Time, in inbound) {
	if in.codec != nil {
		c.useDraft(in.codec)
	}
	switch {
	case in.err != nil:
		if c.ending.halfClose = beginHalfClose(c.tc, now, in.err); c.ending.halfClose == nil {
			c.ending.err = in.err
			break
		}
		c.keepalive.stop() // the client cannot answer
	case in.fault != nil:
		c.refuseSidecar(now, in.fault)
		c.perform(now)
	case in.bad != nil:
		c.machine.Malformed(in.bad)
		c.perform(now)
	case in.refused != nil:
		c.refuseFrame(now, in.refused)
		c.perform(now)
	default:
		if c.events.cursor != nil && !c.renewal.confirmToken() {
			c.inbox.putBack(in)
			return
		}
		c.srv.opts.Metrics.CountReceived(in.env.Type, 1, in.size)
		if !c.rates.refuse(now, in.env) {
			c.machine.Receive(now, in.env)
		}
		c.perform(now)
	}
}

// perform performs the outputs of the machine, each in the order of its fields, until there is
// none. It calls route for an admitted message, and handshake.handle for a request.
func (c *conn) perform(now time.Time) {
	for {
		out := c.machine.TakeOutput()
		for _, incident := range out.Incidents {
			c.reportIncident(incident)
		}
		for _, env := range out.Send {
			c.send(now, env)
		}
		if out.SendEvents {
			c.ack.unpause()
		}
		if out.Admitted.Envelope != nil {
			c.route(now, out.Admitted)
		}
		if out.CancelJobs {
			c.srv.opts.Engine.SessionJobs().CancelAll(c.id, "session closed")
		}
		if out.Close != nil {
			c.ending.close = out.Close
			if out.Close.Evicted != "" {
				c.srv.recordEviction(c.id, out.Close.Evicted, out.Close.Reason)
			}
			return
		}
		if out.Request == nil {
			return
		}
		c.handshake.handle(now, out.Request)
	}
}

// reportIncident counts and logs a message that was dropped or refused.
func (c *conn) reportIncident(i machine.Incident) {
	c.srv.opts.Metrics.ProtocolErrors.WithLabelValues(i.Reason).Inc()
	if i.Rejected {
		c.handshake.recordRejected(i.Reason, i.Detail)
	}
	if i.Reason == machine.ReasonRole {
		c.principal.audit(string(i.Type)).Str("decision", "denied").Str("reason", i.Reason).Msg("audit")
	}
	ev := c.srv.opts.Logger.Debug()
	if i.Warn {
		ev = c.srv.opts.Logger.Warn()
	}
	ev = addText(ev, "type", string(i.Type))
	ev = addText(ev, "detail", i.Detail)
	ev.Str("session_id", string(c.id)).Str("reason", i.Reason).Msg("frame dropped or refused")
}

// runActions handles the acknowledgements of the inbox, and runs its actions.
func (c *conn) runActions(now time.Time) {
	actions, acked := c.inbox.takeActions()
	switch {
	case acked.n == 0:
	case !c.renewal.confirmToken():
		c.inbox.putBackAcks(acked)
	default:
		c.srv.opts.Metrics.CountReceived(arcp.SessionAck, acked.n, acked.bytes)
		c.ack.acknowledge(acked.seq)
	}
	for _, a := range actions {
		a.run(c, now)
	}
}

// flush collects the events and answers for the client while the outbox has room, and publishes the
// batch of this turn. The batch of the last turn is left to end.
func (c *conn) flush(now time.Time) {
	if c.events.cursor != nil && c.ending.close == nil {
		c.events.pull(now)
	}
	if c.catalog.stale {
		c.catalog.announce(now)
	}
	if c.ending.close == nil {
		c.output.publish(!c.unanswered.any())
	}
}

// schedule sets the timer for the next turn that is due.
func (c *conn) schedule() {
	d := c.machine.Deadline()
	for _, t := range [...]time.Time{c.rates.paused, c.keepalive.due, c.subscriptions.due, c.ending.halfClose.nextCheck()} {
		if !t.IsZero() && (d.IsZero() || t.Before(d)) {
			d = t
		}
	}
	switch {
	case d.IsZero():
		if c.scheduler.tick != nil {
			c.scheduler.tick.Stop()
			c.scheduler.tick = nil
		}
	case c.scheduler.tick == nil:
		c.scheduler.tick = time.AfterFunc(time.Until(d), c.scheduler.wake)
	default:
		c.scheduler.tick.Reset(time.Until(d))
	}
}

// end writes the last frames and closes the connection. If the peer is gone, it aborts the
// connection.
func (c *conn) end() {
	c.inbox.close()
	c.tasks.disconnect()
	if c.scheduler.tick != nil {
		c.scheduler.tick.Stop()
	}
	code, reason := closeOf(c.ending.close, c.ending.err)
	if code == 0 {
		_ = c.tc.Abort() // the peer is gone
		return
	}
	c.output.finish()
	if err := c.tc.Close(code, reason); err != nil {
		c.srv.opts.Logger.Debug().Err(err).Str("session_id", string(c.id)).Msg("close connection")
	}
}

// closeOf returns the code and the reason to close a connection with; 0 if the peer is gone.
func closeOf(closing *machine.Close, err error) (transport.CloseCode, string) {
	if closing != nil {
		return transport.CloseCode(closing.Code), closing.Reason
	}
	te, ok := errors.AsType[*transport.Error](err)
	switch {
	case ok && te.Remote:
		return transport.CloseNormal, ""
	case ok && te.Code != transport.CloseAbnormal && te.Code != 0:
		return te.Code, te.Reason
	}
	return 0, ""
}

// append appends a write that has no answer.
func (c *conn) append(w *store.Write) {
	c.unanswered.add()
	c.srv.opts.Log.Append(w, func(*store.Result) { c.unanswered.done() })
}
