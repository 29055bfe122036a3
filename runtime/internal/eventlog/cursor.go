package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// readAhead is how many events a lagging cursor reads from the store at once:
// about one coalesced write of small events.
const readAhead = 512

// Item is what a connection has to send next: one event, or an answer that was
// posted at this place in the order.
type Item struct {
	Seq           uint64         // in the session or the feed; 0: not numbered
	Session       arcp.SessionID // of a numbered event: the cursor's, or in a feed the one that submitted the job
	CorrelationID arcp.MessageID
	Origin        bool
	Event         *store.Event
	Answer        any // as given to Post; Event is nil then
}

// logPosition is the state of a session in the log: its connection and the range of its events.
type logPosition struct {
	cursor *Cursor // nil: it has no connection
	last   uint64  // highest number given since the log was started
	first  uint64  // lowest one; 0: none
	letGo  uint64  // highest one that it has let go of since then
	lag    backlog // without what was given before, until that is measured
}

// Cursor is one connection's place in its session's log, or in a principal's
// feed. Post, Answer and Superseded may be called by anyone, everything else
// belongs to the connection's loop.
type Cursor struct {
	log  *Log
	of   string // the session, or the principal of a feed
	loop Loop

	mu       sync.Mutex
	express  []any       // answers that overtake events
	tail     []store.Run // in order; what is missing is in the store
	notes    []note      // what has its place between the runs, in order
	last     uint64      // highest number given to the session
	unlogged int         // undelivered unlogged events
	feed     bool        // of a principal; never changes
	closed   bool
	read     *read // the latest from the store; nil: none, or it was taken

	taken   atomic.Bool  // by a newer cursor of the session
	urgent  atomic.Bool  // express is not empty
	answers atomic.Int64 // in express and notes

	// The loop's own.
	pos    uint64 // last number handed out
	limit  uint64 // no event above it is handed out
	run    store.Run
	next   int // in run.Events
	behind []store.Delivery
}

// Loop is the loop that a cursor belongs to.
type Loop struct {
	// Wake is called, by any goroutine, whenever Next may have something new. It must not
	// block.
	Wake func()
	// Go runs f, which reads the store, on another goroutine.
	Go func(f func())
}

// read is a read from the store.
type read struct {
	after  uint64 // position
	done   bool   // with Cursor.mu; then the rest is set
	events []store.Delivery
	err    error
}

// note is an answer or an unlogged event. It follows the event with the number
// after, which is the last of a run.
type note struct {
	after uint64
	item  Item
}

// Attach makes a cursor for a session that starts after a position and calls
// back on the committer's goroutine once it is in place: from then on no event
// is missed. A session has one cursor: attaching again ends the older one.
func (l *Log) Attach(id arcp.SessionID, after uint64, loop Loop, attached func(*Cursor, error)) {
	l.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: id}}, NoSync: true}, func(r *store.Result) {
		if r.Err != nil {
			attached(nil, r.Err)
			return
		}
		attached(l.attachNow(id, after, r.LastSeq, loop), nil)
	})
}

// AttachNow is Attach for a session whose write is just being reported to its
// done callback, with the LastSeq of the result.
func (l *Log) AttachNow(id arcp.SessionID, after, last uint64, loop Loop) *Cursor {
	return l.attachNow(id, after, last, loop)
}

func (l *Log) attachNow(id arcp.SessionID, after, last uint64, loop Loop) *Cursor {
	c := &Cursor{log: l, of: string(id), loop: loop, pos: after, last: last, limit: NoLimit}
	l.curMu.Lock()
	p := l.place(id)
	old := p.cursor
	p.cursor, p.last = c, last
	l.curMu.Unlock()
	if old != nil {
		old.supersede()
	}
	return c
}

// place needs curMu.
func (l *Log) place(id arcp.SessionID) *logPosition {
	p := l.places[id]
	if p == nil {
		p = new(logPosition)
		l.places[id] = p
	}
	return p
}

// AttachFeed makes a cursor of a principal's feed that starts after a position,
// as Attach does of a session's log. A feed has any number of cursors. There is
// none if the store has failed.
func (l *Log) AttachFeed(principal string, after uint64, loop Loop, attached func(c *Cursor, last uint64)) {
	l.Append(&store.Write{Ops: []store.Op{&store.ReadFeedPosition{Principal: principal}}, NoSync: true}, func(r *store.Result) {
		if r.Err != nil {
			attached(nil, 0)
			return
		}
		c := &Cursor{log: l, of: principal, feed: true, loop: loop, pos: min(after, r.FeedLast), last: r.FeedLast, limit: NoLimit}
		l.curMu.Lock()
		l.feeds[principal] = append(l.feeds[principal], c)
		l.curMu.Unlock()
		attached(c, r.FeedLast)
	})
}

