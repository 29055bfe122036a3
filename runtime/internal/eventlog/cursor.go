package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// readAhead is how many events a lagging cursor reads from the store at once: about one
// coalesced write of small events.
const readAhead = 512

// Item is the next thing that a connection sends: an event, or a posted answer.
type Item struct {
	Seq           uint64         // in the session or the feed; 0: not numbered
	Session       arcp.SessionID // of a numbered event: the cursor's session, or in a feed the session that submitted the job
	CorrelationID arcp.MessageID
	Forwarded     bool
	Event         *store.Event
	Forms         *Forms // of Event, which other cursors return, too; nil: it has none
	Answer        any    // as passed to AnswerAfterEvents or AnswerBeforeEvents; Event is nil then
}

// DeferredAnswer is an answer that needs the store. The connection calls it on another goroutine
// than its loop's, when the answer's turn comes.
type DeferredAnswer func(ctx context.Context) arcp.Envelope

// Cursor is the position of one connection in the log of its session, or in the feed of
// a principal. AnswerAfterEvents, AnswerBeforeEvents and Superseded may be called by any
// goroutine, the other methods only by the connection's loop. Answers reach the connection by its
// cursor, not by its inbox, because each answer has a place among the events.
type Cursor struct {
	log  *Log
	key  string // the session, or the principal of a feed
	loop Loop

	mu         sync.Mutex
	urgent     []any            // answers that overtake events
	tail       []tailRun        // the newest events, in order; older events are in the store
	unnumbered []unnumberedItem // between the runs, in order
	last       uint64           // highest number in the session's log
	read       *read            // from the store; nil: none, or it is fetched
	unlogged   int32            // unlogged events in unnumbered
	closed     bool

	feed       bool         // key is a principal
	superseded atomic.Bool  // by a newer cursor of the session
	hasUrgent  atomic.Bool  // urgent is not empty
	answers    atomic.Int32 // in urgent and unnumbered

	// Only the loop uses these. The order of the fields makes the struct small: each session
	// has one.
	next    int32   // in run.Events
	pos     uint64  // last number returned by Next
	limit   uint64  // highest number that Next may return
	run     tailRun // being returned
	fetched *read   // nil: its events have been returned
}

// Loop is the loop of a connection.
type Loop struct {
	// Wake is called by any goroutine when Next may have something new. It must not block.
	Wake func()
	// Go runs f, which reads the store, on another goroutine.
	Go func(f func())
	// UsesForms says that the connection sends forms of the events that other sessions receive, too.
	UsesForms bool
}

// read is a read from the store.
type read struct {
	after  uint64 // position
	done   bool   // guarded by Cursor.mu, like the other fields; then they belong to the loop
	events []store.Delivery
	err    error
}

// tailRun is a run of events in memory.
type tailRun struct {
	store.Run
	forms *Forms // nil: none
}

// unnumberedItem is an answer or an unlogged event. It follows the event with the number after, which
// is the last event of a run.
type unnumberedItem struct {
	after uint64
	item  Item
}

// Superseded reports whether the session has a newer cursor. A superseded cursor returns nothing
// any more.
func (c *Cursor) Superseded() bool { return c.superseded.Load() }

func (c *Cursor) supersede() {
	c.superseded.Store(true)
	c.markClosed()
}

// Close removes the cursor from its session or feed. Next must not be called again.
func (c *Cursor) Close() {
	c.run, c.fetched = tailRun{}, nil
	c.loop.Go = nil // the log may refer to the cursor for a while, but not to the connection
	c.log.detach(c)
	c.markClosed()
}

func (c *Cursor) markClosed() {
	c.mu.Lock()
	c.closed, c.tail, c.unnumbered, c.urgent = true, nil, nil, nil
	c.hasUrgent.Store(false)
	c.answers.Store(0)
	c.mu.Unlock()
	c.loop.Wake()
}

func (c *Cursor) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// NoLimit is a limit that no event exceeds.
const NoLimit = math.MaxUint64

// SetLimit sets the highest number that Next may return. Answers have no limit.
func (c *Cursor) SetLimit(seq uint64) { c.limit = seq }

