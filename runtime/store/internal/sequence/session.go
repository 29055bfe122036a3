package sequence

import (
	"errors"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// session is the state of a session.
type session struct {
	id arcp.SessionID
	trail
	view        arcp.TypeSet // the types that the session sees
	epoch       uint32
	jobs        map[*job]struct{} // live jobs that it submitted or follows; a session with any is not evicted
	foreignJobs int               // of these, jobs that it did not submit
	change      *SessionChange
}

func (s *session) idle() bool { return len(s.jobs) == 0 }

func (s *session) addJob(j *job) {
	if s.jobs == nil {
		s.jobs = make(map[*job]struct{})
	}
	if _, ok := s.jobs[j]; !ok && j.session != s.id {
		s.foreignJobs++
	}
	s.jobs[j] = struct{}{}
}

func (s *session) removeJob(j *job) {
	if _, ok := s.jobs[j]; ok && j.session != s.id {
		s.foreignJobs--
	}
	delete(s.jobs, j)
}

// followed returns the live jobs that the session follows and did not submit.
func (s *session) followed() (ids []arcp.JobID) {
	if s.foreignJobs == 0 {
		return nil
	}
	for j := range s.jobs {
		if j.session != s.id {
			ids = append(ids, j.id)
		}
	}
	return ids
}

// sessions are the sessions in memory.
type sessions struct {
	*batch
	byID  map[arcp.SessionID]*session
	ended map[arcp.SessionID]struct{} // in this batch: the source still has them
	limit int
}

// get returns a session, from memory or the source; nil if there is none.
func (ss *sessions) get(id arcp.SessionID) *session {
	if s := ss.byID[id]; s != nil {
		s.used = ss.number
		return s
	}
	if ss.hasEnded(id) {
		return nil
	}
	row, err := ss.source.Session(id)
	if err != nil {
		if !errors.Is(err, store.ErrNotFound) {
			ss.fail(fmt.Errorf("session %s: %w", id, err))
		}
		return nil
	}
	return ss.add(&row)
}

// hasEnded reports whether a session has ended in this batch.
func (ss *sessions) hasEnded(id arcp.SessionID) bool {
	_, ok := ss.ended[id]
	return ok
}

func (ss *sessions) add(row *store.Session) *session {
	s := &session{id: row.ID, view: row.View(), epoch: row.Epoch,
		trail: trail{last: row.LastSeq, trimmed: row.TrimmedTo, used: ss.number}}
	ss.byID[s.id] = s
	return s
}

// changeOf returns the change of a session in this batch.
func (ss *sessions) changeOf(s *session) *SessionChange {
	if s.change == nil {
		ss.changes.Sessions, s.change = next(ss.changes.Sessions)
		s.change.ID, s.change.session, s.change.Last, s.change.Trim = s.id, s, s.last, s.trimmed
	}
	return s.change
}

// firstEpoch is the epoch of a session's first connection.
const firstEpoch = 1

// put creates a session or replaces its row, and returns it.
func (ss *sessions) put(stored *store.Session, attach bool) *session {
	row := *stored
	s := ss.get(row.ID)
	isNew := s == nil
	if isNew {
		row.LastSeq, row.TrimmedTo, row.Epoch = 0, 0, firstEpoch
		s = ss.add(&row)
	}
	if attach {
		s.epoch++
	}
	row.Epoch, s.view = s.epoch, row.View()
	change := ss.changeOf(s)
	change.Row = &row
	change.New = change.New || isNew
	return s
}

// end deletes a session and its follows. An unknown session changes nothing.
func (ss *sessions) end(id arcp.SessionID) {
	s := ss.get(id)
	if s == nil {
		return
	}
	for j := range s.jobs {
		j.removeSession(s)
	}
	ss.changeOf(s).Ended = true
	delete(ss.byID, id)
	ss.ended[id] = struct{}{}
}

func (ss *sessions) trim(id arcp.SessionID, seq uint64) {
	if s := ss.get(id); s.trim(seq) {
		change := ss.changeOf(s)
		change.Trim, change.Trimmed = s.trimmed, true
	}
}

func (ss *sessions) endBatch() {
	for _, change := range ss.changes.Sessions {
		change.session.change = nil
	}
	evict(ss.byID, &ss.limit)
}
