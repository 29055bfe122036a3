package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
)

// Job returns a job's row.
func (s *Store) Job(_ context.Context, id arcp.JobID) (store.Job, error) {
	it, err := s.view(nil)
	if err != nil {
		return store.Job{}, err
	}
	defer s.release(it)
	j, err := readJob(it, id)
	return j, named(err, "job", string(id))
}

// named adds the kind and the id to store.ErrNotFound.
func named(err error, kind, id string) error {
	if err != nil {
		return fmt.Errorf("%s %q: %w", kind, id, err)
	}
	return nil
}

// readJob reads a job's row: the submitted row, its status and, of a live job, the
// positions of its last events.
func readJob(it *pdb.Iterator, id arcp.JobID) (j store.Job, err error) {
	err = lookup(it, jobKey(nil, tJob, id), func(v []byte) (err error) {
		j, err = codec.DecodeJob(id, v)
		return err
	})
	if err != nil || j.State.Terminal() {
		return j, err
	}
	err = lookup(it, jobKey(nil, tStatus, id), func(v []byte) error {
		status, err := codec.DecodeStatus(v)
		status.Apply(&j)
		return err
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) || j.State.Terminal() {
		return j, err
	}
	return j, readEnd(it, &j)
}

// readEnd sets the positions of a live job from its last events.
func readEnd(it *pdb.Iterator, j *store.Job) error {
	found, err := seekLast(it, jobKey(nil, tChunk, j.ID), math.MaxUint64)
	if err != nil || !found {
		return err
	}
	v, err := value(it)
	if err != nil {
		return fmt.Errorf("key %q: %w", it.Key(), err)
	}
	n, originSeq, err := codec.ChunkEnd(v)
	if err != nil {
		return fmt.Errorf("key %q: %w", it.Key(), err)
	}
	j.LastJSeq, j.LastSeq = numberAt(it.Key())+n-1, originSeq
	return nil
}

// seekLast moves to the last key of a prefix with a number up to n.
func seekLast(it *pdb.Iterator, prefix []byte, n uint64) (found bool, err error) {
	var end []byte
	if n == math.MaxUint64 {
		end = after(prefix)
	} else {
		end = numberKey(nil, prefix, n+1)
	}
	if it.SeekLT(end) && len(it.Key()) == len(prefix)+8 && bytes.HasPrefix(it.Key(), prefix) {
		return true, nil
	}
	if err := readable(it.Error()); err != nil {
		return false, fmt.Errorf("key before %q: %w", end, err)
	}
	return false, nil
}

// JobEvents calls fn for a job's events after a position.
func (s *Store) JobEvents(ctx context.Context, id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	it, err := s.view(nil)
	if err != nil {
		return err
	}
	defer s.release(it)
	if err := lookup(it, jobKey(nil, tJob, id), exists); err != nil {
		return named(err, "job", string(id))
	}
	n, more, c := 0, true, chunks{it: it}
	err = c.each(id, after, func(e *store.Event) bool {
		n++
		more = (n%1024 != 0 || ctx.Err() == nil) && fn(e)
		return more
	})
	if err == nil && more {
		err = named(c.atEnd(), "job", string(id))
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// eachEvent calls fn for a job's events after a position.
func eachEvent(it *pdb.Iterator, id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	c := chunks{it: it}
	return c.each(id, after, fn)
}

// each calls fn for the events of a job, or the announced events of a feed, after a
// position.
func (c *chunks) each(id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	for {
		events, err := c.from(id, after+1)
		if err != nil || len(events) == 0 {
			return err
		}
		for i := range events {
			if !fn(&events[i]) {
				return nil
			}
		}
		after = events[len(events)-1].JSeq
	}
}

// chunks reads the events of jobs, a chunk at a time. The announced events of a feed are
// stored like the events of a job with an empty id.
type chunks struct {
	it        *pdb.Iterator
	announced []byte // prefix of the keys of announced events
	key       []byte
	valid     bool // the iterator is at the last chunk read
}

// from returns the events of the chunk with a position, from that position on; none if
// they were deleted.
func (c *chunks) from(id arcp.JobID, jseq uint64) ([]store.Event, error) {
	if id == "" {
		c.key = numberKey(c.key[:0], c.announced, jseq)
	} else {
		c.key = chunkKey(c.key[:0], id, jseq)
	}
	if !c.valid || !c.it.Next() || !bytes.Equal(c.it.Key(), c.key) {
		found, err := seekLast(c.it, c.key[:len(c.key)-8], jseq)
		if err != nil || !found {
			return nil, err
		}
	}
	c.valid = true
	events, err := decodeChunk(c.it)
	if err != nil {
		return nil, err
	}
	skip := jseq - numberAt(c.it.Key())
	return events[min(skip, uint64(len(events))):], nil
}

// atEnd returns an error if there are later chunks of the job of which from has returned no events.
func (c *chunks) atEnd() error {
	c.valid = false
	if c.it.Next() && bytes.HasPrefix(c.it.Key(), c.key[:len(c.key)-8]) {
		return fmt.Errorf("the events from %d to %d are missing", numberAt(c.key), numberAt(c.it.Key())-1)
	}
	return readable(c.it.Error())
}

func decodeChunk(it *pdb.Iterator) ([]store.Event, error) {
	v, err := value(it)
	if err == nil {
		var events []store.Event
		if events, err = codec.DecodeChunk(v, numberAt(it.Key())); err == nil {
			return events, nil
		}
	}
	return nil, fmt.Errorf("key %q: %w", it.Key(), err)
}

// Session returns a session's row.
func (s *Store) Session(_ context.Context, id arcp.SessionID) (store.Session, error) {
	it, err := s.view(nil)
	if err != nil {
		return store.Session{}, err
	}
	defer s.release(it)
	row, err := readSession(it, id)
	return row, named(err, "session", string(id))
}

func readSession(it *pdb.Iterator, id arcp.SessionID) (row store.Session, err error) {
	err = lookup(it, sessionKey(nil, tSession, id), func(v []byte) (err error) {
		row, err = codec.DecodeSession(id, v)
		return err
	})
	if err != nil {
		return row, err
	}
	t := sessionTrail(id)
	row.TrimmedTo, row.LastSeq, err = t.bounds(it)
	return row, err
}
