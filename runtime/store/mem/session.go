package mem

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// session is a session's row and what it was given.
type session struct {
	row  store.Session // with its positions
	runs []run
	gone int // runs before runs[0] that its array still holds
}

// run is consecutive events of a job with consecutive numbers.
type run struct {
	first  uint64
	jseq   uint64
	job    *job
	corr   arcp.MessageID
	n      uint32
	origin bool
}

const maxRun = 1<<32 - 1

func (r *run) end() uint64 { return r.first + uint64(r.n) }

func (s *Store) applySession(c *sequence.SessionChange) {
	e := s.sessions[c.ID]
	if e == nil {
		e = new(session)
		s.sessions[c.ID] = e
	}
	if c.Row != nil {
		e.row = *c.Row
		e.row.Negotiated = slices.Clone(c.Row.Negotiated)
	}
	e.row.LastSeq, e.row.TrimmedTo = c.LastSeq, c.Trim
	for i := range c.Runs {
		e.add(&c.Runs[i], s.jobs[c.Runs[i].Job])
	}
	if c.Trimmed {
		e.trim()
	}
}

// add notes what the session was given, as part of the last run if it goes on
// there.
func (e *session) add(r *sequence.Run, j *job) {
	if k := len(e.runs) - 1; k >= 0 {
		last := &e.runs[k]
		if last.job == j && last.jseq+uint64(last.n) == r.JSeq && last.corr == r.CorrelationID &&
			last.origin == r.Origin && uint64(last.n)+r.N <= maxRun {
			last.n += uint32(r.N)
			return
		}
	}
	e.runs = append(e.runs, run{first: r.First, jseq: r.JSeq, job: j, corr: r.CorrelationID, n: uint32(r.N), origin: r.Origin})
}

// trim lets go of the runs that nobody can ask for any more. Their memory is
// given back once they are more than what is left.
func (e *session) trim() {
	n := e.find(e.row.TrimmedTo + 1)
	clear(e.runs[:n])
	e.runs, e.gone = e.runs[n:], e.gone+n
	if e.gone > len(e.runs) {
		e.runs, e.gone = slices.Clone(e.runs), 0
	}
}

// find is the index of the run with the number, or of the first after it.
func (e *session) find(seq uint64) int {
	return sort.Search(len(e.runs), func(i int) bool { return e.runs[i].end() > seq })
}

// Session returns a session's row.
func (s *Store) Session(_ context.Context, id arcp.SessionID) (store.Session, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, err := s.find(id)
	if err != nil {
		return store.Session{}, err
	}
	return e.row, nil
}

// find needs the lock.
func (s *Store) find(id arcp.SessionID) (*session, error) {
	if s.broken != nil {
		return nil, s.broken
	}
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

// SessionEvents calls fn for what a session was given after a position.
func (s *Store) SessionEvents(ctx context.Context, id arcp.SessionID, after uint64, fn func(store.Delivery) bool) error {
	rd := reader{session: id, after: after}
	for {
		err := s.read(&rd)
		if err != nil || len(rd.pieces) == 0 {
			return err
		}
		for i := range rd.pieces {
			more, err := rd.emit(ctx, &rd.pieces[i], fn)
			if err != nil || !more {
				return err
			}
		}
	}
}

// pageRuns is how many runs are copied under the lock at once.
const pageRuns = 64

// reader goes through a session's runs a page at a time.
type reader struct {
	session arcp.SessionID
	after   uint64 // the last number that was called for
	pieces  []piece
	job     *job // whose log is unpacked
	log     log
}

// piece is a run with its job's events as they were when it was copied.
type piece struct {
	run
	log log
}

func (s *Store) read(rd *reader) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, err := s.find(rd.session)
	if err != nil {
		return err
	}
	if rd.after < e.row.TrimmedTo {
		return fmt.Errorf("session %q after %d: %w", rd.session, rd.after, store.ErrTrimmed)
	}
	rd.pieces = rd.pieces[:0]
	if rd.after >= e.row.LastSeq {
		return nil
	}
	i := e.find(rd.after + 1)
	for _, r := range e.runs[i:min(len(e.runs), i+pageRuns)] {
		rd.pieces = append(rd.pieces, piece{r, r.job.log()})
	}
	return nil
}

// emit calls fn for a run; more is false if fn has had enough.
func (rd *reader) emit(ctx context.Context, p *piece, fn func(store.Delivery) bool) (more bool, err error) {
	if need := p.jseq + uint64(p.n) - 1; rd.job != p.job || uint64(len(rd.log.events)) < need {
		if rd.log, err = p.log.unpack(); err != nil {
			return false, err
		}
		rd.job = p.job
	}
	d := store.Delivery{Session: rd.session, CorrelationID: p.corr, Origin: p.origin}
	for d.Seq = max(p.first, rd.after+1); d.Seq < p.end(); d.Seq++ {
		d.Event = rd.log.events[p.jseq+(d.Seq-p.first)-1]
		if rd.after = d.Seq; !fn(d) {
			return false, nil
		}
		if d.Seq%1024 == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
	return true, nil
}
