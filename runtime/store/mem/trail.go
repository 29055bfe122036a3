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

// trail is the log of a session, or a principal's feed. Its runs are in pieces of bounded
// length, so that a trail that grows for ever is never copied.
type trail struct {
	last, trimmed uint64
	pieces        [][]run // none is empty
	runs          int64   // in pieces
}

const pieceRuns = 256

// run is consecutive events of a job with consecutive numbers.
type run struct {
	first       uint64
	jseq        uint64 // of the first
	job         *job   // of announced events: a job of the run's own
	correlation arcp.MessageID
	n           uint32
	forwarded   bool
}

const maxRun = 1<<32 - 1

func (r *run) end() uint64 { return r.first + uint64(r.n) }

// announced reports whether the events were announced: their job belongs to the run and begins
// with it.
func (r *run) announced() bool { return r.job.id == "" }

// applyTrail applies the change of a trail and counts its runs. The parameters are those of apply.
func (s *Store) applyTrail(t *trail, c *sequence.TrailChange, jobOf func(*sequence.Run) *job, dropped func(*run)) {
	before := t.runs
	t.apply(c, jobOf, dropped)
	s.bytes += (t.runs - before) * runBytes
}

// apply applies the change of a trail. jobOf returns the job of a run and is called for
// each run in turn. dropped is called for each run that is dropped.
func (t *trail) apply(c *sequence.TrailChange, jobOf func(*sequence.Run) *job, dropped func(*run)) {
	t.last, t.trimmed = c.Last, c.Trim
	for i := range c.Runs {
		t.add(&c.Runs[i], jobOf(&c.Runs[i]))
	}
	if c.Trimmed {
		t.trim(dropped)
	}
}

// add appends a run, or extends the last run if the events are consecutive.
func (t *trail) add(r *sequence.Run, j *job) {
	k := len(t.pieces) - 1
	if k >= 0 && t.pieces[k][len(t.pieces[k])-1].extend(r, j) {
		return
	}
	t.runs++
	next := run{first: r.First, jseq: r.JSeq, job: j, correlation: r.CorrelationID, n: uint32(r.N), forwarded: r.Forwarded}
	if next.announced() {
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

// extend adds the events of next to a run if they follow on it.
func (r *run) extend(next *sequence.Run, j *job) bool {
	if r.job != j || r.jseq+uint64(r.n) != next.JSeq || r.correlation != next.CorrelationID ||
		r.forwarded != next.Forwarded || uint64(r.n)+next.N > maxRun {
		return false
	}
	r.n += uint32(next.N)
	return true
}

// trim drops trimmed runs: whole pieces, and runs of the first piece once they are more
// than the rest of it.
func (t *trail) trim(dropped func(*run)) {
	i, k := t.find(t.trimmed + 1)
	for _, p := range t.pieces[:i] {
		t.drop(p, dropped)
	}
	clear(t.pieces[:i])
	if t.pieces = t.pieces[i:]; len(t.pieces) > 0 && k > len(t.pieces[0])/2 {
		t.drop(t.pieces[0][:k], dropped)
		t.pieces[0] = slices.Clone(t.pieces[0][k:])
	}
}

func (t *trail) drop(runs []run, dropped func(*run)) {
	t.runs -= int64(len(runs))
	for i := range runs {
		dropped(&runs[i])
	}
}

// find returns the piece, and the index in it, of the run with a number or else of the
// first run after it. After the last run the piece is len(t.pieces).
func (t *trail) find(seq uint64) (i, k int) {
	i = sort.Search(len(t.pieces), func(i int) bool { return t.pieces[i][len(t.pieces[i])-1].end() > seq })
	if i < len(t.pieces) {
		k = sort.Search(len(t.pieces[i]), func(k int) bool { return t.pieces[i][k].end() > seq })
	}
	return i, k
}

// pageRuns is how many runs are copied under the lock at once.
const pageRuns = 64

// reader reads a trail a page at a time.
type reader struct {
	name   string
	find   func() (*trail, error) // called with the store's lock held
	rows   bool                   // pieces need their job's row
	after  uint64                 // the last number passed to fn
	pieces []piece
	job    *job // whose log is unpacked
	log    log
}

// piece is a run with a snapshot of its job.
type piece struct {
	run
	log     log
	row     row
	deleted bool
}

// read calls fn for every piece of a trail, in order, until it returns false.
func (s *Store) read(rd *reader, fn func(*piece) (more bool, err error)) error {
	for {
		err := s.copyPage(rd)
		if err != nil || len(rd.pieces) == 0 {
			return err
		}
		for i := range rd.pieces {
			if rd.pieces[i].deleted {
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
	p := piece{run: *r, deleted: r.job.deleted}
	if p.deleted {
		return p
	}
	p.log = r.job.log()
	if rd.rows {
		p.row = r.job.copyRow()
	}
	return p
}

// emit calls fn for the events of a piece after the position. more is false if fn
// returned false.
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
