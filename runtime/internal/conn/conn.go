package conn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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
	maxOpeningFrame = 64 << 10 // before the session is accepted
	maxTurn         = 64       // frames handled before what they caused is sent
	maxOwed         = 1024     // commands the store has not answered yet, and answers not yet taken, each
	farewellTime    = time.Second
)

// conn is one connection. Its loop, turns that are taken one after the other, alone touches
// it, but for what says otherwise. The goroutine that called Serve reads.
type conn struct {
	srv *Server
	tc  transport.Conn
	id  arcp.SessionID
	m   *machine.Machine

	opening   opening
	principal principal
	session   *session.Session // nil: not accepted yet
	row       store.Session    // of the session, as this connection last stored it

	inbox     inbox      // any goroutine posts
	scheduler *scheduler // woken by the inbox, room in the outbox or new events
	rates     rates
	pending   pending // any goroutine
	tasks     tasks

	cursor    *eventlog.Cursor
	blocked   blocked
	forwarded forwarded
	ack       ackWindow
	feeds     feeds
	tools     toldTools
	output    output

	keepalive keepalive
	lease     sessionLease
	ending    ending
}

// opening is what the handshake needs.
type opening struct {
	begun   time.Time
	scheme  string // of the credentials
	tries   int    // to attach to the session
	resumed bool   // the session had a connection before
	pass    *transport.Pass
}

// output is what the loop hands to the writer.
type output struct {
	box    *outbox
	fill   *frames // the batch of this turn; nil: nothing
	moved  int     // bytes of envelopes that others have expected of the box, and that are in fill
	head   []byte  // of every frame of the session
	counts frameCounts
}

// pending is what the client has caused and that is not answered yet.
type pending struct {
	owed atomic.Int64 // commands whose answer is still to come
	load load         // what a worker has said of its jobs
}

// tasks are the goroutines of async, and what waits for them.
type tasks struct {
	group        sync.WaitGroup
	running      atomic.Int32
	ended        sync.WaitGroup     // by the last turn
	judging      context.CancelFunc // ends the judgement of a credential; nil: none
	reading      bool               // a command waits for what read does; no frame is handled
	tokenPending bool               // the end of the earlier resume tokens is being stored; no frame is handled
}

// beginJudgement returns a context for the judgement of a credential. It ends with the
// connection: Serve does not wait for an issuer that does not answer.
func (t *tasks) beginJudgement() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.judging = cancel
	return ctx
}

// endJudgement ends the context of beginJudgement. It reports false if it has ended before.
func (t *tasks) endJudgement() bool {
	if t.judging == nil {
		return false
	}
	t.judging()
	t.judging = nil
	return true
}

// ending is the reason why the connection ends. While err and close are nil it is open.
type ending struct {
	err   error          // of the reader
	close *machine.Close // by the runtime
	half  *halfClose     // nil: the client has not ended sending
}

func newConn(srv *Server, tc transport.Conn) *conn {
	now := time.Now()
	c := &conn{srv: srv, tc: tc, id: arcp.NewSessionID(), opening: opening{begun: now}}
	c.tasks.ended.Add(1)
	c.scheduler = newScheduler(srv.opts.Pool, c.turn)
	wake := c.scheduler.wake
	c.inbox.init(wake)
	c.output.counts.m = srv.opts.Metrics
	c.m = machine.New(now, srv.sessionOffer(), c.id)
	c.output.box = newOutbox(tc, srv.opts.Pool, wake, c.ack.reached.wrote)
	c.rates.limiter = newLimiter(srv.rate())
	return c
}

func (c *conn) wake() { c.scheduler.wake() }

// async runs f on another goroutine: it may read the store or wait for others. Serve
// returns after f has.
func (c *conn) async(f func()) {
	c.tasks.running.Add(1)
	c.tasks.group.Add(1)
	c.srv.opts.Pool.Run(func() {
		defer c.tasks.group.Done()
		f()
		c.tasks.running.Add(-1)
	})
}

