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

// trail is what a session was given, or a principal's feed. Its runs are in
// pieces of bounded length, so that one that grows for ever is never copied.
type trail struct {
	last, trimmed uint64
	pieces        [][]run // none is empty
}

const pieceRuns = 256

// run is consecutive events of a job with consecutive numbers.
type run struct {
	first  uint64
	jseq   uint64 // of the first
	job    *job   // if they were announced, one that nobody else knows
	corr   arcp.MessageID
	n      uint32
	origin bool
}

const maxRun = 1<<32 - 1

func (r *run) end() uint64 { return r.first + uint64(r.n) }

// own reports whether the events were announced: they belong to no other job, and
// begin with the run.
func (r *run) own() bool { return r.job.id == "" }

// apply takes over what a batch did to the trail. jobOf is asked for the job of each
// run in turn; gone is told of the runs that are let go of.
func (t *trail) apply(c *sequence.TrailChange, jobOf func(*sequence.Run) *job, gone func(*run)) {
	t.last, t.trimmed = c.Last, c.Trim
	for i := range c.Runs {
		t.add(&c.Runs[i], jobOf(&c.Runs[i]))
	}
	if c.Trimmed {
		t.trim(gone)
	}
}

// add notes events that were appended, as part of the last run if they go on
// there.
func (t *trail) add(r *sequence.Run, j *job) {
	k := len(t.pieces) - 1
	if k >= 0 && t.pieces[k][len(t.pieces[k])-1].extend(r, j) {
		return
	}
	next := run{first: r.First, jseq: r.JSeq, job: j, corr: r.CorrelationID, n: uint32(r.N), origin: r.Origin}
	if next.own() {
		next.jseq = 1
	}
	switch {
	case k < 0:
		t.pieces = append(t.pieces, []run{next})
	case len(t.pieces[k]) < pieceRuns:
		t.pieces[k] = append(t.pieces[k], next)
	default:
		t.pieces = append(t.pieces, append(make([]run, 0, pieceRuns), next))
	}
}

// extend makes a run longer by one that goes on where it ends.
func (r *run) extend(next *sequence.Run, j *job) bool {
	if r.job != j || r.jseq+uint64(r.n) != next.JSeq || r.corr != next.CorrelationID ||
		r.origin != next.Origin || uint64(r.n)+next.N > maxRun {
		return false
	}
	r.n += uint32(next.N)
	return true
}

// trim lets go of the runs that nobody can ask for any more: of whole pieces,
// and of those in the first once they are more than what is left of it.
func (t *trail) trim(gone func(*run)) {
	i, k := t.find(t.trimmed + 1)
	for _, p := range t.pieces[:i] {
		each(p, gone)
	}
	clear(t.pieces[:i])
	if t.pieces = t.pieces[i:]; len(t.pieces) > 0 && k > len(t.pieces[0])/2 {
		each(t.pieces[0][:k], gone)
		t.pieces[0] = slices.Clone(t.pieces[0][k:])
	}
}

func each(runs []run, fn func(*run)) {
	for i := range runs {
		fn(&runs[i])
	}
}

// find returns the piece, and the index in it, of the run with the number, or of
// the first after it; after the last run there is no piece.
func (t *trail) find(seq uint64) (i, k int) {
	i = sort.Search(len(t.pieces), func(i int) bool { return t.pieces[i][len(t.pieces[i])-1].end() > seq })
	if i < len(t.pieces) {
		k = sort.Search(len(t.pieces[i]), func(k int) bool { return t.pieces[i][k].end() > seq })
	}
	return i, k
}

// pageRuns is how many runs are copied under the lock at once.
const pageRuns = 64

// reader goes through a trail a page at a time.
type reader struct {
	name   string
	find   func() (*trail, error) // with the store's lock
	rows   bool                   // pieces need their job's row
	after  uint64                 // the last number that was called for
	pieces []piece
	job    *job // whose log is unpacked
	log    log
}

// piece is a run with its job as it was when it was copied.
type piece struct {
	run
	log  log
	row  row
	dead bool // the job was deleted
}

// read calls fn for every piece of a trail, in order, until it returns false.
func (s *Store) read(rd *reader, fn func(*piece) (more bool, err error)) error {
	for {
		err := s.copyPage(rd)
		if err != nil || len(rd.pieces) == 0 {
			return err
		}
		for i := range rd.pieces {
			if rd.pieces[i].dead {
				return rd.trimmed(rd.pieces[i].end() - 1)
			}
			if more, err := fn(&rd.pieces[i]); err != nil || !more {
				return err
			}
		}
	}
}

func (rd *reader) trimmed(upTo uint64) error {
	return fmt.Errorf("%s: %w", rd.name, &store.TrimmedError{After: rd.after, UpTo: upTo})
}

func (s *Store) copyPage(rd *reader) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.broken != nil {
		return s.broken
	}
	t, err := rd.find()
	if err != nil {
		return err
	}
	if rd.after < t.trimmed {
		return rd.trimmed(t.trimmed)
	}
	rd.pieces = rd.pieces[:0]
	if rd.after >= t.last {
		return nil
	}
	i, k := t.find(rd.after + 1)
	runs := t.pieces[i][k:]
	for i := range runs[:min(len(runs), pageRuns)] {
		rd.pieces = append(rd.pieces, rd.piece(&runs[i]))
	}
	return nil
}

func (rd *reader) piece(r *run) piece {
	p := piece{run: *r, dead: r.job.dead}
	if p.dead {
		return p
	}
	p.log = r.job.log()
	if rd.rows {
		p.row = r.job.copyRow()
	}
	return p
}

// emit calls fn for the events of a piece that come after the position; more is
// false if fn has had enough.
func (rd *reader) emit(ctx context.Context, p *piece, fn func(seq uint64, e *store.Event) bool) (more bool, err error) {
	if need := p.jseq + uint64(p.n) - 1; rd.job != p.job || uint64(len(rd.log.events)) < need {
		if rd.log, err = p.log.unpack(); err != nil {
			return false, err
		}
		rd.job = p.job
	}
	for seq := max(p.first, rd.after+1); seq < p.end(); seq++ {
		if rd.after = seq; !fn(seq, rd.log.events[p.jseq+(seq-p.first)-1]) {
			return false, nil
		}
		if seq%1024 == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
	return true, nil
}
