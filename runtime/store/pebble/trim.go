package pebble

import (
	"fmt"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// trimStep is how many numbers of a session are trimmed before their pointers
// are deleted: every range that is deleted is work for later readers.
const trimStep = 4096

// maxFloors bounds what is remembered about sessions. Forgetting is harmless.
const maxFloors = 1 << 16

// trim writes the position of a session and deletes pointers once there are
// enough, or when the session may not be heard of for long.
func (e *encoder) trim(b *pdb.Batch, c *sequence.SessionChange, s *Store) error {
	if c.Trimmed {
		e.key = sessionKey(e.key[:0], tPosition, c.ID)
		e.val = codec.AppendPosition(e.val[:0], c.Trim)
		must(b.Set(e.key, e.val, nil))
	}
	away := c.Row != nil && (!c.Row.DetachedAt.IsZero() || !c.Row.EndedAt.IsZero())
	floor := e.floors[c.ID]
	if c.Trim <= floor || !away && (!c.Trimmed || c.Trim-floor < trimStep) {
		return nil
	}
	first, err := s.keptFrom(c.ID, c.Trim+1)
	if err != nil {
		return err
	}
	if len(e.floors) >= maxFloors {
		clear(e.floors)
	}
	e.floors[c.ID] = c.Trim
	if first == 0 {
		return nil
	}
	e.key, e.end = runsKey(e.key[:0], c.ID, 0), runsKey(e.end[:0], c.ID, first)
	must(b.DeleteRange(e.key, e.end, nil))
	return nil
}

// keptFrom returns the first number of the last stored record that begins at or
// before seq, or 0: what is before that record is not needed to read from seq.
func (s *Store) keptFrom(id arcp.SessionID, seq uint64) (uint64, error) {
	it, err := s.db.NewIter(&pdb.IterOptions{LowerBound: runsKey(nil, id, 0)})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	end := runsKey(nil, id, seq+1)
	if !it.SeekLT(end) {
		if err := it.Error(); err != nil {
			return 0, fmt.Errorf("key before %q: %w", end, err)
		}
		return 0, nil
	}
	return numberAt(it.Key()), nil
}
