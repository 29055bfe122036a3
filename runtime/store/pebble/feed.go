package pebble

import (
	"context"
	"errors"
	"fmt"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// Feed calls fn for the events of a principal's feed after a position.
func (s *Store) Feed(ctx context.Context, principal string, after uint64, fn func(store.FeedEvent) bool) error {
	rp, err := s.replay(ctx, feedTrail(principal), after)
	if err != nil {
		return named(err, "feed", principal)
	}
	defer rp.close()
	var x store.FeedEvent
	rp.begin = func(r *sequence.Run) error {
		switch r.Job {
		case x.Job:
			return nil
		case "": // announced
			x = store.FeedEvent{}
			return nil
		}
		x, err = rp.owner(r.Job)
		return err
	}
	rp.fn = func(seq uint64, e *store.Event) bool {
		x.Position, x.Event = seq, e
		return fn(x)
	}
	return named(rp.run(), "feed", principal)
}

// owner returns the fields that all feed events of a job share: the submitting session and the
// id of the submit.
func (rp *replay) owner(id arcp.JobID) (x store.FeedEvent, err error) {
	rp.chunks.valid = false
	err = lookup(rp.chunks.it, jobKey(nil, tJob, id), func(v []byte) error {
		j, err := codec.DecodeJob(id, v)
		x = store.FeedEvent{Job: id, Session: j.Session, CorrelationID: j.SubmitID}
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return x, errDeleted
	}
	return x, err
}

// FeedBounds returns the last trimmed position of a principal's feed and the last one.
func (s *Store) FeedBounds(_ context.Context, principal string) (trimmed, last uint64, err error) {
	it, err := s.view(nil)
	if err != nil {
		return 0, 0, err
	}
	defer s.release(it)
	t := feedTrail(principal)
	return t.bounds(it)
}

// FeedPosition searches a principal's feed for an id: first the record by its head, then
// the run, then the event.
func (s *Store) FeedPosition(ctx context.Context, principal string, id arcp.MessageID) (uint64, error) {
	rp, err := s.replay(ctx, feedTrail(principal), 0)
	if err != nil {
		return 0, named(err, "feed", principal)
	}
	defer rp.close()
	position, err := rp.find(id)
	if err == nil && position == 0 {
		err = fmt.Errorf("event %s: %w", id, store.ErrNotFound)
	}
	return position, named(err, "feed", principal)
}

// find returns the position of an event in the feed; 0: the feed does not have it, or it is
// trimmed.
func (rp *replay) find(id arcp.MessageID) (uint64, error) {
	trimmed, last, err := rp.trail.bounds(rp.it)
	if err != nil {
		return 0, err
	}
	found, err := rp.seekHead(id, trimmed+1, last)
	if err != nil || !found {
		return 0, err
	}
	if rp.runs, err = rp.trail.runs(rp.it, rp.runs); err != nil {
		return 0, err
	}
	position, err := rp.findIn(rp.runs, id)
	if position <= trimmed {
		return 0, err
	}
	return position, err
}

// seekHead moves to the last record with a number from low to high whose head is not
// greater than an id.
func (rp *replay) seekHead(id arcp.MessageID, low, high uint64) (found bool, err error) {
	first := uint64(0)
	for low <= high {
		mid := low + (high-low)/2
		ok, err := seekLast(rp.it, rp.trail.records, mid)
		if err != nil || !ok {
			return false, err
		}
		h, err := head(rp.it)
		if err != nil {
			return false, err
		}
		if h <= id {
			first, low = numberAt(rp.it.Key()), mid+1
		} else {
			high = numberAt(rp.it.Key()) - 1
		}
	}
	if first == 0 {
		return false, nil
	}
	return seekLast(rp.it, rp.trail.records, first)
}

// findIn returns the position of the event with an id in runs, or 0.
func (rp *replay) findIn(runs []sequence.Run, id arcp.MessageID) (position uint64, err error) {
	r, err := rp.runOf(runs, id)
	if err != nil || r == nil {
		return 0, err
	}
	err = rp.chunks.each(r.Job, r.JSeq-1, func(e *store.Event) bool {
		if e.ID() == id {
			position = r.First + e.JSeq - r.JSeq
		}
		return e.ID() < id && e.JSeq+1 < r.JSeq+r.N
	})
	return position, err
}

// runOf returns the last run whose first id is not greater than id, or nil. It skips runs
// whose first event was trimmed or belongs to a deleted job.
func (rp *replay) runOf(runs []sequence.Run, id arcp.MessageID) (found *sequence.Run, err error) {
	for i := range runs {
		events, err := rp.chunks.from(runs[i].Job, runs[i].JSeq)
		switch {
		case err != nil:
			return nil, err
		case len(events) == 0:
		case events[0].ID() > id:
			return found, nil
		default:
			found = &runs[i]
		}
	}
	return found, nil
}

// Feeds calls fn for every principal that has a feed, in order.
func (s *Store) Feeds(ctx context.Context, fn func(principal string) bool) error {
	it, err := s.view(table(tFeed))
	if err != nil {
		return err
	}
	defer s.release(it)
	for ok := it.First(); ok; {
		name, rest, ok2 := codec.CutKeyText(it.Key()[len(tFeed):])
		switch {
		case !ok2 || len(rest) != 8:
			return badKey(it.Key())
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !fn(name):
			return nil
		}
		ok = it.SeekGE(after(feedKey(nil, tFeed, name)))
	}
	return readable(it.Error())
}

// Records calls fn for the records whose key begins with a prefix.
func (s *Store) Records(ctx context.Context, prefix, after string, fn func(store.Record) bool) error {
	it, err := s.view(recordBounds(prefix))
	if err != nil {
		return err
	}
	defer s.release(it)
	for ok := seekRecord(it, prefix, after); ok; ok = it.Next() {
		v, err := value(it)
		if err != nil {
			return fmt.Errorf("key %q: %w", it.Key(), err)
		}
		rec, err := codec.DecodeRecord(string(it.Key()[len(tRecord):]), v)
		switch {
		case err != nil:
			return fmt.Errorf("key %q: %w", it.Key(), err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !fn(rec):
			return nil
		}
	}
	return readable(it.Error())
}

func recordBounds(prefix string) *pdb.IterOptions {
	low := recordKey(nil, prefix)
	return &pdb.IterOptions{LowerBound: low, UpperBound: after(low)}
}

func seekRecord(it *pdb.Iterator, prefix, after string) bool {
	if after < prefix {
		return it.First()
	}
	return it.SeekGE(append(recordKey(nil, after), 0))
}
