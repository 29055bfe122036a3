package pebble

import (
	"errors"
	"fmt"
	"math"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// trail holds the keys of a session's log, or of a principal's feed.
type trail struct {
	records   []byte // prefix of the keys of its records, which end with a number
	trim      []byte // key of its last trimmed number
	feed      bool   // its records have a head
	announced []byte // of a feed: prefix of the keys of announced events
}

func (t *trail) setSession(id arcp.SessionID) {
	t.records, t.trim, t.feed = sessionKey(t.records[:0], tRuns, id), sessionKey(t.trim[:0], tPosition, id), false
}

func (t *trail) setFeed(principal string) {
	t.announced = feedKey(t.announced[:0], tFeedOwn, principal)
	t.records, t.trim, t.feed = feedKey(t.records[:0], tFeed, principal), feedKey(t.trim[:0], tFeedTrim, principal), true
}

func sessionTrail(id arcp.SessionID) (t trail) {
	t.setSession(id)
	return t
}

func feedTrail(principal string) (t trail) {
	t.setFeed(principal)
	return t
}

// bounds reads the last trimmed number of a trail and its last number. The last record
// is never deleted.
func (t *trail) bounds(it *pdb.Iterator) (trimmed, last uint64, err error) {
	if trimmed, err = t.trimmed(it); err != nil {
		return 0, 0, err
	}
	found, err := seekLast(it, t.records, math.MaxUint64)
	if err != nil || !found {
		return trimmed, trimmed, err
	}
	runs, err := t.runs(it, nil)
	if err != nil {
		return 0, 0, err
	}
	end := runs[len(runs)-1]
	return trimmed, max(trimmed, end.First+end.N-1), nil
}

func (t *trail) trimmed(it *pdb.Iterator) (uint64, error) {
	var n uint64
	err := lookup(it, t.trim, func(v []byte) (err error) {
		n, err = codec.DecodePosition(v)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return n, err
}

var errEmpty = errors.New("it is empty")

// runs returns the runs of the record at the iterator, at least one.
func (t *trail) runs(it *pdb.Iterator, runs []sequence.Run) ([]sequence.Run, error) {
	v, err := value(it)
	if err == nil && t.feed {
		_, v, err = codec.CutHead(v)
	}
	if err == nil {
		runs, err = codec.DecodeRuns(runs[:0], v, numberAt(it.Key()))
	}
	if err == nil && len(runs) == 0 {
		err = errEmpty
	}
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", it.Key(), err)
	}
	return runs, nil
}

// head returns the id of the first event of the feed's record at the iterator.
func head(it *pdb.Iterator) (id arcp.MessageID, err error) {
	v, err := value(it)
	if err == nil {
		id, _, err = codec.CutHead(v)
	}
	if err != nil {
		return "", fmt.Errorf("key %q: %w", it.Key(), err)
	}
	return id, nil
}

// recordStart returns the first number of the last stored record that begins at or before
// seq, or 0. A read from seq does not need the records before it.
func (t *trail) recordStart(db *pdb.DB, seq uint64) (uint64, error) {
	it, err := db.NewIter(&pdb.IterOptions{LowerBound: t.records})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	found, err := seekLast(it, t.records, seq)
	if err != nil || !found {
		return 0, err
	}
	return numberAt(it.Key()), nil
}
