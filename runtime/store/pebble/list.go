package pebble

import (
	"context"
	"fmt"
	"time"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
)

// keyRange is a range of keys, and the direction in which they are read.
type keyRange struct {
	bounds *pdb.IterOptions
	newest bool // from the last key on, in reverse
}

// first moves an iterator to the first key that is read, and next to the following one.
func (r keyRange) first(it *pdb.Iterator) bool {
	if r.newest {
		return it.Last()
	}
	return it.First()
}

func (r keyRange) next(it *pdb.Iterator) bool {
	if r.newest {
		return it.Prev()
	}
	return it.Next()
}

// Jobs calls fn for a principal's jobs in the order of (CreatedAt, ID), or in reverse. Minted ids
// come before other ids of the same time.
func (s *Store) Jobs(ctx context.Context, q store.JobQuery, fn func(store.Job) bool) error {
	prefix := principalKey(nil, tIndex, q.Principal)
	each := s.eachJob
	if q.Live {
		each = s.eachLiveJob
	}
	return each(ctx, keyRange{bounds(prefix, &q), q.Newest}, len(prefix)+timeKeyLen, fn)
}

// EndedJobs calls fn for the jobs that ended before a time, the first ended first.
func (s *Store) EndedJobs(ctx context.Context, before time.Time, fn func(store.Job) bool) error {
	bounds := &pdb.IterOptions{LowerBound: []byte(tEnded), UpperBound: appendTimeKey([]byte(tEnded), before)}
	return s.eachJob(ctx, keyRange{bounds: bounds}, len(tEnded)+timeKeyLen, fn)
}

// bounds returns the part of the index that a query selects.
func bounds(prefix []byte, q *store.JobQuery) *pdb.IterOptions {
	o := &pdb.IterOptions{LowerBound: prefix, UpperBound: after(prefix)}
	position := !q.AfterTime.IsZero() || q.AfterID != ""
	if position && !q.Newest {
		o.LowerBound = positionKey(prefix, q)
		if q.AfterID != "" {
			o.LowerBound = append(o.LowerBound, 0)
		}
	}
	if !q.CreatedAfter.IsZero() {
		past := after(appendTimeKey(prefix[:len(prefix):len(prefix)], q.CreatedAfter))
		if string(past) > string(o.LowerBound) {
			o.LowerBound = past
		}
	}
	if !q.CreatedBefore.IsZero() {
		o.UpperBound = appendTimeKey(prefix[:len(prefix):len(prefix)], q.CreatedBefore)
	}
	if position && q.Newest {
		if key := positionKey(prefix, q); string(key) < string(o.UpperBound) {
			o.UpperBound = key
		}
	}
	if string(o.LowerBound) > string(o.UpperBound) {
		o.UpperBound = o.LowerBound
	}
	return o
}

// positionKey returns the key of the position of a query.
func positionKey(prefix []byte, q *store.JobQuery) []byte {
	key := appendTimeKey(prefix[:len(prefix):len(prefix)], q.AfterTime)
	if q.AfterID != "" {
		key = codec.AppendKeyID(key, arcp.JobPrefix, q.AfterID)
	}
	return key
}

// LiveJobs calls fn for every job that has not ended, in the order of their ids, minted ids
// first.
func (s *Store) LiveJobs(ctx context.Context, fn func(store.Job) bool) error {
	return s.eachJob(ctx, keyRange{bounds: table(tLive)}, len(tLive), fn)
}

// table returns the bounds of a table.
func table(name string) *pdb.IterOptions {
	return &pdb.IterOptions{LowerBound: []byte(name), UpperBound: after([]byte(name))}
}

// eachJob calls fn for the jobs of the keys of a range. A job's id begins after a number of
// bytes.
func (s *Store) eachJob(ctx context.Context, r keyRange, n int, fn func(store.Job) bool) error {
	it, rows, err := s.viewPair(r.bounds)
	if err != nil {
		return err
	}
	defer s.release(rows, it)
	for ok := r.first(it); ok; ok = r.next(it) {
		name, err := parseAfter(n, it.Key())
		if err != nil {
			return err
		}
		j, err := readJob(rows, name)
		switch {
		case err != nil:
			return named(err, "job", string(name))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !fn(j):
			return nil
		}
	}
	return readable(it.Error())
}

// viewPair opens an iterator within bounds, and one over all keys of the same snapshot.
func (s *Store) viewPair(bounds *pdb.IterOptions) (it, all *pdb.Iterator, err error) {
	if it, err = s.view(bounds); err != nil {
		return nil, nil, err
	}
	if all, err = it.Clone(pdb.CloneOptions{IterOptions: &pdb.IterOptions{}}); err != nil {
		s.release(it)
		return nil, nil, fmt.Errorf("open a view: %w", err)
	}
	return it, all, nil
}

// Sessions calls fn for every session in the order of their ids, minted ids first.
func (s *Store) Sessions(ctx context.Context, fn func(store.Session) bool) error {
	it, rows, err := s.viewPair(table(tSession))
	if err != nil {
		return err
	}
	defer s.release(rows, it)
	for ok := it.First(); ok; ok = it.Next() {
		id, rest, ok := codec.CutKeyID(it.Key()[len(tSession):], arcp.SessionPrefix)
		if !ok || len(rest) > 0 {
			return badKey(it.Key())
		}
		row, err := readSession(rows, arcp.SessionID(id))
		switch {
		case err != nil:
			return named(err, "session", id)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !fn(row):
			return nil
		}
	}
	return readable(it.Error())
}
