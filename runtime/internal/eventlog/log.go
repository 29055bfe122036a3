// Package eventlog is the one way an event takes from a job to the sessions
// that follow it: append, commit, then deliver.
//
// Writes are committed by one goroutine in the order in which they were
// appended, whatever is queued in one group commit, so a write costs a share of
// an fsync. Nothing is delivered before its commit is durable. Connections pull
// through a Cursor: what was just committed comes from memory, bounded for all
// sessions together, and what is older from the store; a connection that does
// not pull holds pointers only until that bound and delays nobody.
package eventlog

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of a group commit and of what is kept for connections that lag.
const (
	maxBatchEvents = 2048     // a commit of this many takes about as long as an fsync
	maxBatchBytes  = 1 << 20  //
	tailBytes      = 16 << 20 // committed events kept in memory for all cursors together
	tailMarks      = 64 << 10 // and the runs of them in tails: what one costs does not depend on its events
	maxUnlogged    = 64       // undelivered heartbeats of a cursor; more are dropped
)

// ErrClosed is the result of a write appended after Close.
var ErrClosed = errors.New("event log is closed")

// Options of a Log.
type Options struct {
	// OnCommit, if set, is told of every commit on the committer's goroutine.
	OnCommit func(events int, d time.Duration)
	// OnBroken, if set, is called once when the store has failed: nothing can
	// be accepted any more.
	OnBroken func(error)
	// TailBytes bounds the committed events that are kept in memory for all
	// cursors together. Default 16 MiB.
	TailBytes int
	// BacklogBytes bounds what one session was given and has not let go of; see
	// Free. Past it OnOverflow is called on the committer's goroutine, or that of
	// Measure, with the number up to which the oldest part has to be trimmed. 0: no
	// bound. OnOlder, if set, is called on the committer's goroutine when there is
	// something to Measure.
	BacklogBytes int64
	OnOverflow   func(id arcp.SessionID, upTo uint64)
	OnOlder      func()
	// CommitDelay is how long a commit waits for more writes, at most
	// MaxCommitDelay, if some were queued while the one before ran: a writer that is
	// alone never waits. 0: not at all.
	CommitDelay time.Duration

	now   func() time.Time // default time.Now
	yield func()           // default runtime.Gosched
}

// MaxCommitDelay is the longest CommitDelay.
const MaxCommitDelay = 150 * time.Microsecond

// Log orders writes to a store. Its methods may be called by many goroutines.
type Log struct {
	store store.Store
	opts  Options
	donec chan struct{}

	mu     sync.Mutex
	queue  []entry
	spare  []entry
	closed bool
	kick   chan struct{} // buffered 1: the queue is not empty, or closed

	curMu  sync.Mutex
	places map[arcp.SessionID]*logPosition
	feeds  map[string][]*Cursor // by principal

	unmeasured []arcp.SessionID // guarded by curMu
	measuring  measuring        // Measure only

	recent recent // committer only
}

type entry struct {
	w    *store.Write
	done func(*store.Result)
}

// New starts a log on st, which it alone commits to from now on.
func New(st store.Store, opts Options) *Log {
	if opts.TailBytes <= 0 {
		opts.TailBytes = tailBytes
	}
	opts.CommitDelay = min(opts.CommitDelay, MaxCommitDelay)
	if opts.now == nil {
		opts.now, opts.yield = time.Now, runtime.Gosched
	}
	l := &Log{store: st, opts: opts, recent: recent{budget: opts.TailBytes}, donec: make(chan struct{}), kick: make(chan struct{}, 1),
		places: make(map[arcp.SessionID]*logPosition), feeds: make(map[string][]*Cursor)}
	go l.run()
	return l
}

// Append queues a write. done, which may be nil, is called with its result on
// the committer's goroutine once the write is durable, before anything of it is
// delivered to a cursor; it must not block. The result is valid until done
// returns.
func (l *Log) Append(w *store.Write, done func(*store.Result)) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		if done != nil {
			done(&store.Result{Err: ErrClosed})
		}
		return
	}
	l.queue = append(l.queue, entry{w, done})
	first := len(l.queue) == 1
	l.mu.Unlock()
	if first {
		l.signal()
	}
}

// Commit appends a write and waits for its result, which may be kept. When ctx
// ends first the write happens all the same.
func (l *Log) Commit(ctx context.Context, w *store.Write) (store.Result, error) {
	c := make(chan store.Result, 1)
	l.Append(w, func(r *store.Result) { c <- *r })
	select {
	case r := <-c:
		return r, r.Err
	case <-ctx.Done():
		return store.Result{}, context.Cause(ctx)
	}
}

