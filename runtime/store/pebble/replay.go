package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

func appendNumber(prefix []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(prefix[:len(prefix):len(prefix)], n)
}

// SessionEvents calls fn for what a session was given after a position. It
// holds a few records and chunks in memory, however much there is.
func (s *Store) SessionEvents(ctx context.Context, id arcp.SessionID, after uint64, fn func(store.Delivery) bool) error {
	rp := replay{ctx: ctx, id: id, after: after, prefix: sessionKey(nil, tRuns, id), fn: fn}
	err := rp.open(s)
	defer rp.close()
	if err == nil {
		err = rp.run()
	}
	return named(err, "session", string(id))
}

// replay goes through a session's records and, beside them, the chunks they
// point into.
type replay struct {
	ctx    context.Context
	id     arcp.SessionID
	after  uint64 // the last number that fn was called for
	prefix []byte
	fn     func(store.Delivery) bool

	it     *pdb.Iterator // over the session's records
	chunks chunks
	runs   []sequence.Run
	recent map[arcp.JobID][]store.Event // the rest of each job's last chunk
}

// recentJobs bounds how many jobs' chunks are held: as many as take turns in a
// session.
const recentJobs = 64

func (rp *replay) open(s *Store) (err error) {
	if rp.it, err = s.view(nil); err != nil {
		return err
	}
	if err := lookup(rp.it, sessionKey(nil, tSession, rp.id), exists); err != nil {
		return err
	}
	trimmed, err := readTrimmed(rp.it, rp.id)
	if err != nil {
		return err
	}
	if rp.after < trimmed {
		return fmt.Errorf("after %d: %w", rp.after, store.ErrTrimmed)
	}
	rp.recent = make(map[arcp.JobID][]store.Event)
	rp.chunks.it, err = rp.it.Clone(pdb.CloneOptions{})
	return err
}

func (rp *replay) close() {
	for _, it := range []*pdb.Iterator{rp.it, rp.chunks.it} {
		if it != nil {
			_ = it.Close() // its errors were seen where it was used
		}
	}
}

func (rp *replay) run() error {
	found, err := seekLast(rp.it, rp.prefix, rp.after+1)
	for ; err == nil && found; found, err = rp.next() {
		if rp.runs, err = decodeRuns(rp.it, rp.runs); err != nil {
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
	if rp.it.Next() && bytes.HasPrefix(rp.it.Key(), rp.prefix) {
		return true, nil
	}
	return false, rp.it.Error()
}

// emit calls fn for what a run has after the position; more is false if fn has
// had enough.
func (rp *replay) emit(r *sequence.Run) (more bool, err error) {
	end := r.First + r.N
	if end <= rp.after+1 {
		return true, nil
	}
	if r.First > rp.after+1 {
		return false, fmt.Errorf("number %d is missing", rp.after+1)
	}
	d := store.Delivery{Session: rp.id, Seq: rp.after + 1, CorrelationID: r.CorrelationID, Origin: r.Origin}
	for d.Seq < end {
		events, err := rp.events(r.Job, r.JSeq+d.Seq-r.First)
		if err != nil {
			return false, err
		}
		for i := 0; i < len(events) && d.Seq < end; i++ {
			d.Event = &events[i]
			if rp.after = d.Seq; !rp.fn(d) {
				return false, nil
			}
			d.Seq++
		}
		if rp.ctx.Err() != nil {
			return false, context.Cause(rp.ctx)
		}
	}
	return true, nil
}

// events returns some events of a job from a position on.
func (rp *replay) events(id arcp.JobID, jseq uint64) (events []store.Event, err error) {
	if events = rp.recent[id]; len(events) > 0 && events[0].JSeq <= jseq && jseq-events[0].JSeq < uint64(len(events)) {
		return events[jseq-events[0].JSeq:], nil
	}
	if events, err = rp.chunks.from(id, jseq); err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("event %d of %s is missing", jseq, id)
	}
	if len(rp.recent) >= recentJobs {
		clear(rp.recent)
	}
	rp.recent[id] = events
	return events, nil
}
