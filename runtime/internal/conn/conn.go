package conn

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

const (
	maxOpeningFrame = 64 << 10    // bytes, before the session is accepted
	maxTurn         = 64          // frames that are handled before the answers are sent
	farewellTime    = time.Second // for the last frames to be written
)

// conn is one connection. Only its loop touches it, except for the parts whose comments say
// otherwise. Each part has the state that changes together, and the methods that change it.
type conn struct {
	srv *Server
	tc  transport.Conn
	id  arcp.SessionID
	m   *machine.Machine

	handshake handshake
	principal principal
	session   *session.Session // nil: not accepted yet
	row       store.Session    // of the session, as this connection last stored it

	inbox     inbox      // any goroutine posts
	scheduler *scheduler // woken by the inbox, room in the outbox or new events
	rates     rates
	pending   pending
	tasks     tasks

	cursor  *eventlog.Cursor // nil: not accepted yet
	events  eventReader
	ack     ackWindow
	follows follows
	output  output

	subscriptions subscriptions
	catalogue     catalogue
	worker        workerLink

	keepalive keepalive
	lease     sessionLease
	renewal   renewal
	ending    ending
}

// ending is the reason why the connection ends. While err and close are nil it is open.
type ending struct {
	err       error          // of the reader
	close     *machine.Close // by the runtime
	halfClose *halfClose     // nil: the client has not ended sending
	loop      sync.WaitGroup // done after the last turn
}

func newConn(srv *Server, tc transport.Conn) *conn {
	now := time.Now()
	c := &conn{srv: srv, tc: tc, id: arcp.NewSessionID()}
	c.ending.loop.Add(1)
	c.scheduler = newScheduler(srv.opts.Pool, c.turn)
	wake := c.scheduler.wake
	c.inbox.init(wake)
	c.pending.wake = wake
	c.tasks.pool, c.tasks.inbox = srv.opts.Pool, &c.inbox
	c.m = machine.New(now, srv.sessionOffer(), c.id)
	bindParts(c)
	c.handshake.begun = now
	c.output.box = newOutbox(tc, srv.opts.Pool, wake, c.ack.position.wrote)
	c.output.counts.m = srv.opts.Metrics
	c.rates.limiter = newLimiter(srv.rate())
	return c
}

// bindParts gives the parts of a connection that need it their pointer to it.
func bindParts(c *conn) {
	c.handshake.c, c.renewal.c, c.lease.c = c, c, c
	c.events.c, c.ack.c, c.follows.c = c, c, c
	c.subscriptions.c, c.catalogue.c, c.worker.c = c, c, c
}

// serve runs the connection to its end.
func (c *conn) serve() error {
	c.tc.SetReadLimit(maxOpeningFrame)
	c.scheduler.wake()
	c.inbox.readFrames(c.tc)
	c.ending.loop.Wait()
	c.tasks.group.Wait()
	c.output.box.drain()
	c.leave()
	if c.rates.share != nil {
		c.srv.shares.leave(c.principal.identity.Principal)
	}
	return c.ending.err
}

