package eventlog

import (
	"context"
	"fmt"
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
	Seq           uint64 // 0: not numbered
	CorrelationID arcp.MessageID
	Origin        bool
	Event         *store.Event
	Answer        any // as given to Post; Event is nil then
}

// Cursor is one connection's place in its session's log. Next and Position
// belong to the connection's loop; Post, Answer and Close may be called by
// anyone.
type Cursor struct {
	log  *Log
	id   arcp.SessionID
	wake func()

	mu       sync.Mutex
	express  []any       // answers that overtake events
	tail     []store.Run // in order; what is missing is in the store
	notes    []note      // what has its place between the runs, in order
	last     uint64      // highest number given to the session
	unlogged int         // undelivered unlogged events
	closed   bool

	urgent  atomic.Bool  // express is not empty
	answers atomic.Int64 // in express and notes

	// The loop's own.
	pos    uint64 // last number handed out
	run    store.Run
	next   int // in run.Events
	behind []store.Delivery
}

// note is an answer or an unlogged event. It follows the event with the number
// after, which is the last of a run.
type note struct {
	after uint64
	item  Item
}

// Attach makes a cursor for a session that starts after a position and calls
// back on the committer's goroutine once it is in place: from then on no event
// is missed. wake is called, by any goroutine, whenever Next may have something
// new; it must not block. A session has one cursor: attaching again ends the
// older one.
func (l *Log) Attach(id arcp.SessionID, after uint64, wake func(), attached func(*Cursor, error)) {
	l.Append(&store.Write{Mark: id, NoSync: true}, func(r *store.Result) {
		if r.Err != nil {
			attached(nil, r.Err)
			return
		}
		attached(l.attachNow(id, after, r.LastSeq, wake), nil)
	})
}

// AttachNew is Attach for a session whose creating write is just being
// reported to its done callback: nothing was given to it yet.
func (l *Log) AttachNew(id arcp.SessionID, wake func()) *Cursor {
	return l.attachNow(id, 0, 0, wake)
}

func (l *Log) attachNow(id arcp.SessionID, after, last uint64, wake func()) *Cursor {
	c := &Cursor{log: l, id: id, wake: wake, pos: after, last: last}
	l.curMu.Lock()
	old := l.cursors[id]
	l.cursors[id] = c
	l.curMu.Unlock()
	if old != nil {
		old.shut()
	}
	return c
}

// Close takes the cursor off its session. Next must not be called again.
func (c *Cursor) Close() {
	c.run, c.behind = store.Run{}, nil
	c.log.curMu.Lock()
	if c.log.cursors[c.id] == c {
		delete(c.log.cursors, c.id)
	}
	c.log.curMu.Unlock()
	c.shut()
}

func (c *Cursor) shut() {
	c.mu.Lock()
	c.closed, c.tail, c.notes, c.express = true, nil, nil, nil
	c.urgent.Store(false)
	c.answers.Store(0)
	c.mu.Unlock()
	c.wake()
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
	c.wake()
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
	c.wake()
	return ok
}

// Waiting is the number of answers that were not handed out yet. Unlike events
// they are nowhere but in memory: who causes them without taking them has to be
// slowed down.
func (c *Cursor) Waiting() int { return int(c.answers.Load()) }

// Position is the last number Next has handed out.
func (c *Cursor) Position() uint64 { return c.pos }

// Next returns the next item; ok is false when there is none now. It reads the
// store when the connection has fallen behind what is kept in memory.
func (c *Cursor) Next(ctx context.Context) (item Item, ok bool, err error) {
	for {
		if c.urgent.Load() {
			if item, ok := c.popExpress(); ok {
				return item, true, nil
			}
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
		if err := c.read(ctx, missing); err != nil {
			return Item{}, false, err
		}
	}
}

func (c *Cursor) fromRun() Item {
	e := c.run.Events[c.next]
	c.next++
	c.pos++
	return Item{Seq: c.pos, CorrelationID: c.run.CorrelationID, Origin: c.run.Origin, Event: e}
}

func (c *Cursor) fromBehind() Item {
	d := c.behind[0]
	c.behind[0] = store.Delivery{}
	c.behind = c.behind[1:]
	c.pos = d.Seq
	return Item{Seq: d.Seq, CorrelationID: d.CorrelationID, Origin: d.Origin, Event: d.Event}
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

// read fetches some of the events up to and including upTo from the store.
func (c *Cursor) read(ctx context.Context, upTo uint64) error {
	c.behind = nil
	err := c.log.store.SessionEvents(ctx, c.id, c.pos, func(d store.Delivery) bool {
		if d.Seq > upTo {
			return false
		}
		c.behind = append(c.behind, d)
		return len(c.behind) < readAhead
	})
	switch {
	case err != nil:
		return fmt.Errorf("read session log after %d: %w", c.pos, err)
	case len(c.behind) == 0 || c.behind[0].Seq != c.pos+1:
		return fmt.Errorf("read session log after %d: the log does not go on there: %w", c.pos, store.ErrTrimmed)
	}
	return nil
}

// deliver hands the result of a committed write to the cursors it concerns.
func (l *Log) deliver(r *store.Result) {
	if len(r.Runs) == 0 && len(r.Unlogged) == 0 {
		return
	}
	var kept keep
	for i := range r.Runs {
		run := &r.Runs[i]
		if c := l.cursor(run.Session); c != nil && c.give(run) {
			kept.marks = append(kept.marks, mark{c, lastOf(run)})
			kept.count(run.Events)
		}
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

func (l *Log) cursor(id arcp.SessionID) *Cursor {
	l.curMu.Lock()
	defer l.curMu.Unlock()
	return l.cursors[id]
}

func (c *Cursor) give(run *store.Run) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.tail = append(c.tail, *run)
		c.last = lastOf(run)
	}
	c.mu.Unlock()
	c.wake()
	return ok
}

func (c *Cursor) giveUnlogged(d *store.Delivery) {
	c.mu.Lock()
	if !c.closed && c.unlogged < maxUnlogged {
		c.unlogged++
		c.notes = append(c.notes, note{c.last, Item{CorrelationID: d.CorrelationID, Origin: d.Origin, Event: d.Event}})
	}
	c.mu.Unlock()
	c.wake()
}

// recent bounds the memory of all tails: it knows, oldest first, which write
// put how much into which tails. What a connection has taken is not told to
// it; forgetting that later is harmless.
type recent struct {
	budget  int // of bytes
	entries []keep
	head    int
	bytes   int
	marks   int
}

type keep struct {
	marks   []mark
	bytes   int
	first   *store.Event // of the events counted last: followers share them
	counted int
}

type mark struct {
	cursor *Cursor
	upTo   uint64
}

// count adds the size of events, once for all followers that share them.
func (k *keep) count(events []*store.Event) {
	if k.first != events[0] {
		k.first, k.counted = events[0], 0
	}
	for ; k.counted < len(events); k.counted++ {
		k.bytes += len(events[k.counted].Body)
	}
}

func (r *recent) add(k keep) {
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
	r.entries[r.head] = keep{}
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
