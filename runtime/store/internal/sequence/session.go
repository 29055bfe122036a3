package sequence

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// session is what deciding needs of a session.
type session struct {
	id      arcp.SessionID
	last    uint64 // highest number given
	trimmed uint64
	view    arcp.TypeSet
	follows int    // live jobs' followers that point here: it must stay
	used    uint64 // batch it was last asked for in
	change  *SessionChange
}

// session returns a session, from memory or the source; nil if there is none.
func (c *Core) session(id arcp.SessionID) *session {
	if s := c.sessions[id]; s != nil {
		s.used = c.batch
		return s
	}
	row, err := c.src.Session(id)
	if err != nil {
		if !errors.Is(err, store.ErrNotFound) {
			c.fail(fmt.Errorf("session %s: %w", id, err))
		}
		return nil
	}
	return c.addSession(&row)
}

func (c *Core) addSession(row *store.Session) *session {
	s := &session{id: row.ID, last: row.LastSeq, trimmed: row.TrimmedTo, view: row.View(), used: c.batch}
	c.sessions[s.id] = s
	return s
}

func (c *Core) fail(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

func (c *Core) sessionChange(s *session) *SessionChange {
	if s.change == nil {
		c.chg.Sessions, s.change = next(c.chg.Sessions)
		s.change.ID, s.change.session, s.change.LastSeq, s.change.Trim = s.id, s, s.last, s.trimmed
	}
	return s.change
}

func (c *Core) putSession(row *store.Session) {
	s := c.session(row.ID)
	isNew := s == nil
	if isNew {
		fresh := *row
		fresh.LastSeq, fresh.TrimmedTo = 0, 0
		s = c.addSession(&fresh)
	}
	s.view = row.View()
	sc := c.sessionChange(s)
	sc.Row = row
	sc.New = sc.New || isNew
}

func (c *Core) trim(t *store.Trim) {
	s := c.session(t.Session)
	upTo := min(t.Seq, s.last)
	if upTo <= s.trimmed {
		return
	}
	s.trimmed = upTo
	sc := c.sessionChange(s)
	sc.Trim, sc.Trimmed = upTo, true
}

// evict bounds how many sessions are in memory: those that were not used for
// longest go, down to three quarters of the bound. Those that follow a live
// job stay whatever the bound.
func (c *Core) evict() {
	if len(c.sessions) <= c.limit {
		return
	}
	var idle []*session
	for _, s := range c.sessions {
		if s.follows == 0 {
			idle = append(idle, s)
		}
	}
	slices.SortFunc(idle, func(a, b *session) int { return cmp.Compare(a.used, b.used) })
	spare := min(len(c.sessions)-c.limit/4*3, len(idle))
	for _, s := range idle[:spare] {
		delete(c.sessions, s.id)
	}
	if pinned := len(c.sessions) - (len(idle) - spare); pinned > c.limit/2 {
		c.limit = 2 * pinned // or every batch would search in vain
	}
}
