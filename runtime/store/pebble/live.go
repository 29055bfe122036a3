package pebble

import (
	"context"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/ordered"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// liveIndex is the part of the index of jobs whose jobs have not ended. It is only in
// memory: Open builds it.
type liveIndex struct {
	keys  ordered.Set // keys of table tIndex
	byJob map[arcp.JobID]string
}

func (x *liveIndex) add(row *store.Job) {
	key := string(indexKey(nil, row.Principal, row.CreatedAt, row.ID))
	x.byJob[row.ID] = key
	x.keys.Add(key)
}

// apply applies the changes of a batch.
func (x *liveIndex) apply(changes []*sequence.JobChange) {
	for _, c := range changes {
		switch {
		case c.Created != nil && !c.Ended:
			x.add(c.Created)
		case c.Created == nil && c.Ended:
			x.keys.Remove(x.byJob[c.ID])
			delete(x.byJob, c.ID)
		}
	}
}

// livePage is a part of the live index: keys from a key on, up to another, at most
// liveRows.
type livePage struct {
	from, end string
	newest    bool // from the last key on, in reverse
	keys      []string
}

// liveRows is the number of jobs that are read from one view.
const liveRows = 64

// next reads the page behind the last key.
func (p *livePage) next(x *liveIndex) {
	p.keys = p.keys[:0]
	if p.newest {
		p.nextNewest(x)
		return
	}
	for key := range x.keys.From(p.from) {
		if key >= p.end || len(p.keys) == liveRows {
			return
		}
		p.keys = append(p.keys, key)
		p.from = key + "\x00"
	}
}

// nextNewest reads the page before the first key of the last page.
func (p *livePage) nextNewest(x *liveIndex) {
	for key := range x.keys.Before(p.end) {
		if key < p.from || len(p.keys) == liveRows {
			return
		}
		p.keys = append(p.keys, key)
		p.end = key
	}
}

// eachLiveJob calls fn for the live jobs whose keys are within a range. A job's id begins
// after a number of bytes.
func (s *Store) eachLiveJob(ctx context.Context, r keyRange, n int, fn func(store.Job) bool) error {
	p := livePage{from: string(r.bounds.LowerBound), end: string(r.bounds.UpperBound), newest: r.newest}
	for {
		if more, err := s.eachOfPage(ctx, &p, n, fn); err != nil || !more {
			return err
		}
	}
}

// eachOfPage calls fn for the jobs of the next page. more is false if fn returned false, or
// after the last page.
func (s *Store) eachOfPage(ctx context.Context, p *livePage, n int, fn func(store.Job) bool) (more bool, err error) {
	it, err := s.viewLive(p)
	if err != nil {
		return false, err
	}
	defer s.release(it)
	for _, key := range p.keys {
		id, err := parseAfter(n, []byte(key))
		if err != nil {
			return false, err
		}
		j, err := readJob(it, id)
		switch {
		case err != nil:
			return false, named(err, "job", string(id))
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case !fn(j):
			return false, nil
		}
	}
	return len(p.keys) == liveRows, nil
}

// viewLive reads the next page of the live index, and opens an iterator over the data of
// the same batches.
func (s *Store) viewLive(p *livePage) (*pdb.Iterator, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	it, err := s.viewLocked(nil)
	if err == nil {
		p.next(&s.liveJobs)
	}
	return it, err
}