// Limit returns the highest number that Next may return.
func (c *Cursor) Limit() uint64 { return c.limit }

// Seek sets the position. Next must have returned no event so far, or an error last.
func (c *Cursor) Seek(after uint64) { c.pos, c.fetched, c.run, c.next = after, nil, tailRun{}, 0 }

// Position returns the last number that Next has returned.
func (c *Cursor) Position() uint64 { return c.pos }

// Lag returns the number of events that Next has not returned yet.
func (c *Cursor) Lag() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last - min(c.pos, c.last)
}

// AnswerAfterEvents queues an answer after all events that the session has, and before all later
// events. It reports false if the cursor is closed.
func (c *Cursor) AnswerAfterEvents(answer any) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.unnumbered = append(c.unnumbered, unnumberedItem{c.last, Item{Answer: answer}})
		c.answers.Add(1)
	}
	c.mu.Unlock()
	c.loop.Wake()
	return ok
}

// AnswerBeforeEvents queues an answer before all events that Next has not returned yet. An event
// that is a consequence of the answered request must be appended after the method returns, or by
// the write whose result is being reported. It reports false if the cursor is closed.
func (c *Cursor) AnswerBeforeEvents(answer any) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.urgent = append(c.urgent, answer)
		c.hasUrgent.Store(true)
		c.answers.Add(1)
	}
	c.mu.Unlock()
	c.loop.Wake()
	return ok
}

// QueuedAnswers returns the number of answers that Next has not returned yet. Answers exist
// only in memory: a client that causes answers without reading them has to be slowed
// down.
func (c *Cursor) QueuedAnswers() int { return int(c.answers.Load()) }