// turn takes one turn of the loop. It returns false after the last one.
func (c *conn) turn() bool {
	c.rates.resume()
	c.receiveFrames()
	now := time.Now()
	c.handleMessages(now)
	c.lease.advance(now)
	c.perform(now)
	c.keepalive.advance(c, now)
	unfinished := c.ending.halfClose.unfinished(c)
	c.pump(now)
	if c.ending.halfClose != nil {
		c.ending.halfClose.advance(c, now, unfinished)
	}
	if c.ending.err != nil || c.ending.close != nil {
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

// full reports whether too many bytes wait for the client, or too many commands for their
// answers, to handle another frame. Each of the reasons wakes the loop when it ends.
func (c *conn) full() bool {
	return c.output.box.queued() > outboxHard || c.worker.full() || c.pending.full() || c.cursor != nil && c.cursor.Waiting() >= maxPending
}

// receiveFrames handles the frames that were read, at most maxTurn, so that their answers are
// sent together.
func (c *conn) receiveFrames() {
	for n := 0; n < maxTurn && c.mayReceive(); n++ {
		f, ok := c.inbox.takeFrame()
		if !ok {
			return
		}
		c.receive(time.Now(), f)
		if c.ending.err != nil || c.ending.close != nil {
			return
		}
	}
}

// mayReceive reports whether frames are handled now: not while the client exceeds its rate or
// does not read its answers, nor while a command reads the store. The end of each reason wakes
// the loop.
func (c *conn) mayReceive() bool {
	return c.rates.paused.IsZero() && !c.renewal.tokenPending && !c.tasks.reading && !c.full()
}

// schedule sets the timer for the next turn that is due.
func (c *conn) schedule() {
	d := c.m.Deadline()
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

// handleMessages handles the acknowledgements and messages in the inbox.
func (c *conn) handleMessages(now time.Time) {
	messages, acked := c.inbox.takeMessages()
	switch {
	case acked.n == 0:
	case !c.renewal.confirmToken():
		c.inbox.untakeAcks(acked)
	default:
		c.srv.opts.Metrics.In(arcp.SessionAck, acked.n, acked.bytes)
		c.ack.acknowledge(acked.seq)
	}
	for _, m := range messages {
		m.handle(c, now)
	}
}

// receive handles a result of the reader.
func (c *conn) receive(now time.Time, in inbound) {
	switch {
	case in.err != nil:
		if c.ending.halfClose = beginHalfClose(c.tc, now, in.err); c.ending.halfClose == nil {
			c.ending.err = in.err
			break
		}
		c.keepalive.due = time.Time{} // the client cannot answer
	case in.bad != nil:
		c.m.Malformed(in.bad)
		c.perform(now)
	default:
		if c.cursor != nil && !c.renewal.confirmToken() {
			c.inbox.untake(in)
			return
		}
		c.srv.opts.Metrics.In(in.env.Type, 1, in.size)
		if !c.limited(now, in.env) {
			c.m.Receive(now, in.env)
		}
		c.perform(now)
	}
}

// limited refuses a frame over the rate of the connection or of its principal. The next frames
// are handled later, so that the client has to wait.
func (c *conn) limited(now time.Time, env *arcp.Envelope) bool {
	if c.m.Phase() != machine.Accepted || free(env.Type) {
		return false
	}
	limiter := c.rates.exceeded(now)
	if limiter == nil {
		return false
	}
	c.srv.opts.Metrics.RateLimited.WithLabelValues("frames").Inc()
	c.nack(now, env.ID, arcp.Errorf(arcp.CodeResourceExhausted, "more than %d messages a minute", ratePerMin(limiter)).RetryAfter(1))
	c.rates.pause(now, limiter)
	return true
}

// free reports whether a type does not count against the rate.
func free(t arcp.Type) bool {
	switch t {
	case arcp.Ping, arcp.Pong, arcp.SessionPing, arcp.SessionPong, arcp.SessionAck, arcp.Ack:
		return true
	}
	return false
}

// perform carries out the machine's output until there is none, in the order of its fields.
func (c *conn) perform(now time.Time) {
	for {
		out := c.m.TakeOutput()
		for _, n := range out.Incidents {
			c.note(n)
		}
		for _, env := range out.Send {
			c.send(now, env)
		}
		if out.SendEvents {
			c.ack.release()
		}
		if out.Admitted.Envelope != nil {
			c.handle(now, out.Admitted)
		}
		if out.CancelJobs {
			c.srv.opts.Engine.CancelSession(c.id, "session closed", true)
		}
		if out.Close != nil {
			c.ending.close = out.Close
			if out.Close.Evicted != "" {
				c.srv.evictedByRuntime(c.id, out.Close.Evicted, out.Close.Reason)
			}
			return
		}
		if out.Request == nil {
			return
		}
		c.handshake.answer(now, out.Request)
	}
}

// note counts and logs a message that was dropped or refused.
func (c *conn) note(n machine.Incident) {
	c.srv.opts.Metrics.ProtocolErrors.WithLabelValues(n.Reason).Inc()
	if n.Rejected {
		c.handshake.log(c.srv.opts.Logger.Warn().Str("reason", n.Detail), "rejected")
	}
	if n.Reason == machine.ReasonRole {
		c.audit(string(n.Type)).Str("decision", "denied").Str("reason", n.Reason).Msg("audit")
	}
	ev := c.srv.opts.Logger.Debug()
	if n.Warn {
		ev = c.srv.opts.Logger.Warn()
	}
	ev.Str("session_id", string(c.id)).Str("reason", n.Reason).Str("type", string(n.Type)).
		Str("detail", n.Detail).Msg("frame dropped or refused")
}

// pump hands the events of the session's log, as long as there is room, and everything that
// was sent in this turn to the writer.
func (c *conn) pump(now time.Time) {
	if c.cursor != nil && c.ending.close == nil {
		c.events.pull(now)
	}
	if c.catalogue.stale {
		c.catalogue.announce(now)
	}
	c.output.publish()
}

// end flushes the outbox and closes the connection. If the peer is gone, it aborts the
// connection.
func (c *conn) end() {
	c.inbox.close()
	c.tasks.endJudgement()
	if c.scheduler.tick != nil {
		c.scheduler.tick.Stop()
	}
	code, reason := closeOf(c.ending.close, c.ending.err)
	if code == 0 {
		_ = c.tc.Abort() // the peer is gone
		return
	}
	if c.output.fill != nil {
		c.output.box.publish(c.output.fill, 0)
		c.output.fill = nil
	}
	flushed := make(chan struct{})
	go func() { c.output.box.drain(); close(flushed) }()
	t := time.NewTimer(farewellTime)
	defer t.Stop()
	select {
	case <-flushed:
	case <-t.C:
	}
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

// saveRow stores a change of the session's row that may be lost in a crash.
func (c *conn) saveRow() {
	row := c.row
	c.append(&store.Write{Ops: []store.Op{&store.PutSession{Row: &row}}, NoSync: true})
}

// append appends a write to which there is no answer.
func (c *conn) append(w *store.Write) {
	c.pending.add()
	c.srv.opts.Log.Append(w, func(*store.Result) { c.pending.done() })
}

// audit begins an audit record of an action of the client on another session or its jobs.
func (c *conn) audit(action string) *zerolog.Event {
	return c.srv.opts.Audit.Event(action, c.principal.identity.Principal, c.id)
}
