package pebble

import (
	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// How many numbers of a session, and of a feed, are trimmed before their pointers
// are deleted: every range that is deleted is work for later readers. The events
// that a feed has of its own go with the pointers, so those do not wait so long.
const (
	trimStep     = 4096
	trimFeedStep = 256
)

// maxFloors bounds what is remembered about trails. Forgetting is harmless.
const maxFloors = 1 << 16

// putTrail writes what a batch did to the trail in e.trail.
func (e *encoder) putTrail(b *pdb.Batch, c *sequence.TrailChange, rowToo bool, s *Store) error {
	if err := e.trim(b, c, rowToo, s); err != nil {
		return err
	}
	for runs := c.Runs; len(runs) > 0; {
		n := min(len(runs), runsLen)
		e.key, e.val = numberKey(e.key[:0], e.trail.records, runs[0].First), e.val[:0]
		if e.trail.feed {
			e.val = codec.AppendHead(e.val, runs[0].Head.ID())
		}
		e.val = codec.AppendRuns(e.val, runs[:n])
		must(b.Set(e.key, e.val, nil))
		runs = runs[n:]
	}
	return nil
}

// trim writes the position of the trail and deletes pointers once there are
// enough, or when the row is written as well: its session gets a new connection.
func (e *encoder) trim(b *pdb.Batch, c *sequence.TrailChange, rowToo bool, s *Store) error {
	if c.Trimmed {
		e.val = codec.AppendPosition(e.val[:0], c.Trim)
		must(b.Set(e.trail.trim, e.val, nil))
	}
	floor, step := e.floors[string(e.trail.records)], uint64(trimStep)
	if e.trail.feed {
		step = trimFeedStep
	}
	if c.Trim <= floor || !rowToo && (!c.Trimmed || c.Trim-floor < step) {
		return nil
	}
	first, err := e.trail.keptFrom(s.db, c.Trim+1)
	if err != nil {
		return err
	}
	if len(e.floors) >= maxFloors {
		clear(e.floors)
	}
	e.floors[string(e.trail.records)] = c.Trim
	if first == 0 {
		return nil
	}
	e.key, e.end = numberKey(e.key[:0], e.trail.records, 0), numberKey(e.end[:0], e.trail.records, first)
	must(b.DeleteRange(e.key, e.end, nil))
	if e.trail.feed { // what begins before the record ends before it
		e.key, e.end = numberKey(e.key[:0], e.trail.own, 0), numberKey(e.end[:0], e.trail.own, first)
		must(b.DeleteRange(e.key, e.end, nil))
	}
	return nil
}
