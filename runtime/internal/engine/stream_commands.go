package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of the backpressure of clients on a stream (SPEC.md §5.16).
const (
	maxStreamWait    = 30 * time.Second // of a chunk, for the bounds of the clients
	maxStreamClients = 64               // that bound one stream
)

// streamIndex finds the open streams of all jobs. Its lock may be taken with run.mu.
type streamIndex struct {
	mu     sync.Mutex
	byID   map[arcp.StreamID]*stream
	slowed map[arcp.SessionID][]*stream // streams of which the session is one of stream.slowedBy
}

func (x *streamIndex) add(st *stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byID == nil {
		x.byID = make(map[arcp.StreamID]*stream)
	}
	x.byID[st.ID()] = st
}

// remove removes a stream that has ended.
func (x *streamIndex) remove(st *stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byID, st.ID())
	for _, session := range st.slowedBy {
		left := slices.DeleteFunc(x.slowed[session], func(o *stream) bool { return o == st })
		if x.slowed[session] = left; len(left) == 0 {
			delete(x.slowed, session)
		}
	}
}

// addSlowed records that a session slows a stream.
func (x *streamIndex) addSlowed(session arcp.SessionID, st *stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.slowed == nil {
		x.slowed = make(map[arcp.SessionID][]*stream)
	}
	x.slowed[session] = append(x.slowed[session], st)
}

// takeSlowed returns the streams that a session slows, and forgets them.
func (x *streamIndex) takeSlowed(session arcp.SessionID) []*stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := x.slowed[session]
	delete(x.slowed, session)
	return list
}

// find returns an open stream; nil: there is none.
func (x *streamIndex) find(id arcp.StreamID) *stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byID[id]
}

// streamPace has the bounds that clients have set on a stream. It is guarded by run.mu.
type streamPace struct {
	bounds  map[arcp.SessionID]*streamBound // nil: there are none
	changed change                          // of the bounds, or the stream has ended
}

// streamBound is the bound of one client.
type streamBound struct {
	interval time.Duration // between two chunks; 0: not bounded
	next     time.Time     // when the next chunk is admitted
	room     uint64        // bytes until the next backpressure
	bounded  bool          // room is a bound
}

// wait returns how long a chunk has to wait for the client.
func (b *streamBound) wait(now time.Time, size int) time.Duration {
	if b.bounded && uint64(size) > b.room {
		return maxStreamWait
	}
	return max(b.next.Sub(now), 0)
}

// admit counts a chunk and returns 0, or returns how long the chunk has to wait.
func (p *streamPace) admit(now time.Time, size int) (wait time.Duration) {
	for _, b := range p.bounds {
		wait = max(wait, b.wait(now, size))
	}
	if wait > 0 {
		return wait
	}
	for _, b := range p.bounds {
		b.room -= min(uint64(size), b.room)
		b.next = now.Add(b.interval)
	}
	return 0
}

// drop removes the bounds for which a chunk has to wait.
func (p *streamPace) drop(now time.Time, size int) {
	maps.DeleteFunc(p.bounds, func(_ arcp.SessionID, b *streamBound) bool { return b.wait(now, size) > 0 })
}

// set changes the bound of a client. It reports false if too many clients have one.
func (p *streamPace) set(session arcp.SessionID, c *arcp.BackpressurePayload) bool {
	b := p.bounds[session]
	if b == nil {
		if len(p.bounds) >= maxStreamClients {
			return false
		}
		if p.bounds == nil {
			p.bounds = make(map[arcp.SessionID]*streamBound)
		}
		b = new(streamBound)
		p.bounds[session] = b
	}
	if r := c.DesiredRatePerSecond; r != nil {
		b.interval, b.next = 0, time.Time{}
		if *r > 0 {
			b.interval = time.Second / time.Duration(*r)
		}
	}
	if c.BufferRemainingBytes != nil {
		b.room, b.bounded = *c.BufferRemainingBytes, true
	}
	if b.interval == 0 && !b.bounded {
		delete(p.bounds, session)
	}
	p.changed.notify()
	return true
}

// unset removes the bound of a client.
func (p *streamPace) unset(session arcp.SessionID) {
	if p.bounds[session] != nil {
		delete(p.bounds, session)
		p.changed.notify()
	}
}

// awaitPace waits until the clients of the stream admit a chunk. After maxStreamWait the bounds that still
// do not admit it are removed.
func (st *stream) awaitPace(size int) error {
	for start := (time.Time{}); ; { // zero: the chunk has not waited
		wait, changed, err := st.pollPace(&start, size)
		if wait == 0 || err != nil {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-changed:
		case <-st.s.ctx.Done():
			err = context.Cause(st.s.ctx)
		}
		if t.Stop(); err != nil {
			return err
		}
	}
}

