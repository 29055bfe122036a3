package sequence

import (
	"errors"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// session is what deciding needs of a session.
type session struct {
	id arcp.SessionID
	trail
	view   arcp.TypeSet
	epoch  uint32
	jobs   map[*job]struct{} // live ones that it submitted or follows: it must stay
	others int               // of these, that it did not submit
	change *SessionChange
}

func (s *session) idle() bool { return len(s.jobs) == 0 }

func (s *session) hold(j *job) {
	if s.jobs == nil {
		s.jobs = make(map[*job]struct{})
	}
	if _, ok := s.jobs[j]; !ok && j.session != s.id {
		s.others++
	}
	s.jobs[j] = struct{}{}
}

// drop lets go of a job.
func (s *session) drop(j *job) {
	if _, ok := s.jobs[j]; ok && j.session != s.id {
		s.others--
	}
	delete(s.jobs, j)
}

// session returns a session, from memory or the source; nil if there is none.
func (c *Core) session(id arcp.SessionID) *session {
	if s := c.sessions[id]; s != nil {
		s.used = c.batch
		return s
	}
	if c.isGone(id) {
		return nil
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

// isGone reports whether a session has ended in this batch: the source still
// knows it.
func (c *Core) isGone(id arcp.SessionID) bool {
	_, ok := c.gone[id]
	return ok
}

func (c *Core) addSession(row *store.Session) *session {
	s := &session{id: row.ID, view: row.View(), epoch: row.Epoch,
		trail: trail{last: row.LastSeq, trimmed: row.TrimmedTo, used: c.batch}}
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
		s.change.ID, s.change.session, s.change.Last, s.change.Trim = s.id, s, s.last, s.trimmed
	}
	return s.change
}

// firstEpoch is that of a session's first connection.
const firstEpoch = 1

// putSession creates a session or replaces its row, and returns it.
func (c *Core) putSession(stored *store.Session, attach bool) *session {
	row := *stored
	s := c.session(row.ID)
	isNew := s == nil
	if isNew {
		row.LastSeq, row.TrimmedTo, row.Epoch = 0, 0, firstEpoch
		s = c.addSession(&row)
	}
	if attach {
		s.epoch++
	}
	row.Epoch, s.view = s.epoch, row.View()
	sc := c.sessionChange(s)
	sc.Row = &row
	sc.New = sc.New || isNew
	return s
}

// endSession deletes a session; one that is not there changes nothing. Its jobs
// go on without it.
func (c *Core) endSession(id arcp.SessionID) {
	s := c.session(id)
	if s == nil {
		return
	}
	for j := range s.jobs {
		j.leave(s)
	}
	c.sessionChange(s).Ended = true
	delete(c.sessions, id)
	c.gone[id] = struct{}{}
}

func (c *Core) trim(id arcp.SessionID, seq uint64) {
	if s := c.session(id); s.trim(seq) {
		sc := c.sessionChange(s)
		sc.Trim, sc.Trimmed = s.trimmed, true
	}
}
