package runtime

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/eventlog"
	"github.com/arcpd/arcpd/runtime/session"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

const (
	maxOpeningFrame = 64 << 10 // before the session is accepted
	inboxLen        = 8        // decoded frames ahead of the loop
	maxTurn         = 64       // frames handled before what they caused is sent
	maxOwed         = 1024     // commands the store has not answered yet, and answers not yet taken, each
	farewellTime    = time.Second
)

// conn is one connection. Its loop, the goroutine that called Serve, alone
// touches everything but the mail.
type conn struct {
	rt  *Runtime
	tc  transport.Conn
	log zerolog.Logger

	id       arcp.SessionID
	m        *session.Machine
	identity auth.Identity
	begun    time.Time
	scheme   string
	head     []byte // of every frame of the session
	cursor   *eventlog.Cursor
	follows  map[arcp.JobID][]byte // jobs of other sessions that have not ended; see remember
	rate     int                   // frames a minute; 0 or less: any
	limiter  *rate.Limiter         // nil: any

	in   chan inbound
	kick chan struct{} // buffered 1: mail, room or news
	done chan struct{} // the loop has ended
	out  *outbox
	fill *frames
	tick *time.Timer
	tally

	acked     uint64
	paused    time.Time // nothing is read before; zero: not paused
	owner     string    // the principal whose session is counted; guarded by Runtime.mu
	unproven  bool      // counted as not authenticated; guarded by Runtime.mu
	counted   bool      // in the gauge of sessions
	readerErr error
	closing   *session.Close

	owed atomic.Int64 // commands whose answer is still to come

	mailMu sync.Mutex
	mail   []func(now time.Time)
	gone   bool
}

// inbound is what the reader hands to the loop.
type inbound struct {
	env  *arcp.Envelope
	bad  *arcp.EncodingError
	err  error // the connection's end
	size int
}

func newConn(rt *Runtime, tc transport.Conn) *conn {
	now := time.Now()
	c := &conn{rt: rt, tc: tc, id: arcp.NewSessionID(), begun: now, in: make(chan inbound, inboxLen),
		kick: make(chan struct{}, 1), done: make(chan struct{})}
	c.tally.m = rt.metrics
	c.m = session.New(now, &rt.sessionConfig, c.id)
	c.out = newOutbox(tc, rt.pool, c.wake)
	c.log = rt.cfg.Log
	if c.rate = rt.rate(); c.rate > 0 {
		c.limiter = rate.NewLimiter(rate.Limit(float64(c.rate)/60), c.rate/60+1)
	}
	return c
}

func (c *conn) wake() { kick(c.kick) }

