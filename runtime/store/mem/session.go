package mem

import (
	"context"
	"fmt"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// session is a session's row without its positions, and its log.
type session struct {
	row store.Session
	trail
	submits map[arcp.MessageID]*job // the last job for each SubmitID
}

// fullRow returns the row with its positions.
func (s *session) fullRow() store.Session {
	row := s.row
	row.LastSeq, row.TrimmedTo = s.last, s.trimmed
	return row
}

func (s *Store) applySession(c *sequence.SessionChange) {
	e := s.sessions[c.ID]
	if c.Row != nil {
		e.row = *c.Row
		e.row.Negotiated = slices.Clone(c.Row.Negotiated)
	}
	s.applyTrail(&e.trail, &c.TrailChange, func(r *sequence.Run) *job { return s.jobs[r.Job] }, func(*run) {})
}

// Session returns a session's row.
func (s *Store) Session(_ context.Context, id arcp.SessionID) (store.Session, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.broken != nil {
		return store.Session{}, s.broken
	}
	e, err := s.find(id)
	if err != nil {
		return store.Session{}, err
	}
	return e.fullRow(), nil
}

// find returns a session. The lock must be held.
func (s *Store) find(id arcp.SessionID) (*session, error) {
	if e := s.sessions[id]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("session %q: %w", id, store.ErrNotFound)
}

// Sessions calls fn for every session in the order of their ids.
func (s *Store) Sessions(ctx context.Context, fn func(store.Session) bool) error {
	names, err := sorted(s, s.sessions)
	if err != nil {
		return err
	}
	for _, id := range names {
		row, err := s.Session(ctx, id)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !fn(row):
			return nil
		}
	}
	return nil
}

// SessionEvents calls fn for the events in a session's log after a position.
func (s *Store) SessionEvents(ctx context.Context, id arcp.SessionID, after uint64, fn func(store.Delivery) bool) error {
	rd := reader{name: fmt.Sprintf("session %q", id), after: after}
	rd.find = func() (*trail, error) {
		e, err := s.find(id)
		if err != nil {
			return nil, err
		}
		return &e.trail, nil
	}
	return s.read(&rd, func(p *piece) (bool, error) {
		d := store.Delivery{Session: id, CorrelationID: p.correlation, Forwarded: p.forwarded}
		return rd.emit(ctx, p, func(seq uint64, e *store.Event) bool {
			d.Seq, d.Event = seq, e
			return fn(d)
		})
	})
}
