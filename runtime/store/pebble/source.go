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
func (s *source) get(fn func(value []byte) error) (found bool, err error) {
	defer recoverDamage(&err)
	v, closer, err := s.s.db.Get(s.key)
	if errors.Is(err, pdb.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		defer closer.Close()
		err = fn(v)
	}
	if err != nil {
		return false, fmt.Errorf("key %q: %w", s.key, readable(err))
	}
	return true, nil
}

func exists([]byte) error { return nil }

func (s *source) Session(id arcp.SessionID) (store.Session, error) {
	s.key = sessionKey(s.key[:0], tSession, id)
	found, err := s.get(exists)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Session{}, err
	}
	it, err := s.s.db.NewIter(nil)
	if err != nil {
		return store.Session{}, err
	}
	defer it.Close()
	return readSession(it, id)
}

// Ended does not read the database for an id that was minted after all stored ids, as
// nearly all new ids are.
func (s *source) Ended(id arcp.JobID) (bool, error) {
	s.key = jobKey(s.key[:0], tJob, id)
	if s.key[len(tJob)] == codec.MintedID && string(s.key) > string(s.s.enc.lastJob) {
		return false, nil
	}
	return s.get(exists)
}

func (s *source) Job(id arcp.JobID) (store.Job, error) {
	it, err := s.s.db.NewIter(nil)
	if err != nil {
		return store.Job{}, err
	}
	defer it.Close()
	return readJob(it, id)
}

func (s *source) Submitted(id arcp.SessionID, submit arcp.MessageID) (job arcp.JobID, digest string, err error) {
	s.key = submitKey(s.key[:0], id, submit)
	found, err := s.get(func(v []byte) (err error) {
		job, err = codec.DecodeSubmitted(v)
		return err
	})
	if err != nil || !found {
		return "", "", err
	}
	row, err := s.Job(job)
	return job, row.Digest, err
}

func (s *source) Feed(principal string) (trimmed, last uint64, err error) {
	it, err := s.s.db.NewIter(nil)
	if err != nil {
		return 0, 0, err
	}
	defer it.Close()
	t := feedTrail(principal)
	return t.bounds(it)
}

func (s *source) Keys(prefix string, fn func(key string)) error {
	it, err := s.s.db.NewIter(recordBounds(prefix))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		fn(string(it.Key()[len(tRecord):]))
	}
	return readable(it.Error())
}

func (s *source) Key(principal, key string) (id arcp.JobID, digest string, err error) {
	s.key = holderKey(s.key[:0], principal, key)
	_, err = s.get(func(v []byte) (err error) {
		id, digest, err = codec.DecodeHolder(v)
		return err
	})
	return id, digest, err
}

func (s *source) Rev(key string) (rev uint64, err error) {
	s.key = recordKey(s.key[:0], key)
	_, err = s.get(func(v []byte) error {
		rec, err := codec.DecodeRecord(key, v)
		rev = rec.Rev
		return err
	})
	return rev, err
}

func (s *source) Events(id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	it, err := s.s.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	return eachEvent(it, id, after, fn)
}