// pollPace counts a chunk and returns 0, or returns how long the chunk, which waits since start, has to
// wait at most, and a channel that is closed when it should try again. It sets a zero start.
func (st *stream) pollPace(start *time.Time, size int) (wait time.Duration, changed <-chan struct{}, err error) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	p := &st.pace
	if st.err != nil || len(p.bounds) == 0 {
		return 0, nil, st.err
	}
	now := time.Now()
	if start.IsZero() {
		*start = now
	}
	left := maxStreamWait - now.Sub(*start)
	wait = p.admit(now, size)
	switch {
	case wait == 0:
		return 0, nil, nil
	case left <= 0:
		p.drop(now, size)
		p.admit(now, size) // counts the chunk for the other clients
		return 0, nil, nil
	}
	return min(wait, left), p.changed.channel(), nil
}

// Slow applies the backpressure of a client to a stream. The writes of the tool then wait.
func (js JobStreams) Slow(from Requester, id arcp.StreamID, p *arcp.BackpressurePayload) *arcp.Error {
	st := js.e.streams.find(id)
	if st == nil || st.s.row.Principal != from.Principal {
		return errNoStream()
	}
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	switch {
	case st.err != nil:
		return errNoStream()
	case !st.pace.set(from.Session, p):
		return arcp.Errorf(arcp.CodeResourceExhausted, "%d sessions have slowed the stream, which is the most for one stream", maxStreamClients)
	case !slices.Contains(st.slowedBy, from.Session):
		st.slowedBy = append(st.slowedBy, from.Session)
		js.e.streams.addSlowed(from.Session, st)
	}
	return nil
}

// Release removes the backpressure of a session whose connection has ended.
func (js JobStreams) Release(session arcp.SessionID) {
	for _, st := range js.e.streams.takeSlowed(session) {
		st.s.mu.Lock()
		st.pace.unset(session)
		st.slowedBy = slices.DeleteFunc(st.slowedBy, func(s arcp.SessionID) bool { return s == session })
		st.s.mu.Unlock()
	}
}

func errNoStream() *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such stream, or it has ended")
}

// cancelStream is a request to end a stream. Its job continues.
type cancelStream struct {
	Requester
	st     *stream
	id     arcp.StreamID
	reason string
}

// Cancel cancels the stream target_id. The answer, accepted or refused, precedes the last event of
// the stream.
func (js JobStreams) Cancel(from Requester, p *arcp.CancelPayload) {
	c := cancelStream{from, nil, arcp.StreamID(p.TargetID), cmp.Or(p.Reason, "cancelled by client")}
	c.st = js.e.streams.find(c.id)
	switch {
	case c.st == nil || c.st.s.row.Principal != from.Principal && !from.Admin:
		c.refuse(RefusedUnknown, errNoStream())
	case c.st.s.strictCancel && c.st.s.owner() != from.Session && !from.Admin:
		js.e.cfg.audit().denied("cancel", from.Principal, from.Session, string(c.id), strictCancel)
		c.refuse(RefusedDenied, arcp.Errorf(arcp.CodePermissionDenied, "only the session that owns the job may cancel its streams"))
	case !c.st.s.post(&c):
		c.rejected(js.e, c.st.s.stopped())
	}
}

// apply ends the stream. The answer follows when its last event is durable.
func (c *cancelStream) apply(s *supervisor, now time.Time) {
	cause := arcp.Errorf(arcp.CodeCancelled, "%s", c.reason)
	s.mu.Lock()
	open := c.st.err == nil && !c.st.s.events.closed
	if open {
		s.events.push(mustEvent(arcp.StreamError, now, &c.st.common, s.row.Priority, cause))
		s.events.removeStream(c.st, cause)
	}
	s.mu.Unlock()
	if !open {
		c.rejected(s.e, false)
		return
	}
	s.write.addCommands(c)
}

func (c *cancelStream) committed(jw *jobWriter, err error) {
	switch {
	case err == nil:
		c.Answers.AnswerBeforeEvents(answerTo(c.Request, arcp.CancelAccepted, arcp.CancelAcceptedPayload{TargetID: string(c.id)}))
	case jobEnded(err):
		c.rejected(jw.run.e, false)
	default:
		c.refuse(refusedUnavailable, errStore())
	}
}

func (c *cancelStream) rejected(_ *Engine, stopped bool) {
	if stopped {
		c.refuse(refusedUnavailable, errShuttingDown())
		return
	}
	c.refuse(RefusedTerminal, errNoStream())
}

func (c *cancelStream) refuse(reason string, err *arcp.Error) {
	c.Answers.AnswerBeforeEvents(cancelRefusal(c.Request, string(c.id), reason, err))
}
