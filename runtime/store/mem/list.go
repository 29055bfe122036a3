package mem

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// lists are the jobs of a principal by time of creation.
type lists struct {
	all  list
	live list // those that have not ended
}

// of returns the list that a query reads; nil if there is none.
func (l *lists) of(q *store.JobQuery) *list {
	switch {
	case l == nil:
		return nil
	case q.Live:
		return &l.live
	}
	return &l.all
}

// list is jobs in the order of (time, id): jobs of a principal by time of creation, or all
// ended jobs by time of end.
type list struct{ entries []entry }

type entry struct {
	at  time.Time // UTC, without a monotonic reading
	job *job
}

func (e *entry) compare(at time.Time, id arcp.JobID) int {
	if c := e.at.Compare(at); c != 0 {
		return c
	}
	return cmp.Compare(e.job.id, id)
}

// add inserts a job, nearly always at the end.
func (l *list) add(at time.Time, j *job) {
	e := entry{at.Round(0).UTC(), j}
	i := len(l.entries)
	if i > 0 && l.entries[i-1].compare(e.at, j.id) > 0 {
		i = l.after(e.at, j.id)
	}
	l.entries = slices.Insert(l.entries, i, e)
}

// remove removes a job, nearly always near the beginning or the end: the fewer entries,
// those before it or after it, move.
func (l *list) remove(at time.Time, id arcp.JobID) {
	i, found := l.search(at, id)
	switch {
	case !found:
	case i >= len(l.entries)/2:
		l.entries = slices.Delete(l.entries, i, i+1)
	default:
		copy(l.entries[1:i+1], l.entries[:i])
		l.entries[0] = entry{}
		l.entries = l.entries[1:]
	}
}

func (l *list) search(at time.Time, id arcp.JobID) (i int, found bool) {
	return slices.BinarySearchFunc(l.entries, 0, func(e entry, _ int) int { return e.compare(at, id) })
}

// after returns the index of the first entry after a position.
func (l *list) after(at time.Time, id arcp.JobID) int {
	i, found := l.search(at, id)
	if found {
		i++
	}
	return i
}

// pageJobs is how many rows are copied under the lock at once.
const pageJobs = 64

// Jobs calls fn for a principal's jobs in the order of (CreatedAt, ID), or in reverse.
func (s *Store) Jobs(ctx context.Context, q store.JobQuery, fn func(store.Job) bool) error {
	list := func() *list { return s.lists[q.Principal].of(&q) }
	if q.Newest {
		return s.eachJob(ctx, list, newestPage(&q), fn)
	}
	return s.eachJob(ctx, list, (&forwardPage{newPosition(&q), q.CreatedBefore}).next, fn)
}

// EndedJobs calls fn for the jobs that ended before a time, the first ended first.
func (s *Store) EndedJobs(ctx context.Context, before time.Time, fn func(store.Job) bool) error {
	if before.IsZero() {
		return s.checkOpen()
	}
	return s.eachJob(ctx, func() *list { return &s.ended }, (&forwardPage{before: before}).next, fn)
}

// appendPage appends the rows of the next page of a list, which may be nil.
type appendPage func(page []row, l *list) []row

// eachJob calls fn for the jobs of the pages of a list. list is called with the lock held.
func (s *Store) eachJob(ctx context.Context, list func() *list, next appendPage, fn func(store.Job) bool) error {
	var page []row
	for {
		var err error
		if page, err = s.page(page[:0], list, next); err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			j, err := page[i].unpack()
			if err != nil || !fn(j) {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// position is where a page starts.
type position struct {
	at   time.Time
	id   arcp.JobID
	skip bool // all jobs of that time
	set  bool
}

func newPosition(q *store.JobQuery) position {
	p := position{at: q.AfterTime, id: q.AfterID, set: !q.AfterTime.IsZero() || q.AfterID != ""}
	if !q.CreatedAfter.IsZero() && (!p.set || !q.CreatedAfter.Before(p.at)) {
		p = position{at: q.CreatedAfter, skip: true, set: true}
	}
	return p
}

func (p *position) index(l *list) int {
	switch {
	case !p.set:
		return 0
	case p.skip:
		i, _ := slices.BinarySearchFunc(l.entries, p.at, func(e entry, at time.Time) int {
			if e.at.After(at) {
				return 1
			}
			return -1
		})
		return i
	}
	return l.after(p.at, p.id)
}

func (s *Store) page(page []row, list func() *list, next appendPage) ([]row, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.broken != nil {
		return nil, s.broken
	}
	if l := list(); l != nil {
		page = next(page, l)
	}
	return page, nil
}

// forwardPage reads a list in its order, from a position on and, if before is not zero, before a time.
type forwardPage struct {
	position position
	before   time.Time
}

func (f *forwardPage) next(page []row, l *list) []row {
	rest := l.entries[f.position.index(l):]
	for i := range rest[:min(len(rest), pageJobs)] {
		e := &rest[i]
		if !f.before.IsZero() && !e.at.Before(f.before) {
			break
		}
		page = append(page, e.job.copyRow())
		f.position = position{at: e.at, id: e.job.id, set: true}
	}
	return page
}

// newestPage returns a function that reads a list in reverse, before the position of a query.
func newestPage(q *store.JobQuery) appendPage {
	at, id := q.AfterTime, q.AfterID
	fromEnd := at.IsZero() && id == ""
	if !q.CreatedBefore.IsZero() && (fromEnd || q.CreatedBefore.Compare(at) <= 0) {
		at, id, fromEnd = q.CreatedBefore, "", false
	}
	return func(page []row, l *list) []row {
		end := len(l.entries)
		if !fromEnd {
			end, _ = l.search(at, id)
		}
		for i := end - 1; i >= 0 && len(page) < pageJobs; i-- {
			e := &l.entries[i]
			if !q.CreatedAfter.IsZero() && !e.at.After(q.CreatedAfter) {
				break
			}
			page = append(page, e.job.copyRow())
			at, id, fromEnd = e.at, e.job.id, false
		}
		return page
	}
}