// read runs f on another goroutine, and then what f returned on the loop. Until then no
// frame is handled: commands take effect in the order in which they came.
func (c *conn) read(f func(ctx context.Context) (then func(now time.Time))) {
	c.tasks.reading = true
	c.async(func() {
		then := f(context.Background())
		c.complete(func(now time.Time) {
			c.tasks.reading = false
			then(now)
		})
	})
}

// loop is the connection's loop as its cursors see it.
func (c *conn) loop() eventlog.Loop { return eventlog.Loop{Wake: c.scheduler.wake, Go: c.async} }

// sync waits until the loop has handled the acknowledgements before it, and the writer has
// counted what it has written. The loop must not call it.
func (c *conn) sync(ctx context.Context) {
	handled := make(barrier)
	if c.inbox.post(handled) {
		select {
		case <-handled:
		case <-ctx.Done():
		}
	}
	c.output.box.settle()
}

// serve runs the connection to its end.
func (c *conn) serve() error {
	c.tc.SetReadLimit(maxOpeningFrame)
	c.wake()
	c.readFrames()
	c.tasks.ended.Wait()
	c.tasks.group.Wait()
	c.output.box.drain()
	c.leave()
	c.unbound()
	return c.ending.err
}

// readFrames decodes frames until the connection ends.
func (c *conn) readFrames() {
	for {
		frame, err := c.tc.Read()
		if err == nil && c.inbox.putAck(frame) {
			continue
		}
		in := inbound{err: err, size: len(frame)}
		if err == nil {
			in.env, in.bad = decode(frame)
		}
		if err != nil && !halfClosed(c.tc, err) {
			c.inbox.post(readerEnded{})
		}
		if !c.inbox.put(in) || err != nil {
			return
		}
	}
}

func decode(frame []byte) (*arcp.Envelope, *arcp.EncodingError) {
	env, err := arcp.Decode(frame)
	if err == nil {
		return &env, nil
	}
	if bad, ok := errors.AsType[*arcp.EncodingError](err); ok {
		return nil, bad
	}
	return nil, &arcp.EncodingError{Reason: arcp.ReasonNotJSON, Message: err.Error()}
}

// turn takes one turn of the loop. It returns false after the last one.
func (c *conn) turn() bool {
	if !c.rates.paused.IsZero() && !time.Now().Before(c.rates.paused) {
		c.rates.paused = time.Time{}
	}
	c.receiveFrames()
	now := time.Now()
	c.handleMessages(now)
	c.advance(now)
	c.perform(now)
	c.advanceKeepalive(now)
	unfinished := c.ending.half != nil && c.unfinished()
	c.pump(now)
	if c.ending.half != nil {
		c.ending.half.advance(c, now, unfinished)
	}
	if c.ending.err != nil || c.ending.close != nil {
		c.end()
		c.tasks.ended.Done()
		return false
	}
	if c.mayReceive() && c.inbox.hasFrames() {
		c.wake()
	}
	c.schedule()
	return true
}

// full reports whether too much waits for the peer or for the store to handle further
// commands. Each of the reasons wakes the loop when it ends.
func (c *conn) full() bool {
	return c.output.box.queued() > outboxHard || c.pending.load.full() || c.pending.owed.Load() >= maxOwed || c.cursor != nil && c.cursor.Waiting() >= maxOwed
}