func kick(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// waker wakes the loop without holding on to the connection: the event log may
// keep it long after the connection has ended.
func (c *conn) waker() func() {
	ch := c.kick
	return func() { kick(ch) }
}

// post has f done by the loop; it reports false when the loop has ended.
func (c *conn) post(f func(now time.Time)) bool {
	c.mailMu.Lock()
	ok := !c.gone
	if ok {
		c.mail = append(c.mail, f)
	}
	c.mailMu.Unlock()
	c.wake()
	return ok
}

// serve runs the connection to its end.
func (c *conn) serve() error {
	c.tc.SetReadLimit(maxOpeningFrame)
	var reader sync.WaitGroup
	reader.Add(1)
	c.rt.pool.Run(func() {
		defer reader.Done()
		c.read()
	})
	for c.turn() {
	}
	c.end()
	reader.Wait()
	c.out.drain()
	c.leave()
	return c.readerErr
}

// read decodes frames until the connection ends.
func (c *conn) read() {
	for {
		frame, err := c.tc.Read()
		in := inbound{err: err, size: len(frame)}
		if err == nil {
			in.env, in.bad = decode(frame)
		}
		select {
		case c.in <- in:
		case <-c.done:
			return
		}
		if err != nil {
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

// turn waits for something to do and does it; false ends the loop.
func (c *conn) turn() bool {
	in := c.in
	if c.full() || !c.paused.IsZero() {
		in = nil // the peer asks without reading the answers, or too often: it waits
	}
	select {
	case f := <-in:
		c.receive(time.Now(), f)
		c.receiveMore()
	case <-c.kick:
	case <-c.tickC():
	}
	now := time.Now()
	if !now.Before(c.paused) {
		c.paused = time.Time{}
	}
	c.readMail(now)
	c.m.Advance(now)
	c.perform(now)
	c.pump(now)
	return c.readerErr == nil && c.closing == nil
}

// full reports whether too much waits for the peer or for the store to read
// further commands. Each of them wakes the loop when that changes.
func (c *conn) full() bool {
	n, _ := c.out.size()
	return n > outboxHard || c.owed.Load() >= maxOwed || c.cursor != nil && c.cursor.Waiting() >= maxOwed
}

// settle is told, by any goroutine, that a command is answered.
func (c *conn) settle() {
	if c.owed.Add(-1) == maxOwed-1 {
		c.wake()
	}
}

// receiveMore takes frames that are there already, so that what they cause is
// sent together.
func (c *conn) receiveMore() {
	for range maxTurn {
		if !c.paused.IsZero() || c.full() {
			return
		}
		select {
		case f := <-c.in:
			c.receive(time.Now(), f)
		default:
			return
		}
		if c.readerErr != nil || c.closing != nil {
			return
		}
	}
}

func (c *conn) tickC() <-chan time.Time {
	d := c.m.Deadline()
	if !c.paused.IsZero() && (d.IsZero() || c.paused.Before(d)) {
		d = c.paused
	}
	if d.IsZero() {
		if c.tick != nil {
			c.tick.Stop()
			c.tick = nil
		}
		return nil
	}
	if c.tick == nil {
		c.tick = time.NewTimer(time.Until(d))
	} else {
		c.tick.Reset(time.Until(d))
	}
	return c.tick.C
}

func (c *conn) readMail(now time.Time) {
	c.mailMu.Lock()
	mail := c.mail
	c.mail = nil
	c.mailMu.Unlock()
	for _, f := range mail {
		f(now)
	}
}

func (c *conn) receive(now time.Time, in inbound) {
	switch {
	case in.err != nil:
		c.readerErr = in.err
	case in.bad != nil:
		c.m.Malformed(in.bad)
		c.perform(now)
	default:
		c.rt.metrics.In(in.env.Type, in.size)
		if !c.limited(now, in.env) {
			c.m.Receive(now, in.env)
		}
		c.perform(now)
	}
}

// limited refuses a frame over the connection's rate. What comes after is read
// late: the peer waits.
func (c *conn) limited(now time.Time, env *arcp.Envelope) bool {
	if c.limiter == nil || c.m.Phase() != session.Accepted || free(env.Type) || c.limiter.AllowN(now, 1) {
		return false
	}
	c.rt.metrics.RateLimited.WithLabelValues("frames").Inc()
	nack := arcp.Frame(arcp.Nack, arcp.Errorf(arcp.CodeResourceExhausted, "more than %d messages a minute",
		c.rate).RetryAfter(1))
	nack.CorrelationID = env.ID
	c.send(now, nack)
	next := c.limiter.ReserveN(now, 1)
	c.paused = now.Add(min(time.Second, next.DelayFrom(now)))
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

// perform does what the machine asks for until it asks for nothing.
func (c *conn) perform(now time.Time) {
	for {
		out := c.m.Take()
		for _, n := range out.Notes {
			c.note(n)
		}
		for _, env := range out.Send {
			c.send(now, env)
		}
		for _, cmd := range out.Commands {
			c.command(now, cmd)
		}
		if out.Close != nil {
			c.closing = out.Close
			return
		}
		if out.Question == nil {
			return
		}
		c.answer(now, out.Question)
	}
}

func (c *conn) note(n session.Note) {
	c.rt.metrics.ProtocolErrors.WithLabelValues(n.Reason).Inc()
	c.log.Debug().Str("session_id", string(c.id)).Str("reason", n.Reason).Str("type", string(n.Type)).
		Str("detail", n.Detail).Msg("frame dropped or refused")
}

// send stamps an envelope and queues it.
func (c *conn) send(now time.Time, env arcp.Envelope) {
	env.ARCP = c.m.Version()
	env.ID = arcp.NewMessageID()
	env.Timestamp = now
	if env.Type != arcp.SessionRejected {
		env.SessionID = c.id
	}
	f := c.batch()
	start := len(f.data)
	f.data = env.Append(f.data)
	f.ends = append(f.ends, len(f.data))
	c.tally.add(env.Type, len(f.data)-start)
	if carriesError(env.Type) {
		c.rt.countError(&env)
	}
}

func carriesError(t arcp.Type) bool {
	switch t {
	case arcp.Nack, arcp.JobFailed, arcp.SessionRejected, arcp.SessionUnauthenticated:
		return true
	}
	return false
}

func (c *conn) batch() *frames {
	if c.fill == nil {
		c.fill = framesPool.Get().(*frames)
	}
	return c.fill
}

// pump moves what the session's log has for this connection to the outbox, as
// long as there is room, and hands everything to the writer.
func (c *conn) pump(now time.Time) {
	if c.cursor != nil && c.closing == nil {
		c.pull(now)
	}
	if c.fill != nil {
		c.out.publish(c.fill)
		c.fill = nil
	}
	c.tally.flush()
}

func (c *conn) pull(now time.Time) {
	waiting, err := c.out.size()
	if err != nil {
		c.readerErr = err
		return
	}
	for waiting+len(c.batch().data) < outboxSoft {
		item, ok, err := c.cursor.Next(context.Background())
		if err != nil {
			c.log.Error().Err(err).Str("session_id", string(c.id)).Msg("connection cannot go on")
			c.closing = &session.Close{Code: int(transport.CloseInternal), Reason: "the session's events cannot be read"}
			return
		}
		if !ok {
			break
		}
		c.deliver(now, item)
	}
	if len(c.fill.data) == 0 {
		c.fill.recycle()
		c.fill = nil
	}
}

func (c *conn) deliver(now time.Time, item eventlog.Item) {
	if item.Event == nil {
		c.send(now, item.Answer.(arcp.Envelope))
		return
	}
	f := c.batch()
	start := len(f.data)
	head := c.head
	if item.Origin {
		f.data, head = c.appendOrigin(append(f.data, head...), item.Event), nil
	}
	f.data = store.AppendFrame(f.data, head, item.Seq, item.CorrelationID, item.Event)
	f.ends = append(f.ends, len(f.data))
	c.tally.add(item.Event.Type, len(f.data)-start)
}

// end says farewell, if there is anybody to say it to.
func (c *conn) end() {
	c.mailMu.Lock()
	c.gone = true
	c.mailMu.Unlock()
	close(c.done)
	c.tickStop()
	code, reason := closeOf(c.closing, c.readerErr)
	if code == 0 {
		_ = c.tc.Abort() // nobody is there
		return
	}
	if c.fill != nil {
		c.out.publish(c.fill)
		c.fill = nil
	}
	flushed := make(chan struct{})
	go func() { c.out.drain(); close(flushed) }()
	t := time.NewTimer(farewellTime)
	defer t.Stop()
	select {
	case <-flushed:
	case <-t.C:
	}
	if err := c.tc.Close(code, reason); err != nil {
		c.log.Debug().Err(err).Str("session_id", string(c.id)).Msg("close connection")
	}
}

func (c *conn) tickStop() {
	if c.tick != nil {
		c.tick.Stop()
	}
}

// closeOf is the code to end a connection with; 0 if the peer is gone.
func closeOf(closing *session.Close, err error) (transport.CloseCode, string) {
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