// Close takes the cursor off its session or feed. Next must not be called
// again.
func (c *Cursor) Close() {
	c.run, c.behind = store.Run{}, nil
	c.loop.Go = nil // the log may keep the cursor for a while, but not the connection
	c.log.detach(c)
	c.shut()
}

func (l *Log) detach(c *Cursor) {
	l.curMu.Lock()
	defer l.curMu.Unlock()
	if c.feed {
		feeds := slices.DeleteFunc(l.feeds[c.of], func(o *Cursor) bool { return o == c })
		if l.feeds[c.of] = feeds; len(feeds) == 0 {
			delete(l.feeds, c.of)
		}
		return
	}
	if p := l.places[arcp.SessionID(c.of)]; p != nil && p.cursor == c {
		p.cursor = nil
	}
}

func (c *Cursor) supersede() {
	c.taken.Store(true)
	c.shut()
}

// Superseded reports whether the session was attached to again: this cursor
// hands out nothing any more.
func (c *Cursor) Superseded() bool { return c.taken.Load() }

func (c *Cursor) shut() {
	c.mu.Lock()
	c.closed, c.tail, c.notes, c.express = true, nil, nil, nil
	c.urgent.Store(false)
	c.answers.Store(0)
	c.mu.Unlock()
	c.loop.Wake()
}

func (c *Cursor) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// NoLimit as a limit holds nothing back.
const NoLimit = math.MaxUint64

// SetLimit holds back the events above a number. Answers still pass.
func (c *Cursor) SetLimit(seq uint64) { c.limit = seq }

// Limit is the highest number that Next hands out.
func (c *Cursor) Limit() uint64 { return c.limit }

// Move sets the position of a cursor that has handed out no event yet, or whose
// last Next was an error.
func (c *Cursor) Move(after uint64) { c.pos, c.behind, c.run, c.next = after, nil, store.Run{}, 0 }

// Lag is how many events Next has not handed out.
func (c *Cursor) Lag() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last - min(c.pos, c.last)
}

// Post puts an answer behind everything given to the session so far and before
// everything given later. It reports false if the cursor is closed.
func (c *Cursor) Post(answer any) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.notes = append(c.notes, note{c.last, Item{Answer: answer}})
		c.answers.Add(1)
	}
	c.mu.Unlock()
	c.loop.Wake()
	return ok
}

// Answer puts an answer before everything that was not handed out yet. An
// event that follows from what the answer is about must be appended after
// Answer has returned, or by the write that is being reported.
func (c *Cursor) Answer(answer any) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.express = append(c.express, answer)
		c.urgent.Store(true)
		c.answers.Add(1)
	}
	c.mu.Unlock()
	c.loop.Wake()
	return ok
}

// Waiting is the number of answers that were not handed out yet. Unlike events
// they are nowhere but in memory: who causes them without taking them has to be
// slowed down.
func (c *Cursor) Waiting() int { return int(c.answers.Load()) }

// Position is the last number Next has handed out.
func (c *Cursor) Position() uint64 { return c.pos }

// Next returns the next item; ok is false when there is none now, and forever when the
// session was forgotten or attached to again. It does not block: events that are not in
// memory are read with Loop.Go, and Loop.Wake is called when they are there.
func (c *Cursor) Next() (item Item, ok bool, err error) {
	for {
		if c.urgent.Load() {
			if item, ok := c.popExpress(); ok {
				return item, true, nil
			}
		}
		if c.pos >= c.limit {
			item, ok := c.popHeld()
			return item, ok, nil
		}
		if c.next < len(c.run.Events) {
			return c.fromRun(), true, nil
		}
		if len(c.behind) > 0 {
			return c.fromBehind(), true, nil
		}
		item, ok, missing := c.pop()
		if ok {
			return item, true, nil
		}
		if c.next < len(c.run.Events) {
			continue
		}
		if missing == 0 {
			return Item{}, false, nil
		}
		if ok, err := c.fetch(missing); !ok {
			if err != nil && c.isClosed() { // what it read is deleted
				err = nil
			}
			return Item{}, false, err
		}
	}
}

func (c *Cursor) fromRun() Item {
	e := c.run.Events[c.next]
	c.next++
	c.pos++
	return Item{Seq: c.pos, Session: c.run.Session, CorrelationID: c.run.CorrelationID, Origin: c.run.Origin, Event: e}
}

func (c *Cursor) fromBehind() Item {
	d := c.behind[0]
	c.behind[0] = store.Delivery{}
	c.behind = c.behind[1:]
	c.pos = d.Seq
	return Item{Seq: d.Seq, Session: d.Session, CorrelationID: d.CorrelationID, Origin: d.Origin, Event: d.Event}
}

