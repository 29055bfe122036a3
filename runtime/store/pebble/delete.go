package pebble

import (
	"fmt"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// setEnded collects the sessions that end in a batch: nothing of them is written.
func (e *encoder) setEnded(chg *sequence.Changes) {
	clear(e.endedSessions)
	for _, c := range chg.Sessions {
		if c.Ended {
			e.endedSessions[c.ID] = struct{}{}
		}
	}
}

func (e *encoder) hasEnded(id arcp.SessionID) bool {
	_, ok := e.endedSessions[id]
	return ok
}

// deletions deletes the keys of ended sessions and deleted jobs.
func (e *encoder) deletions(b *pdb.Batch, chg *sequence.Changes, s *Store) error {
	if len(e.endedSessions) == 0 && len(chg.Deletions) == 0 {
		return nil
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	for _, c := range chg.Sessions {
		if !c.Ended {
			continue
		}
		if err := e.endSession(b, it, c, s); err != nil {
			return err
		}
	}
	for i := range chg.Deletions {
		if err := e.deleteJob(b, it, &chg.Deletions[i], s); err != nil {
			return err
		}
	}
	return nil
}

// endSession deletes the row of a session, its pointers to events, its follows and its submits.
func (e *encoder) endSession(b *pdb.Batch, it *pdb.Iterator, c *sequence.SessionChange, s *Store) error {
	if !c.New {
		e.state.Sessions--
		s.sessions.Add(-1)
	}
	e.trail.setSession(c.ID)
	delete(e.deletedTo, string(e.trail.records))
	must(b.Delete(e.trail.trim, nil))
	e.key = sessionKey(e.key[:0], tSession, c.ID)
	must(b.Delete(e.key, nil))
	for _, table := range [...]string{tRuns, tFollow, tSubmit} {
		e.key = sessionKey(e.key[:0], table, c.ID)
		if err := e.deleteAll(b, it, e.key); err != nil {
			return err
		}
	}
	return nil
}

// fewKeys is the number of keys that are deleted one by one. A range deletion costs all
// later readers near it.
const fewKeys = 8

// deleteAll deletes the stored keys that begin with a prefix.
func (e *encoder) deleteAll(b *pdb.Batch, it *pdb.Iterator, prefix []byte) error {
	end := after(prefix)
	n := 0
	for ok := it.SeekGE(prefix); ok && string(it.Key()) < string(end); ok = it.Next() {
		if n++; n > fewKeys {
			must(b.DeleteRange(prefix, end, nil))
			return nil
		}
		must(b.Delete(it.Key(), nil))
	}
	if err := readable(it.Error()); err != nil {
		return fmt.Errorf("key after %q: %w", prefix, err)
	}
	return nil
}

// deleteJob deletes the row of a job, its events and its entries in the indexes.
func (e *encoder) deleteJob(b *pdb.Batch, it *pdb.Iterator, d *sequence.Deletion, s *Store) error {
	e.state.Jobs--
	s.jobs.Add(-1)
	row := &d.Row
	e.key = jobKey(e.key[:0], tChunk, row.ID)
	must(b.DeleteRange(e.key, after(e.key), nil))
	for _, table := range [...]string{tJob, tStatus} {
		e.key = jobKey(e.key[:0], table, row.ID)
		must(b.Delete(e.key, nil))
	}
	e.key = indexKey(e.key[:0], row.Principal, row.CreatedAt, row.ID)
	must(b.Delete(e.key, nil))
	e.key = endedKey(e.key[:0], row.EndedAt, row.ID)
	must(b.Delete(e.key, nil))
	if d.Key {
		e.key = holderKey(e.key[:0], row.Principal, row.IdempotencyKey)
		must(b.Delete(e.key, nil))
	}
	if d.Submit {
		e.key = submitKey(e.key[:0], row.Session, row.SubmitID)
		must(b.Delete(e.key, nil))
	}
	return nil
}
