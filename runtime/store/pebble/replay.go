package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// SessionEvents calls fn for the events in a session's log after a position.
func (s *Store) SessionEvents(ctx context.Context, id arcp.SessionID, after uint64, fn func(store.Delivery) bool) error {
	rp, err := s.replay(ctx, sessionTrail(id), after)
	if err != nil {
		return named(err, "session", string(id))
	}
	defer rp.close()
	d := store.Delivery{Session: id}
	rp.begin = func(r *sequence.Run) error {
		d.CorrelationID, d.Forwarded = r.CorrelationID, r.Forwarded
		return nil
	}
	rp.fn = func(seq uint64, e *store.Event) bool {
		d.Seq, d.Event = seq, e
		return fn(d)
	}
	if err = lookup(rp.it, sessionKey(nil, tSession, id), exists); err == nil {
		err = rp.run()
	}
	return named(err, "session", string(id))
}

// replay reads a trail's records and the chunks they point to. It has a few records and
// chunks in memory, however long the trail is.
type replay struct {
	store *Store
	ctx   context.Context
	trail trail
	after uint64                      // the last number passed to fn
	begin func(r *sequence.Run) error // called before fn is for a run's events
	fn    func(seq uint64, e *store.Event) bool

	it     *pdb.Iterator // over the trail's records
	chunks chunks
	runs   []sequence.Run
	recent map[arcp.JobID][]store.Event // the rest of each job's last chunk
}

// recentJobs bounds the jobs with a chunk in memory: enough for the jobs that alternate
// in a session's log.
const recentJobs = 64

func (s *Store) replay(ctx context.Context, t trail, after uint64) (*replay, error) {
	it, all, err := s.viewPair(nil)
	if err != nil {
		return nil, err
	}
	return &replay{
		store:  s,
		ctx:    ctx,
		trail:  t,
		after:  after,
		it:     it,
		chunks: chunks{it: all, announced: t.announced},
		recent: make(map[arcp.JobID][]store.Event),
	}, nil
}

func (rp *replay) close() { rp.store.release(rp.chunks.it, rp.it) }

// run emits the events after rp.after, until emit refuses one or ctx ends. It returns a
// TrimmedError if an event after rp.after is trimmed.
func (rp *replay) run() error {
	trimmed, err := rp.trail.trimmed(rp.it)
	if err != nil {
		return err
	}
	if rp.after < trimmed {
		return &store.TrimmedError{After: rp.after, UpTo: trimmed}
	}
	found, err := seekLast(rp.it, rp.trail.records, rp.after+1)
	for ; err == nil && found; found, err = rp.next() {
		if rp.runs, err = rp.trail.runs(rp.it, rp.runs); err != nil {
			return err
		}
		for i := range rp.runs {
			if more, err := rp.emit(&rp.runs[i]); err != nil || !more {
				return err
			}
		}
		if rp.ctx.Err() != nil {
			return context.Cause(rp.ctx)
		}
	}
	return err
}

func (rp *replay) next() (found bool, err error) {
	if rp.it.Next() && bytes.HasPrefix(rp.it.Key(), rp.trail.records) {
		return true, nil
	}
	return false, readable(rp.it.Error())
}

// emit calls fn for the events of a run after the position. more is false if fn returned
// false.
func (rp *replay) emit(r *sequence.Run) (more bool, err error) {
	end := r.First + r.N
	if end <= rp.after+1 {
		return true, nil
	}
	if r.First > rp.after+1 {
		return false, fmt.Errorf("number %d is missing", rp.after+1)
	}
	if err := rp.begin(r); err != nil {
		return false, rp.trimmed(r, err)
	}
	for seq := rp.after + 1; seq < end; {
		events, err := rp.events(r.Job, r.JSeq+seq-r.First)
		if err != nil {
			return false, rp.trimmed(r, err)
		}
		for i := 0; i < len(events) && seq < end; i++ {
			if rp.after = seq; !rp.fn(seq, &events[i]) {
				return false, nil
			}
			seq++
		}
		if rp.ctx.Err() != nil {
			return false, context.Cause(rp.ctx)
		}
	}
	return true, nil
}

// trimmed returns a TrimmedError for the rest of a run whose job was deleted.
func (rp *replay) trimmed(r *sequence.Run, err error) error {
	if errors.Is(err, errDeleted) {
		return &store.TrimmedError{After: rp.after, UpTo: r.First + r.N - 1}
	}
	return err
}

var errDeleted = errors.New("the job was deleted")

// events returns some events of a job from a position on.
func (rp *replay) events(id arcp.JobID, jseq uint64) (events []store.Event, err error) {
	if events = rp.recent[id]; len(events) > 0 && events[0].JSeq <= jseq && jseq-events[0].JSeq < uint64(len(events)) {
		return events[jseq-events[0].JSeq:], nil
	}
	if events, err = rp.chunks.from(id, jseq); err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, rp.missing(id, jseq)
	}
	if len(rp.recent) >= recentJobs {
		clear(rp.recent)
	}
	rp.recent[id] = events
	return events, nil
}

// missing returns why an event is not stored: its job was deleted, or the store is
// damaged.
func (rp *replay) missing(id arcp.JobID, jseq uint64) error {
	if id == "" {
		return fmt.Errorf("event %d of the feed's own is missing", jseq)
	}
	err := lookup(rp.chunks.it, jobKey(nil, tJob, id), exists)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return errDeleted
	case err != nil:
		return err
	}
	return fmt.Errorf("event %d of %s is missing", jseq, id)
}
