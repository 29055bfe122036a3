package eventlog

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// sessionState is the state of a session in the log: its connection and the range of its
// events. Detached sessions have one, too: their backlog grows.
type sessionState struct {
	cursor   *Cursor  // nil: no connection
	last     uint64   // highest number since the log was started
	first    uint64   // lowest one; 0: none
	released uint64   // highest number released since then
	from     uint64   // last number before the first event that counts as unreleased
	backlog  *backlog // without the events before first until Measure has added them; nil: empty
}

// unreleased returns how many events since the log was started, or since the position of the first connection,
// are not released.
func (st *sessionState) unreleased() int64 {
	return int64(st.last - min(st.last, max(st.released, st.from)))
}

// Attach returns a cursor of a session that starts after a position. From then on the cursor misses no
// event. It supersedes the session's cursor, if there is one. Attach is called by the done callback of
// a write that stores the session's row; last is LastSeq of the result.
func (l *Log) Attach(id arcp.SessionID, after, last uint64, loop Loop) *Cursor {
	c := &Cursor{log: l, key: string(id), loop: loop, pos: after, last: last, limit: NoLimit}
	l.sessionsMu.Lock()
	st := l.sessionLocked(id)
	if st.last == 0 {
		st.from = after
	}
	old := st.cursor
	st.cursor = c
	l.updateLocked(st, func() { st.last = last })
	l.sessionsMu.Unlock()
	if old != nil {
		old.supersede()
	}
	return c
}

// sessionLocked returns the state of a session, a new one if there is none.
func (l *Log) sessionLocked(id arcp.SessionID) *sessionState {
	st := l.sessions[id]
	if st == nil {
		st = new(sessionState)
		l.sessions[id] = st
	}
	return st
}

// updateLocked changes last or released of a session, and counts the unreleased events.
func (l *Log) updateLocked(st *sessionState, change func()) {
	l.unreleased -= st.unreleased()
	change()
	l.unreleased += st.unreleased()
}

// Unreleased returns how many events are not released, of all sessions together. Events from before the log was
// started count from the first connection of their session, after its position.
func (l *Log) Unreleased() int64 {
	l.sessionsMu.Lock()
	defer l.sessionsMu.Unlock()
	return l.unreleased
}

// AttachFeed calls attached with a cursor of a principal's feed that starts after a
// position, and with the last position of the feed. A feed has any number of cursors.
// The cursor is nil if the store has failed.
func (l *Log) AttachFeed(principal string, after uint64, loop Loop, attached func(c *Cursor, last uint64)) {
	l.Append(&store.Write{Ops: []store.Op{&store.ReadFeedPosition{Principal: principal}}, NoSync: true}, func(r *store.Result) {
		if r.Err != nil {
			attached(nil, 0)
			return
		}
		c := &Cursor{log: l, key: principal, feed: true, loop: loop, pos: min(after, r.FeedLast), last: r.FeedLast, limit: NoLimit}
		l.sessionsMu.Lock()
		l.feeds[principal] = append(l.feeds[principal], c)
		l.sessionsMu.Unlock()
		attached(c, r.FeedLast)
	})
}

func (l *Log) detach(c *Cursor) {
	l.sessionsMu.Lock()
	defer l.sessionsMu.Unlock()
	if c.feed {
		feeds := slices.DeleteFunc(l.feeds[c.key], func(o *Cursor) bool { return o == c })
		if l.feeds[c.key] = feeds; len(feeds) == 0 {
			delete(l.feeds, c.key)
		}
		return
	}
	if st := l.sessions[arcp.SessionID(c.key)]; st != nil && st.cursor == c {
		st.cursor = nil
	}
}

// Forget drops the state of a session that has ended, and closes its cursor. It is called when no
// later write can add events to the session.
func (l *Log) Forget(id arcp.SessionID) {
	l.sessionsMu.Lock()
	st := l.sessions[id]
	delete(l.sessions, id)
	if st != nil {
		l.unreleased -= st.unreleased()
	}
	l.sessionsMu.Unlock()
	if st != nil && st.cursor != nil {
		st.cursor.markClosed()
	}
}