// Close commits what is queued, refuses what comes later, and returns when the
// committer has ended. The store stays open.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.signal()
	<-l.donec
}

func (l *Log) signal() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *Log) run() {
	defer close(l.donec)
	var c committer
	for {
		if c.loaded {
			l.gather()
		}
		batch, ok := l.take()
		if !ok {
			return
		}
		for len(batch) > 0 {
			n, events := batchLen(batch)
			l.commit(&c, batch[:n], events)
			batch = batch[n:]
		}
	}
}

// gather waits for more writes to join those that are queued. It gives way to
// whoever has something to do instead of sleeping: the shortest sleep is about a
// millisecond where nothing else runs.
func (l *Log) gather() {
	for end := l.opts.now().Add(l.opts.CommitDelay); l.opts.now().Before(end) && l.hasRoom(); {
		l.opts.yield()
	}
}

// hasRoom reports whether more writes may come and join the next commit.
func (l *Log) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed && len(l.queue) < maxBatchEvents
}

// take waits for queued writes; ok is false after Close when none are left.
func (l *Log) take() (batch []entry, ok bool) {
	for {
		l.mu.Lock()
		if len(l.queue) > 0 {
			batch = l.queue
			l.queue, l.spare = l.spare[:0], batch
			l.mu.Unlock()
			return batch, true
		}
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return nil, false
		}
		<-l.kick
		runtime.Gosched() // whoever is about to append may join: a larger batch costs less a write
	}
}

func (l *Log) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) > 0
}

// batchLen returns how many of the queued writes make the next commit, and how many
// events they have.
func batchLen(batch []entry) (n, events int) {
	history, bytes := 0, 0
	for i, e := range batch {
		count, size := sizeOf(e.w)
		events, bytes = events+count, bytes+size
		if store.Find[*store.Follow](e.w) != nil {
			history += followPiece // at most
		}
		if events+history >= maxBatchEvents || bytes >= maxBatchBytes {
			return i + 1, events
		}
	}
	return len(batch), events
}

// sizeOf returns the number and the size of the events in a write and in its With.
func sizeOf(w *store.Write) (events, bytes int) {
	for _, op := range w.Ops {
		switch op := op.(type) {
		case *store.AppendEvents:
			events, bytes = events+len(op.Events), bytes+sizeOfEvents(op.Events)
		case *store.Announce:
			events, bytes = events+len(op.Events), bytes+sizeOfEvents(op.Events)
		}
	}
	for _, part := range w.With {
		n, size := sizeOf(part)
		events, bytes = events+n, bytes+size
	}
	return events, bytes
}

func sizeOfEvents(events []*store.Event) (n int) {
	for _, e := range events {
		n += len(e.Body)
	}
	return n
}

// committer is scratch space of the run loop.
type committer struct {
	writes  []*store.Write
	results []store.Result
	broken  error
	loaded  bool // writes were queued while the last commit ran
}

func (l *Log) commit(c *committer, batch []entry, events int) {
	start := time.Now()
	c.writes, c.results = c.writes[:0], c.results[:0]
	for _, e := range batch {
		c.writes = append(c.writes, e.w)
		c.results = append(c.results, store.Result{})
	}
	l.perform(c)
	c.loaded = l.opts.CommitDelay > 0 && l.waiting() // what the callbacks below append is no load
	if l.opts.OnCommit != nil {
		l.opts.OnCommit(events, time.Since(start))
	}
	for i := range batch {
		r := &c.results[i]
		if batch[i].done != nil {
			batch[i].done(r)
		}
		if r.Err == nil {
			for j := range r.With {
				l.deliver(&r.With[j])
			}
			l.deliver(r)
		}
		batch[i] = entry{}
		*r = store.Result{}
		c.writes[i] = nil
	}
}

func (l *Log) perform(c *committer) {
	if c.broken == nil {
		if err := l.store.Commit(c.writes, c.results); err != nil {
			c.broken = errors.Join(store.ErrBroken, err)
			if l.opts.OnBroken != nil {
				l.opts.OnBroken(err)
			}
		}
	}
	if c.broken != nil {
		for i := range c.results {
			c.results[i] = store.Result{Err: c.broken}
		}
	}
}
