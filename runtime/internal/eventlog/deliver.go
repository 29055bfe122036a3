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
	backlog  *backlog // without the events before first until Measure has added them; nil: empty
}

// Attach returns a cursor of a session that starts after a position. From then on the cursor misses no
// event. It supersedes the session's cursor, if there is one. Attach is called by the done callback of
// a write that stores the session's row; last is LastSeq of the result.
func (l *Log) Attach(id arcp.SessionID, after, last uint64, loop Loop) *Cursor {
	c := &Cursor{log: l, key: string(id), loop: loop, pos: after, last: last, limit: NoLimit}
	l.sessionsMu.Lock()
	p := l.sessionLocked(id)
	old := p.cursor
	p.cursor, p.last = c, last
	l.sessionsMu.Unlock()
	if old != nil {
		old.supersede()
	}
	return c
}

func (l *Log) sessionLocked(id arcp.SessionID) *sessionState {
	p := l.sessions[id]
	if p == nil {
		p = new(sessionState)
		l.sessions[id] = p
	}
	return p
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
	if p := l.sessions[arcp.SessionID(c.key)]; p != nil && p.cursor == c {
		p.cursor = nil
	}
}

// Forget drops the state of a session that has ended, and closes its cursor. It is called when no
// later write can add events to the session.
func (l *Log) Forget(id arcp.SessionID) {
	l.sessionsMu.Lock()
	p := l.sessions[id]
	delete(l.sessions, id)
	l.sessionsMu.Unlock()
	if p != nil && p.cursor != nil {
		p.cursor.markClosed()
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
	p := l.sessionLocked(run.Session)
	p.last = lastOf(run)
	var overflow uint64
	older := false
	if l.opts.BacklogBytes > 0 {
		if p.first == 0 {
			if p.first, older = run.First, run.First > 1; older {
				l.unmeasured = append(l.unmeasured, run.Session)
			}
		}
		if p.backlog == nil {
			p.backlog = new(backlog)
		}
		overflow = p.backlog.add(p.last, size.of(run.Events), uint64(l.opts.BacklogBytes))
		p.released = max(p.released, overflow)
	}
	c := p.cursor
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
	if p := l.sessions[id]; p != nil {
		return p.cursor
	}
	return nil
}

// tailLimiter bounds the memory of all tails. It lists, the oldest first, the runs that each write has
// added to tails. Runs that Next has returned stay in the list; dropping them does nothing.
type tailLimiter struct {
	maxBytes int // of bytes
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

func (r *tailLimiter) add(t tailEntry) {
	t.first = nil
	r.entries = append(r.entries, t)
	r.bytes += t.bytes
	r.marks += len(t.marks)
	for r.head < len(r.entries)-1 && (r.bytes > r.maxBytes || r.marks > tailMarks) {
		r.evict()
	}
	if r.head > 1024 && r.head > len(r.entries)/2 {
		n := copy(r.entries, r.entries[r.head:])
		clear(r.entries[n:])
		r.entries, r.head = r.entries[:n], 0
	}
}

func (r *tailLimiter) evict() {
	t := r.entries[r.head]
	r.entries[r.head] = tailEntry{}
	r.head++
	r.bytes -= t.bytes
	r.marks -= len(t.marks)
	for _, m := range t.marks {
		m.cursor.drop(m.upTo)
	}
}