// Next returns the next item. ok is false when there is none now, and always after the
// session was forgotten or has a newer cursor. Next does not block: events that are not
// in memory are read with Loop.Go, and Loop.Wake is called when they are there.
func (c *Cursor) Next() (item Item, ok bool, err error) {
	for {
		if c.hasUrgent.Load() {
			if item, ok := c.popUrgent(); ok {
				return item, true, nil
			}
		}
		if c.pos >= c.limit {
			item, ok := c.popFirstUnnumbered()
			return item, ok, nil
		}
		if int(c.next) < len(c.run.Events) {
			return c.fromRun(), true, nil
		}
		if c.fetched != nil {
			return c.fromFetched(), true, nil
		}
		item, ok, missing := c.pop()
		if ok {
			return item, true, nil
		}
		if int(c.next) < len(c.run.Events) {
			continue
		}
		if missing == 0 {
			return Item{}, false, nil
		}
		if ok, err := c.fetch(missing); !ok {
			if err != nil && c.isClosed() { // the session was deleted meanwhile
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
	return Item{
		Seq:           c.pos,
		Session:       c.run.Session,
		CorrelationID: c.run.CorrelationID,
		Forwarded:     c.run.Forwarded,
		Event:         e,
		Forms:         c.run.forms,
	}
}

func (c *Cursor) fromFetched() Item {
	d := c.fetched.events[0]
	if c.fetched.events = dropFirst(c.fetched.events); len(c.fetched.events) == 0 {
		c.fetched = nil
	}
	c.pos = d.Seq
	return Item{Seq: d.Seq, Session: d.Session, CorrelationID: d.CorrelationID, Forwarded: d.Forwarded, Event: d.Event}
}

// popFirstUnnumbered returns the first unnumbered item, also if the limit excludes events before it.
func (c *Cursor) popFirstUnnumbered() (item Item, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unnumbered) == 0 {
		return Item{}, false
	}
	return c.popUnnumbered(), true
}

// popUrgent returns the first answer that overtakes events.
func (c *Cursor) popUrgent() (item Item, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.urgent) == 0 {
		return Item{}, false
	}
	item.Answer = c.urgent[0]
	c.answers.Add(-1)
	if c.urgent = dropFirst(c.urgent); len(c.urgent) == 0 {
		c.hasUrgent.Store(false)
	}
	return item, true
}

// pop returns the next unnumbered item, or sets c.run to the next run. missing is the last event before
// the item or the run that is not in memory any more; 0: there is none.
func (c *Cursor) pop() (item Item, ok bool, missing uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run, c.next = tailRun{}, 0
	if c.closed {
		return Item{}, false, 0
	}
	if len(c.unnumbered) > 0 && c.unnumbered[0].after <= c.pos {
		return c.popUnnumbered(), true, 0
	}
	c.dropLocked(c.pos) // these runs were read from the store meanwhile
	switch {
	case len(c.tail) > 0 && c.tail[0].First <= c.pos+1:
		c.run = c.tail[0]
		c.next = int32(c.pos + 1 - c.run.First)
		c.tail = dropFirst(c.tail)
		return Item{}, false, 0
	case len(c.tail) > 0:
		missing = c.tail[0].First - 1
	case c.last > c.pos:
		missing = c.last
	}
	if len(c.unnumbered) > 0 {
		missing = min(missing, c.unnumbered[0].after)
	}
	return Item{}, false, missing
}

func (c *Cursor) popUnnumbered() Item {
	item := c.unnumbered[0].item
	c.unnumbered = dropFirst(c.unnumbered)
	if item.Event != nil {
		c.unlogged--
	} else {
		c.answers.Add(-1)
	}
	return item
}

// dropFirst removes the first element, and frees the memory with the last one.
func dropFirst[T any](s []T) []T {
	if len(s) == 1 {
		return nil
	}
	clear(s[:1])
	return s[1:]
}

// fetch sets c.fetched to events up to and including upTo. It reports false while the events are
// being read.
func (c *Cursor) fetch(upTo uint64) (ok bool, err error) {
	c.mu.Lock()
	r := c.read
	if started := r != nil && r.after == c.pos; !started { // another position was before Seek
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
	if c.read = nil; r.err == nil { // then it has events
		c.fetched = r
	}
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
		err = nil // the next read returns the error, after these events
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read session log after %d: %w", after, err)
	case len(list) == 0 || list[0].Seq != after+1:
		return nil, fmt.Errorf("read session log after %d: the log does not go on there", after)
	}
	return list, nil
}

// each calls fn for the stored events after a position.
func (c *Cursor) each(after uint64, fn func(store.Delivery) bool) error {
	if !c.feed {
		return c.log.store.SessionEvents(context.Background(), arcp.SessionID(c.key), after, fn)
	}
	return c.log.store.Feed(context.Background(), c.key, after, func(e store.FeedEvent) bool {
		return fn(store.Delivery{Seq: e.Position, Session: e.Session, CorrelationID: e.CorrelationID, Event: e.Event})
	})
}

// append appends a run to the tail, with the forms of its events if the connection uses forms. It
// reports false if the cursor is closed.
func (c *Cursor) append(run *store.Run, forms *Forms) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.tail = append(c.tail, tailRun{*run, forms})
		c.last = max(c.last, lastOf(run))
	}
	c.mu.Unlock()
	c.loop.Wake()
	return ok
}

// appendUnlogged queues an unlogged event, or drops it if there are too many.
func (c *Cursor) appendUnlogged(d *store.Delivery) {
	c.mu.Lock()
	if !c.closed && c.unlogged < maxUnlogged {
		c.unlogged++
		c.unnumbered = append(c.unnumbered, unnumberedItem{c.last, Item{CorrelationID: d.CorrelationID, Forwarded: d.Forwarded, Event: d.Event}})
	}
	c.mu.Unlock()
	c.loop.Wake()
}

// drop removes the runs up to a number from the tail. The committer calls drop for connections
// that do not read, so it costs no more than append.
func (c *Cursor) drop(upTo uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(upTo)
}

func (c *Cursor) dropLocked(upTo uint64) {
	for len(c.tail) > 0 && lastOf(&c.tail[0].Run) <= upTo {
		c.tail = dropFirst(c.tail)
	}
}

func lastOf(run *store.Run) uint64 { return run.First + uint64(len(run.Events)) - 1 }
