package pebble

import (
	"errors"
	"fmt"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
)

// source reads the database for Commit, which alone changes it.
type source struct {
	s   *Store
	key []byte
}

// get calls fn with a key's value; found is false if there is none.
func (src *source) get(fn func(value []byte) error) (found bool, err error) {
	defer recoverDamage(&err)
	v, closer, err := src.s.db.Get(src.key)
	if errors.Is(err, pdb.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		defer closer.Close()
		err = fn(v)
	}
	if err != nil {
		return false, fmt.Errorf("key %q: %w", src.key, readable(err))
	}
	return true, nil
}

func exists([]byte) error { return nil }

func (src *source) Session(id arcp.SessionID) (store.Session, error) {
	src.key = sessionKey(src.key[:0], tSession, id)
	found, err := src.get(exists)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Session{}, err
	}
	it, err := src.s.db.NewIter(nil)
	if err != nil {
		return store.Session{}, err
	}
	defer it.Close()
	return readSession(it, id)
}

// Ended does not read the database for an id that was minted after all stored ids, as
// nearly all new ids are.
func (src *source) Ended(id arcp.JobID) (bool, error) {
	src.key = jobKey(src.key[:0], tJob, id)
	if src.key[len(tJob)] == codec.MintedID && string(src.key) > string(src.s.enc.lastJob) {
		return false, nil
	}
	return src.get(exists)
}

func (src *source) Job(id arcp.JobID) (store.Job, error) {
	it, err := src.s.db.NewIter(nil)
	if err != nil {
		return store.Job{}, err
	}
	defer it.Close()
	return readJob(it, id)
}

func (src *source) Submitted(id arcp.SessionID, submit arcp.MessageID) (job arcp.JobID, digest string, err error) {
	src.key = submitKey(src.key[:0], id, submit)
	found, err := src.get(func(v []byte) (err error) {
		job, err = codec.DecodeSubmitted(v)
		return err
	})
	if err != nil || !found {
		return "", "", err
	}
	row, err := src.Job(job)
	return job, row.Digest, err
}

func (src *source) Feed(principal string) (trimmed, last uint64, err error) {
	it, err := src.s.db.NewIter(nil)
	if err != nil {
		return 0, 0, err
	}
	defer it.Close()
	t := feedTrail(principal)
	return t.bounds(it)
}

func (src *source) Keys(prefix string, fn func(key string)) error {
	it, err := src.s.db.NewIter(recordBounds(prefix))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		fn(string(it.Key()[len(tRecord):]))
	}
	return it.Error()
}

func (src *source) Key(principal, key string) (id arcp.JobID, digest string, err error) {
	src.key = holderKey(src.key[:0], principal, key)
	_, err = src.get(func(v []byte) (err error) {
		id, digest, err = codec.DecodeHolder(v)
		return err
	})
	return id, digest, err
}

func (src *source) Rev(key string) (rev uint64, err error) {
	src.key = recordKey(src.key[:0], key)
	_, err = src.get(func(v []byte) error {
		rec, err := codec.DecodeRecord(key, v)
		rev = rec.Rev
		return err
	})
	return rev, err
}

func (src *source) Events(id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	it, err := src.s.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	return eachEvent(it, id, after, fn)
}