// settle counts the answer of a command. Any goroutine may call it.
func (c *conn) settle() {
	if c.pending.owed.Add(-1) == maxOwed-1 {
		c.wake()
	}
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

// mayReceive reports whether frames are handled now. They are not while the client exceeds
// its rate or does not read its answers, and while a command reads the store. The end of each
// wakes the loop.
func (c *conn) mayReceive() bool {
	return c.rates.paused.IsZero() && !c.tasks.tokenPending && !c.tasks.reading && !c.full()
}

// schedule sets the timer for the next turn that is due.
func (c *conn) schedule() {
	d := c.m.Deadline()
	for _, t := range [...]time.Time{c.rates.paused, c.keepalive.due, c.feeds.due, c.ending.half.nextLook()} {
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
	case !c.heard():
		c.inbox.untakeAcks(acked)
	default:
		c.srv.opts.Metrics.In(arcp.SessionAck, acked.n, acked.bytes)
		c.acknowledge(acked.seq)
	}
	for _, m := range messages {
		m.handle(c, now)
	}
}

func (c *conn) receive(now time.Time, in inbound) {
	switch {
	case in.err != nil:
		if c.ending.half = beginHalfClose(c.tc, now, in.err); c.ending.half == nil {
			c.ending.err = in.err
			break
		}
		c.keepalive.due = time.Time{} // the client cannot answer
	case in.bad != nil:
		c.m.Malformed(in.bad)
		c.perform(now)
	default:
		if c.cursor != nil && !c.heard() {
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

// limited refuses a frame over the connection's rate or its principal's. What comes after is read
// late: the peer waits.
func (c *conn) limited(now time.Time, env *arcp.Envelope) bool {
	if c.m.Phase() != machine.Accepted || free(env.Type) {
		return false
	}
	limiter := c.exceeded(now)
	if limiter == nil {
		return false
	}
	c.srv.opts.Metrics.RateLimited.WithLabelValues("frames").Inc()
	nack := arcp.Frame(arcp.Nack, arcp.Errorf(arcp.CodeResourceExhausted, "more than %d messages a minute",
		ratePerMin(limiter)).RetryAfter(1))
	nack.CorrelationID = env.ID
	c.send(now, nack)
	next := limiter.ReserveN(now, 1)
	c.rates.paused = now.Add(min(time.Second, next.DelayFrom(now)))
	next.CancelAt(now) // it was only asked when
	return true
}

// free are the types that do not count against the rate.
func free(t arcp.Type) bool {
	switch t {
	case arcp.Ping, arcp.Pong, arcp.SessionPing, arcp.SessionPong, arcp.SessionAck, arcp.Ack:
		return true
	}
	return false
}

// perform carries out the machine's output until there is none.
func (c *conn) perform(now time.Time) {
	for {
		out := c.m.Take()
		for _, n := range out.Notes {
			c.note(n)
		}
		for _, env := range out.Send {
			c.send(now, env)
		}
		if out.Release {
			c.release()
		}
		for _, a := range out.Admitted {
			c.handle(now, a)
		}
		if out.CancelJobs {
			c.srv.opts.Engine.CancelSession(c.id, "session closed", true)
		}
		if out.Close != nil {
			c.ending.close = out.Close
			if out.Close.Evicted != "" {
				c.evicted(out.Close.Evicted, out.Close.Reason)
			}
			return
		}
		if out.Question == nil {
			return
		}
		c.answer(now, out.Question)
	}
}

func (c *conn) note(n machine.Note) {
	c.srv.opts.Metrics.ProtocolErrors.WithLabelValues(n.Reason).Inc()
	if n.Rejected {
		c.logHandshake(c.srv.opts.Logger.Warn().Str("reason", n.Detail), "rejected")
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

// send stamps an envelope and queues it.
func (c *conn) send(now time.Time, env arcp.Envelope) {
	env.ARCP = c.m.Version()
	if env.ID == "" { // a dispatch has one, under which it may be sent again
		env.ID = arcp.NewMessageID()
	}
	env.Timestamp = now
	if env.Type != arcp.SessionRejected {
		env.SessionID = c.id
	}
	f := c.batch()
	start := len(f.data)
	f.data = env.Append(f.data)
	f.ends = append(f.ends, len(f.data))
	c.output.counts.add(env.Type, len(f.data)-start)
	if carriesError(env.Type) {
		c.srv.countError(&env)
	}
}

func (c *conn) reply(now time.Time, request arcp.MessageID, t arcp.Type, payload any) {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	c.send(now, env)
}

func (c *conn) nack(now time.Time, request arcp.MessageID, err *arcp.Error) {
	c.reply(now, request, arcp.Nack, err)
}

func carriesError(t arcp.Type) bool {
	switch t {
	case arcp.Nack, arcp.JobFailed, arcp.CancelRefused, arcp.SessionRejected, arcp.SessionUnauthenticated, arcp.SessionEvicted, arcp.SubscribeClosed:
		return true
	}
	return false
}

func (c *conn) batch() *frames {
	if c.output.fill == nil {
		c.output.fill = framesPool.Get().(*frames)
	}
	return c.output.fill
}

// pump moves what the session's log has for this connection to the outbox, as
// long as there is room, and hands everything to the writer.
func (c *conn) pump(now time.Time) {
	if c.cursor != nil && c.ending.close == nil {
		c.pull(now)
	}
	if c.tools.stale {
		c.announce(now)
	}
	if c.output.fill != nil || c.output.moved != 0 {
		c.output.box.publish(c.output.fill, c.output.moved)
		c.output.fill, c.output.moved = nil, 0
	}
	c.output.counts.flush()
}

func (c *conn) pull(now time.Time) {
	if c.cursor.Superseded() {
		c.ending.close = &machine.Close{Code: int(transport.ClosePolicy), Reason: "superseded"}
		return
	}
	waiting, err := c.output.box.size()
	if err != nil {
		c.ending.err = err
		return
	}
	for c.ending.close == nil && waiting+len(c.batch().data) < outboxSoft {
		item, ok, err := c.nextItem()
		if err != nil {
			c.unreadable(now, err)
			break
		}
		if !ok {
			break
		}
		c.deliver(now, item)
	}
	c.pullFeeds(now, outboxSoft-waiting)
	if c.output.fill != nil && len(c.output.fill.data) == 0 {
		c.output.fill.recycle()
		c.output.fill = nil
	}
}

// unreadable closes a connection whose next events cannot be read: they are not kept any
// more, or the store has failed.
func (c *conn) unreadable(now time.Time, err error) {
	if gone, ok := errors.AsType[*store.TrimmedError](err); ok {
		// A job that the session follows may be deleted: without this, every resume
		// from before it would be accepted and end here.
		c.append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: c.id, Seq: gone.UpTo}}, NoSync: true})
		c.tooFarBehind(now)
		return
	}
	c.srv.opts.Logger.Error().Err(err).Str("session_id", string(c.id)).Msg("connection cannot go on")
	c.ending.close = &machine.Close{Code: int(transport.CloseInternal), Reason: "the session's events cannot be read"}
}

func (c *conn) deliver(now time.Time, item eventlog.Item) {
	if item.Event == nil {
		c.send(now, item.Answer.(arcp.Envelope))
		return
	}
	f := c.batch()
	start := len(f.data)
	head := c.output.head
	if item.Origin {
		f.data, head = c.appendOrigin(append(f.data, head...), item.Event), nil
	}
	f.data = store.AppendFrame(f.data, head, item.Seq, item.CorrelationID, item.Event)
	if c.srv.opts.Vault != nil && !item.Origin {
		f.data = c.srv.appendValues(f.data, item.Event)
	}
	f.ends = append(f.ends, len(f.data))
	c.output.counts.add(item.Event.Type, len(f.data)-start)
	if item.Seq != 0 {
		f.last, c.lease.worked = item.Seq, now
		c.wrote(now, item.Seq, len(item.Event.Body))
	}
}

// end flushes the outbox and closes the connection. If the peer is gone it aborts it.
func (c *conn) end() {
	c.inbox.close()
	c.tasks.endJudgement()
	if c.scheduler.tick != nil {
		c.scheduler.tick.Stop()
	}
	code, reason := closeOf(c.ending.close, c.ending.err)
	if code == 0 {
		_ = c.tc.Abort() // nobody is there
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

// append appends a write that has no answer.
func (c *conn) append(w *store.Write) {
	c.pending.owed.Add(1)
	c.srv.opts.Log.Append(w, func(*store.Result) { c.settle() })
}

// audit begins an audit record of something that the client does with what is not the
// session's own.
func (c *conn) audit(action string) *zerolog.Event {
	return c.srv.opts.Audit.Event(action, c.principal.identity.Principal, c.id)
}