// popHeld takes what is not an event: while those are held back, it overtakes
// them.
func (c *Cursor) popHeld() (item Item, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.notes) == 0 {
		return Item{}, false
	}
	return c.popNote(), true
}

// popExpress takes the first answer that overtakes events.
func (c *Cursor) popExpress() (item Item, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.express) == 0 {
		return Item{}, false
	}
	item.Answer = c.express[0]
	c.express[0] = nil
	c.answers.Add(-1)
	if c.express = c.express[1:]; len(c.express) == 0 {
		c.express = nil
		c.urgent.Store(false)
	}
	return item, true
}

// pop takes what comes next: a note, or a run to go through. When the events
// before it are no longer in memory, missing is the last of them.
func (c *Cursor) pop() (item Item, ok bool, missing uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run, c.next = store.Run{}, 0
	if c.closed {
		return Item{}, false, 0
	}
	if len(c.notes) > 0 && c.notes[0].after <= c.pos {
		return c.popNote(), true, 0
	}
	c.forgetLocked(c.pos) // was read from the store meanwhile
	switch {
	case len(c.tail) > 0 && c.tail[0].First <= c.pos+1:
		c.run = c.tail[0]
		c.next = int(c.pos + 1 - c.run.First)
		c.tail = behead(c.tail)
		return Item{}, false, 0
	case len(c.tail) > 0:
		missing = c.tail[0].First - 1
	case c.last > c.pos:
		missing = c.last
	}
	if len(c.notes) > 0 {
		missing = min(missing, c.notes[0].after)
	}
	return Item{}, false, missing
}

func (c *Cursor) popNote() Item {
	item := c.notes[0].item
	c.notes = behead(c.notes)
	if item.Event != nil {
		c.unlogged--
	} else {
		c.answers.Add(-1)
	}
	return item
}

// behead drops the first element, and the memory with the last one.
func behead[T any](s []T) []T {
	if len(s) == 1 {
		return nil
	}
	clear(s[:1])
	return s[1:]
}

// fetch makes events up to and including upTo ready to be handed out. It reports false if
// they are still being read.
func (c *Cursor) fetch(upTo uint64) (ok bool, err error) {
	c.mu.Lock()
	r := c.read
	if started := r != nil && r.after == c.pos; !started { // else it was before Move
		r = &read{after: c.pos}
		c.read = r
		c.mu.Unlock()
		c.loop.Go(func() { c.load(r, upTo) })
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if !r.done {
		return false, nil
	}
	c.read, c.behind = nil, r.events
	return r.err == nil, r.err
}

// load reads some of the events up to and including upTo.
func (c *Cursor) load(r *read, upTo uint64) {
	events, err := c.eventsAfter(r.after, upTo)
	c.mu.Lock()
	r.events, r.err, r.done = events, err, true
	c.mu.Unlock()
	c.loop.Wake()
}

func (c *Cursor) eventsAfter(after, upTo uint64) (list []store.Delivery, err error) {
	err = c.each(after, func(d store.Delivery) bool {
		if d.Seq > upTo {
			return false
		}
		list = append(list, d)
		return len(list) < readAhead
	})
	if errors.Is(err, store.ErrTrimmed) && len(list) > 0 {
		err = nil // it is for the next read: what comes before is there
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read session log after %d: %w", after, err)
	case len(list) == 0 || list[0].Seq != after+1:
		return nil, fmt.Errorf("read session log after %d: the log does not go on there", after)
	}
	return list, nil
}

// each calls fn for what the store has after a position.
func (c *Cursor) each(after uint64, fn func(store.Delivery) bool) error {
	if !c.feed {
		return c.log.store.SessionEvents(context.Background(), arcp.SessionID(c.of), after, fn)
	}
	return c.log.store.Feed(context.Background(), c.of, after, func(e store.FeedEvent) bool {
		return fn(store.Delivery{Seq: e.Position, Session: e.Session, CorrelationID: e.CorrelationID, Event: e.Event})
	})
}

// deliver hands the result of a committed write to the cursors it concerns.
func (l *Log) deliver(r *store.Result) {
	if len(r.Runs) == 0 && len(r.Unlogged) == 0 && len(r.Feed.Events) == 0 {
		return
	}
	var kept retained
	var size sizes
	for i := range r.Runs {
		run := &r.Runs[i]
		if c := l.given(run, &size); c != nil && c.give(run) {
			kept.add(c, run)
		}
	}
	if len(r.Feed.Events) > 0 {
		l.deliverFeed(&r.Feed, &kept)
	}
	for i := range r.Unlogged {
		if c := l.cursor(r.Unlogged[i].Session); c != nil {
			c.giveUnlogged(&r.Unlogged[i])
		}
	}
	if len(kept.marks) > 0 {
		l.recent.add(kept)
	}
}

func (l *Log) deliverFeed(f *store.FeedRun, kept *retained) {
	l.curMu.Lock()
	cursors := slices.Clone(l.feeds[f.Principal]) // nil: nobody listens, which costs nothing
	l.curMu.Unlock()
	run := store.Run{Session: f.Session, First: f.First, CorrelationID: f.CorrelationID, Events: f.Events}
	for _, c := range cursors {
		if c.give(&run) {
			kept.add(c, &run)
		}
	}
}

// given counts what a session was given and returns its cursor, if it has one.
func (l *Log) given(run *store.Run, size *sizes) *Cursor {
	l.curMu.Lock()
	p := l.place(run.Session)
	p.last = lastOf(run)
	var over uint64
	older := false
	if l.opts.BacklogBytes > 0 {
		if p.first == 0 {
			if p.first, older = run.First, run.First > 1; older {
				l.unmeasured = append(l.unmeasured, run.Session)
			}
		}
		over = p.lag.add(p.last, size.of(run.Events), uint64(l.opts.BacklogBytes))
		p.letGo = max(p.letGo, over)
	}
	c := p.cursor
	l.curMu.Unlock()
	if older && l.opts.OnOlder != nil {
		l.opts.OnOlder()
	}
	if over > 0 {
		l.opts.OnOverflow(run.Session, over)
	}
	return c
}

func (l *Log) cursor(id arcp.SessionID) *Cursor {
	l.curMu.Lock()
	defer l.curMu.Unlock()
	if p := l.places[id]; p != nil {
		return p.cursor
	}
	return nil
}

func (c *Cursor) give(run *store.Run) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.tail = append(c.tail, *run)
		c.last = max(c.last, lastOf(run))
	}
	c.mu.Unlock()
	c.loop.Wake()
	return ok
}

