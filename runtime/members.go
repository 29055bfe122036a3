package runtime

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/store"
)

// members is every session there is, with or without a connection. The rows are
// in the store; here is what changes as connections come and go.
type members struct {
	mu     sync.Mutex
	byID   map[arcp.SessionID]*member
	owners map[string]*owner
	away   int
	gauge  func(connected, detached int) // told of every change, with mu
}

// owner is a principal with its sessions.
type owner struct {
	n    int       // sessions
	away list.List // of *member: those without a connection, the longest first
}

// member is a session. Guarded by members.mu, but for what does not change.
type member struct {
	id        arcp.SessionID
	principal string
	created   time.Time
	conn      *conn         // nil: none, or it is being made
	epoch     uint32        // of the newest connection
	acks      bool          // it acknowledges
	who       approval.Who  // the newest connection, as one that asks and answers
	heard     uint32        // epoch of the newest connection on which something came: its client has its token
	away      *list.Element // in the owner's list; nil: it has a connection
	since     time.Time     // when it lost the last one
	kept      time.Time     // expired passes it over until then
	reached   uint64        // what that one had reached; 0: not known
	replay    *kept         // of all its connections
}

// position is how far the session has got: a connection that has ended, or the
// one there is, wherever that may be by now.
func (e *member) position() uint64 {
	if e.conn == nil {
		return e.reached
	}
	return e.conn.reached.position()
}

func newMembers(gauge func(connected, detached int)) *members {
	return &members{byID: make(map[arcp.SessionID]*member), owners: make(map[string]*owner), gauge: gauge}
}

func (m *members) changedLocked() { m.gauge(len(m.byID)-m.away, m.away) }

// load takes over the sessions of the store. None has a connection. Where those
// that do not acknowledge were is known if their last connection ended before
// the runtime did; else where that one began, or nothing.
func (m *members) load(ctx context.Context, st store.Store, now time.Time) error {
	return st.Sessions(ctx, func(s store.Session) bool {
		e := &member{id: s.ID, principal: s.Principal, created: s.CreatedAt, epoch: s.Epoch, acks: s.Acks}
		if !s.Acks {
			e.reached = s.Written
		}
		m.addLocked(e)
		m.leaveLocked(e, now)
		return true
	})
}

func (m *members) addLocked(e *member) {
	m.byID[e.id] = e
	e.replay = new(kept)
	if e.conn != nil {
		e.conn.kept = e.replay
	}
	o := m.owners[e.principal]
	if o == nil {
		o = new(owner)
		m.owners[e.principal] = o
	}
	o.n++
	m.changedLocked()
}

func (m *members) leaveLocked(e *member, now time.Time) {
	e.conn, e.since = nil, now
	if e.away == nil {
		e.away = m.owners[e.principal].away.PushBack(e)
		m.away++
	}
	m.changedLocked()
}

// backLocked takes a session off the list of those without a connection.
func (m *members) backLocked(e *member) {
	if e.away != nil {
		m.owners[e.principal].away.Remove(e.away)
		e.away = nil
		m.away--
	}
}

// removeLocked forgets a session.
func (m *members) removeLocked(e *member) {
	if m.byID[e.id] != e {
		return
	}
	m.backLocked(e)
	delete(m.byID, e.id)
	if o := m.owners[e.principal]; o.n == 1 {
		delete(m.owners, e.principal)
	} else {
		o.n--
	}
	m.changedLocked()
}

// limits of a new session: sessions of everybody and of its principal.
type sessionLimits struct{ all, principal int }

// full says which limit a new session of a principal is over. When it is, the
// session of the principal that has been without a connection for longest has
// to go, if there is one: whoever opens many sessions loses its own.
type full struct {
	limit string // of sessions; empty: there is room
	n     int
	oust  *member
}