// deliver passes the result of a committed write to the cursors of its sessions.
func (l *Log) deliver(r *store.Result) {
	if len(r.Runs) == 0 && len(r.Unlogged) == 0 && len(r.Feed.Events) == 0 {
		return
	}
	var t tailEntry
	var size sizes
	var forms *Forms
	for i := range r.Runs {
		run := &r.Runs[i]
		c := l.extend(run, &size)
		if c == nil {
			continue
		}
		var shared *Forms
		if c.loop.UsesForms && len(r.Runs) > 1 {
			if forms == nil {
				forms = new(Forms)
			}
			shared = forms
			t.bytes += shared.Add(run.Events)
		}
		if c.append(run, shared) {
			t.add(c, run)
		}
	}
	if len(r.Feed.Events) > 0 {
		l.deliverFeed(&r.Feed, &t)
	}
	for i := range r.Unlogged {
		if c := l.cursor(r.Unlogged[i].Session); c != nil {
			c.appendUnlogged(&r.Unlogged[i])
		}
	}
	if len(t.marks) > 0 {
		l.tails.add(t)
	}
}

func (l *Log) deliverFeed(f *store.FeedRun, t *tailEntry) {
	l.sessionsMu.Lock()
	cursors := slices.Clone(l.feeds[f.Principal]) // of nil costs nothing
	l.sessionsMu.Unlock()
	run := store.Run{Session: f.Session, First: f.First, CorrelationID: f.CorrelationID, Events: f.Events}
	for _, c := range cursors {
		if c.append(&run, nil) {
			t.add(c, &run)
		}
	}
}

// extend adds a run to the position and the backlog of its session, and returns the
// session's cursor, nil if there is none.
func (l *Log) extend(run *store.Run, size *sizes) *Cursor {
	l.sessionsMu.Lock()
	st := l.sessionLocked(run.Session)
	if st.last == 0 {
		st.from = run.First - 1
	}
	l.unreleased -= st.unreleased()
	st.last = lastOf(run)
	var overflow uint64
	older := false
	if l.opts.BacklogBytes > 0 {
		if st.first == 0 {
			if st.first, older = run.First, run.First > 1; older {
				l.unmeasured = append(l.unmeasured, run.Session)
			}
		}
		if st.backlog == nil {
			st.backlog = new(backlog)
		}
		overflow = st.backlog.add(st.last, size.of(run.Events), uint64(l.opts.BacklogBytes))
		st.released = max(st.released, overflow)
	}
	l.unreleased += st.unreleased()
	c := st.cursor
	l.sessionsMu.Unlock()
	if older && l.opts.OnUnmeasured != nil {
		l.opts.OnUnmeasured()
	}
	if overflow > 0 {
		l.opts.OnOverflow(run.Session, overflow)
	}
	return c
}

func (l *Log) cursor(id arcp.SessionID) *Cursor {
	l.sessionsMu.Lock()
	defer l.sessionsMu.Unlock()
	if st := l.sessions[id]; st != nil {
		return st.cursor
	}
	return nil
}

// tailLimiter bounds the memory of all tails. It lists, the oldest first, the runs that each write has
// added to tails. Runs that Next has returned stay in the list; dropping them does nothing.
type tailLimiter struct {
	maxBytes int // bound of bytes
	entries  []tailEntry
	head     int
	bytes    int
	marks    int
}

// tailEntry lists the runs that one write has added to tails.
type tailEntry struct {
	marks   []tailMark
	bytes   int
	first   *store.Event // of the run counted last: followers share events
	counted int
}

type tailMark struct {
	cursor *Cursor
	upTo   uint64
}

func (t *tailEntry) add(c *Cursor, run *store.Run) {
	t.marks = append(t.marks, tailMark{c, lastOf(run)})
	t.count(run.Events)
}

// count adds the size of events, once for all followers that share them.
func (t *tailEntry) count(events []*store.Event) {
	if t.first != events[0] {
		t.first, t.counted = events[0], 0
	}
	for ; t.counted < len(events); t.counted++ {
		t.bytes += events[t.counted].Memory()
	}
}

func (tl *tailLimiter) add(t tailEntry) {
	t.first = nil
	tl.entries = append(tl.entries, t)
	tl.bytes += t.bytes
	tl.marks += len(t.marks)
	for tl.head < len(tl.entries)-1 && (tl.bytes > tl.maxBytes || tl.marks > tailMarks) {
		tl.evict()
	}
	if tl.head > 1024 && tl.head > len(tl.entries)/2 {
		n := copy(tl.entries, tl.entries[tl.head:])
		clear(tl.entries[n:])
		tl.entries, tl.head = tl.entries[:n], 0
	}
}

func (tl *tailLimiter) evict() {
	t := tl.entries[tl.head]
	tl.entries[tl.head] = tailEntry{}
	tl.head++
	tl.bytes -= t.bytes
	tl.marks -= len(t.marks)
	for _, m := range t.marks {
		m.cursor.drop(m.upTo)
	}
}
