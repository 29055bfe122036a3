package pebble

import (
	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// Numbers of a session, and of a feed, that are trimmed before their pointers are
// deleted: every deleted range costs later readers. The step of a feed is smaller because
// its announced events are deleted with the pointers.
const (
	trimStep     = 4096
	trimFeedStep = 256
)

// maxDeletedTo bounds encoder.deletedTo. A lost entry costs one more deletion.
const maxDeletedTo = 1 << 16

// putTrail writes the change of the trail in e.trail.
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

// trim writes the last trimmed number of the trail. It deletes pointers once there are
// enough, or when the row is written, too: the session has a new connection.
func (e *encoder) trim(b *pdb.Batch, c *sequence.TrailChange, rowToo bool, s *Store) error {
	if c.Trimmed {
		e.val = codec.AppendPosition(e.val[:0], c.Trim)
		must(b.Set(e.trail.trim, e.val, nil))
	}
	deleted, step := e.deletedTo[string(e.trail.records)], uint64(trimStep)
	if e.trail.feed {
		step = trimFeedStep
	}
	if c.Trim <= deleted || !rowToo && (!c.Trimmed || c.Trim-deleted < step) {
		return nil
	}
	first, err := e.trail.recordStart(s.db, c.Trim+1)
	if err != nil {
		return err
	}
	if len(e.deletedTo) >= maxDeletedTo {
		clear(e.deletedTo)
	}
	e.deletedTo[string(e.trail.records)] = c.Trim
	if first == 0 {
		return nil
	}
	e.key, e.end = numberKey(e.key[:0], e.trail.records, 0), numberKey(e.end[:0], e.trail.records, first)
	must(b.DeleteRange(e.key, e.end, nil))
	if e.trail.feed { // announced events of one value are in one record
		e.key, e.end = numberKey(e.key[:0], e.trail.announced, 0), numberKey(e.end[:0], e.trail.announced, first)
		must(b.DeleteRange(e.key, e.end, nil))
	}
	return nil
}