// enter adds a session that is about to be made.
func (m *members) enter(e *member, l sessionLimits) full {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.overLocked(e.principal, l)
	if f.limit != "" && f.oust == nil {
		return f
	}
	if f.oust != nil {
		m.removeLocked(f.oust)
		f.limit = ""
	}
	m.addLocked(e)
	return f
}

func (m *members) overLocked(principal string, l sessionLimits) (f full) {
	o := m.owners[principal]
	switch {
	case over(len(m.byID), l.all):
		f.limit, f.n = "sessions", l.all
	case o != nil && over(o.n, l.principal):
		f.limit, f.n = "sessions_per_principal", l.principal
	default:
		return f
	}
	if o != nil && o.away.Len() > 0 {
		f.oust = o.away.Front().Value.(*member)
	}
	return f
}

// take makes c the session's connection, unless there is a newer one; it returns
// the one before.
func (m *members) take(id arcp.SessionID, c *conn, epoch uint32) (old *conn, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e == nil || e.epoch > epoch {
		return nil, false
	}
	c.reached.start(e.position(), false, 0)
	c.kept = e.replay
	old, e.conn, e.epoch = e.conn, c, epoch
	m.backLocked(e)
	m.changedLocked()
	return old, true
}

// know notes who a session's connection is.
func (m *members) know(w approval.Who) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[w.Session]; e != nil {
		e.who = w
	}
}

// heard notes that the client of c was heard.
func (m *members) heard(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[c.id]; e != nil {
		e.heard = max(e.heard, c.row.Epoch)
	}
}

// unheard notes that there is a new token on a connection that was heard.
func (m *members) unheard(id arcp.SessionID, epoch uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[id]; e != nil && e.epoch == epoch {
		e.heard = 0
	}
}

// leave says that c has ended. It reports whether the session is without a
// connection now.
func (m *members) leave(c *conn, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[c.id]
	if e == nil || e.conn != c {
		return false
	}
	e.reached = c.reached.position()
	m.leaveLocked(e, now)
	return true
}

// drop forgets a session; it returns its connection, if it has one.
func (m *members) drop(id arcp.SessionID) (c *conn, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e == nil {
		return nil, false
	}
	m.removeLocked(e)
	return e.conn, true
}

// find returns a copy of a session.
func (m *members) find(id arcp.SessionID) (member, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[id]; e != nil {
		return *e, true
	}
	return member{}, false
}

// since is when a session lost its connection; now if it is not known.
func (m *members) since(id arcp.SessionID, now time.Time) time.Time {
	if e, ok := m.find(id); ok {
		return e.since
	}
	return now
}

// acking notes that a session acknowledges.
func (m *members) acking(id arcp.SessionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[id]; e != nil {
		e.acks = true
	}
}

// of returns copies of the sessions of the principals that are wanted.
func (m *members) of(wanted func(principal string) bool) (list []member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.byID {
		if wanted(e.principal) {
			list = append(list, *e)
		}
	}
	return list
}

// has reports whether a principal has a session.
func (m *members) has(principal string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners[principal] != nil
}

// expired returns copies of the sessions that have been without a connection
// since before a time, at most n of them, but for those that are kept.
func (m *members) expired(now, before time.Time, n int) (list []member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.owners {
		for el := o.away.Front(); el != nil && len(list) < n; el = el.Next() {
			e := el.Value.(*member)
			if !e.since.Before(before) {
				break
			}
			if !now.Before(e.kept) {
				list = append(list, *e)
			}
		}
	}
	return list
}

// keep has expired pass a session over until a time: others behind it come up.
func (m *members) keep(id arcp.SessionID, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[id]; e != nil {
		e.kept = until
	}
}

// removeAway forgets a session that has had no connection since a time.
func (m *members) removeAway(id arcp.SessionID, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e == nil || e.away == nil || !e.since.Equal(since) {
		return false
	}
	m.removeLocked(e)
	return true
}

func over(n, limit int) bool { return limit > 0 && n >= limit }