func (c *Cursor) giveUnlogged(d *store.Delivery) {
	c.mu.Lock()
	if !c.closed && c.unlogged < maxUnlogged {
		c.unlogged++
		c.notes = append(c.notes, note{c.last, Item{CorrelationID: d.CorrelationID, Origin: d.Origin, Event: d.Event}})
	}
	c.mu.Unlock()
	c.loop.Wake()
}

// recent bounds the memory of all tails: it knows, oldest first, which write
// put how much into which tails. What a connection has taken is not told to
// it; forgetting that later is harmless.
type recent struct {
	budget  int // of bytes
	entries []retained
	head    int
	bytes   int
	marks   int
}

type retained struct {
	marks   []retainedUpTo
	bytes   int
	first   *store.Event // of the events counted last: followers share them
	counted int
}

type retainedUpTo struct {
	cursor *Cursor
	upTo   uint64
}

func (k *retained) add(c *Cursor, run *store.Run) {
	k.marks = append(k.marks, retainedUpTo{c, lastOf(run)})
	k.count(run.Events)
}

// count adds the size of events, once for all followers that share them.
func (k *retained) count(events []*store.Event) {
	if k.first != events[0] {
		k.first, k.counted = events[0], 0
	}
	for ; k.counted < len(events); k.counted++ {
		k.bytes += events[k.counted].Memory()
	}
}

func (r *recent) add(k retained) {
	k.first = nil
	r.entries = append(r.entries, k)
	r.bytes += k.bytes
	r.marks += len(k.marks)
	for r.head < len(r.entries)-1 && (r.bytes > r.budget || r.marks > tailMarks) {
		r.evict()
	}
	if r.head > 1024 && r.head > len(r.entries)/2 {
		n := copy(r.entries, r.entries[r.head:])
		clear(r.entries[n:])
		r.entries, r.head = r.entries[:n], 0
	}
}

func (r *recent) evict() {
	k := r.entries[r.head]
	r.entries[r.head] = retained{}
	r.head++
	r.bytes -= k.bytes
	r.marks -= len(k.marks)
	for _, m := range k.marks {
		m.cursor.forget(m.upTo)
	}
}

// forget drops the runs up to a number from the tail. It costs no more than
// giving them did: the committer calls it for connections that do not read.
func (c *Cursor) forget(upTo uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(upTo)
}

func (c *Cursor) forgetLocked(upTo uint64) {
	for len(c.tail) > 0 && lastOf(&c.tail[0]) <= upTo {
		c.tail = behead(c.tail)
	}
}

func lastOf(run *store.Run) uint64 { return run.First + uint64(len(run.Events)) - 1 }
