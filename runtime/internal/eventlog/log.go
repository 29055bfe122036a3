// Package eventlog carries events from jobs to the sessions that follow them: append,
// commit, then deliver. There is no other way.
//
// One goroutine, the committer, commits writes in the order in which they were appended.
// All queued writes are one group commit, so a write costs a share of an fsync. No event
// is delivered before its commit is durable. Connections pull through a Cursor: new
// events come from memory, which is bounded for all sessions together, and older events
// from the store. A connection that does not pull delays no other.
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

// Bounds of a group commit, and of the events in memory for connections that lag.
const (
	maxBatchEvents = 2048     // of a commit: it takes about as long as an fsync
	maxBatchBytes  = 1 << 20  // of a commit
	tailBytes      = 16 << 20 // of committed events in the tails of all cursors together
	tailMarks      = 64 << 10 // of runs in the tails of all cursors together
	maxUnlogged    = 64       // unlogged events that a cursor queues; more are dropped
)

// ErrClosed is the result of a write appended after Close.
var ErrClosed = errors.New("event log is closed")

// Options of a Log.
type Options struct {
	// OnCommit, if set, is called after every commit on the committer's goroutine. err is the error of
	// the store: nothing of the commit is stored.
	OnCommit func(events int, d time.Duration, err error)
	// OnBroken, if set, is called once when the store has failed. All later writes are
	// refused.
	OnBroken func(error)
	// TailBytes bounds the committed events in memory for all cursors together. Default
	// 16 MiB.
	TailBytes int
	// BacklogBytes bounds the events of one session that Release has not released; 0: no bound.
	// Over the bound OnOverflow is called, on the committer's goroutine or in Measure, with the
	// number up to which the session has to be trimmed. OnUnmeasured, if set, is called on the
	// committer's goroutine when Measure has a session to count.
	BacklogBytes int64
	OnOverflow   func(id arcp.SessionID, upTo uint64)
	OnUnmeasured func()
	// CommitDelay is how long a commit waits for more writes if writes were queued during
	// the commit before: a single writer never waits. At most MaxCommitDelay; 0: no wait.
	CommitDelay time.Duration

	now   func() time.Time // default time.Now
	yield func()           // default runtime.Gosched
}

// MaxCommitDelay is the longest CommitDelay.
const MaxCommitDelay = 150 * time.Microsecond

// SyncDelay is the longest time until a write of AppendUnsynced is durable.
const SyncDelay = 50 * time.Millisecond

// Log orders the writes to a store. Its methods may be called by any goroutine.
type Log struct {
	store store.Store
	opts  Options
	donec chan struct{}

	mu     sync.Mutex
	queue  []entry
	spare  []entry
	closed bool
	wake   chan struct{} // buffered 1: the queue is not empty, or closed

	sessionsMu sync.Mutex
	// sessions are by session id, because the results of the store name sessions by id.
	sessions   map[arcp.SessionID]*sessionState
	unreleased int64                // of all sessions
	feeds      map[string][]*Cursor // by principal
	unmeasured []arcp.SessionID     // sessions whose older events Measure has to count

	measuring measuring   // only Measure uses it
	tails     tailLimiter // only the committer uses it
	syncDue   bool        // a write will make the writes of AppendUnsynced durable; only the committer uses it
}

type entry struct {
	w    *store.Write
	done func(*store.Result)
}

// New starts a log on st. Nothing else may commit to st from now on.
func New(st store.Store, opts Options) *Log {
	if opts.TailBytes <= 0 {
		opts.TailBytes = tailBytes
	}
	opts.CommitDelay = min(opts.CommitDelay, MaxCommitDelay)
	if opts.now == nil {
		opts.now, opts.yield = time.Now, runtime.Gosched
	}
	l := &Log{store: st, opts: opts, tails: tailLimiter{maxBytes: opts.TailBytes}, donec: make(chan struct{}), wake: make(chan struct{}, 1),
		sessions: make(map[arcp.SessionID]*sessionState), feeds: make(map[string][]*Cursor)}
	go l.run()
	return l
}

// Append queues a write. done, which may be nil, is called with the result on the
// committer's goroutine when the write is durable or refused, before any of its events
// is delivered. It must not block. The result is valid until done returns.
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

// AppendUnsynced is Append for a write that a crash may undo until a later write is durable, which
// is at most SyncDelay later. done is called when the write has its place in the order of writes.
func (l *Log) AppendUnsynced(w *store.Write, done func(*store.Result)) {
	w.NoSync = true
	l.Append(w, func(r *store.Result) {
		if r.Err == nil && !l.syncDue {
			l.syncDue = true
			time.AfterFunc(SyncDelay, l.sync)
		}
		done(r)
	})
}

// sync makes all committed writes durable.
func (l *Log) sync() {
	l.Append(new(store.Write), func(r *store.Result) {
		if r.Err == nil {
			l.syncDue = false
		}
	})
}

// Commit appends a write and waits for its result, which stays valid. When ctx ends
// first the write happens all the same.
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

// Close commits the queued writes, refuses later writes, and returns when the committer
// has ended. The store stays open.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.signal()
	<-l.donec
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Log) run() {
	defer close(l.donec)
	var c committer
	for {
		if c.busy {
			l.waitForMore()
		}
		batch, ok := l.dequeue()
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

// waitForMore waits for more writes to join the queue. It yields instead of sleeping: the
// shortest sleep is about a millisecond on an idle machine.
func (l *Log) waitForMore() {
	for end := l.opts.now().Add(l.opts.CommitDelay); l.opts.now().Before(end) && l.hasRoom(); {
		l.opts.yield()
	}
}

// hasRoom reports whether the next commit has room for more writes.
func (l *Log) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed && len(l.queue) < maxBatchEvents
}

// dequeue waits for queued writes; ok is false after Close when none are left.
func (l *Log) dequeue() (batch []entry, ok bool) {
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
		<-l.wake
		runtime.Gosched() // goroutines about to append may join: a larger batch costs less a write
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

// committer is the scratch space and state of the run loop.
type committer struct {
	writes  []*store.Write
	results []store.Result
	broken  error
	busy    bool // writes were queued during the last commit
}

func (l *Log) commit(c *committer, batch []entry, events int) {
	start := time.Now()
	c.writes, c.results = c.writes[:0], c.results[:0]
	for _, e := range batch {
		c.writes = append(c.writes, e.w)
		c.results = append(c.results, store.Result{})
	}
	l.perform(c)
	c.busy = l.opts.CommitDelay > 0 && l.waiting() // writes of the callbacks below do not count
	if l.opts.OnCommit != nil {
		l.opts.OnCommit(events, time.Since(start), c.broken)
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
