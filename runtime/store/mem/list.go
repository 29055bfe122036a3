package mem

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// list is a principal's jobs in the order of (created, id).
type list struct{ entries []entry }

type entry struct {
	at  time.Time // UTC, without a monotonic reading
	id  arcp.JobID
	job *job
}

func (e *entry) compare(at time.Time, id arcp.JobID) int {
	if c := e.at.Compare(at); c != 0 {
		return c
	}
	return cmp.Compare(e.id, id)
}

// add inserts a job, nearly always at the end.
func (l *list) add(row *store.Job, j *job) {
	e := entry{row.CreatedAt.Round(0).UTC(), row.ID, j}
	i := len(l.entries)
	if i > 0 && l.entries[i-1].compare(e.at, e.id) > 0 {
		i = l.after(e.at, e.id)
	}
	l.entries = slices.Insert(l.entries, i, e)
}

// after is the index of the first entry after a position.
func (l *list) after(at time.Time, id arcp.JobID) int {
	i, found := slices.BinarySearchFunc(l.entries, 0, func(e entry, _ int) int { return e.compare(at, id) })
	if found {
		i++
	}
	return i
}

// pageJobs is how many rows are copied under the lock at once.
const pageJobs = 64

// Jobs calls fn for a principal's jobs in the order of (CreatedAt, ID).
func (s *Store) Jobs(ctx context.Context, q store.JobQuery, fn func(store.Job) bool) error {
	p := newPosition(&q)
	var page []row
	for {
		var err error
		if page, err = s.page(page[:0], &q, &p); err != nil || len(page) == 0 {
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

func (s *Store) page(page []row, q *store.JobQuery, p *position) ([]row, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.broken != nil {
		return nil, s.broken
	}
	l := s.lists[q.Principal]
	if l == nil {
		return nil, nil
	}
	rest := l.entries[p.index(l):]
	for i := range rest[:min(len(rest), pageJobs)] {
		e := &rest[i]
		if !q.CreatedBefore.IsZero() && !e.at.Before(q.CreatedBefore) {
			break
		}
		page = append(page, e.job.copyRow(e.id))
		*p = position{at: e.at, id: e.id, set: true}
	}
	return page, nil
}
