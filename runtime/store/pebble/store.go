package pebble

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// Store is a store.Store in a directory.
type Store struct {
	db   *pdb.DB
	lock *pdb.Lock
	fs   vfs.FS
	core *sequence.Core // only Commit uses it
	enc  encoder        // only Commit uses it

	unsynced bool // a batch was committed after the last sync; only Commit uses it

	reclaim *reclaimer

	// gate is held by Commit while a batch is visible but not synced, and by readers
	// while they open their view.
	gate     sync.RWMutex
	broken   error     // of Commit, or errClosed; guarded by gate
	liveJobs liveIndex // guarded by gate

	users   sync.WaitGroup     // calls in progress; none is added once broken is errClosed
	ctx     context.Context    // of backups
	cancel  context.CancelFunc // of ctx
	closing sync.Once

	jobs, live, sessions atomic.Int64
}

var errClosed = errors.New("the store is closed")

// Commit performs writes in order and syncs them.
func (s *Store) Commit(writes []*store.Write, results []store.Result) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.users.Done()
	chg, err := s.core.Decide(writes, results)
	if err == nil {
		err = s.commit(chg, syncMode(writes))
	}
	if err != nil {
		return s.fail(fmt.Errorf("commit: %w", err))
	}
	return nil
}

// syncMode returns whether a batch is synced. Without a sync the batch is lost when the
// process is killed, so every write must allow it.
func syncMode(writes []*store.Write) *pdb.WriteOptions {
	for _, w := range writes {
		if !w.NoSync {
			return pdb.Sync
		}
	}
	return pdb.NoSync
}

func (s *Store) commit(chg *sequence.Changes, mode *pdb.WriteOptions) error {
	b := s.db.NewBatchWithSize(s.enc.size(chg))
	defer b.Close()
	if err := s.enc.encode(b, chg, s); err != nil {
		return err
	}
	if b.Empty() {
		if mode == pdb.NoSync || !s.unsynced {
			return nil
		}
		if err := b.LogData(nil, nil); err != nil { // something to sync the earlier batches with
			return err
		}
	}
	if err := s.sync(b, mode, chg.Jobs); err != nil {
		return err
	}
	s.unsynced = mode == pdb.NoSync
	for i := range chg.Deletions {
		s.reclaim.deleted(chg.Deletions[i].Row.ID)
	}
	return nil
}

// sync makes a batch with its changes of jobs visible and durable.
func (s *Store) sync(b *pdb.Batch, mode *pdb.WriteOptions, jobs []*sequence.JobChange) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	if err := b.Commit(mode); err != nil {
		return err
	}
	s.liveJobs.apply(jobs)
	return nil
}

// acquire keeps the store open until users.Done. The error is the reason why the store cannot be used.
func (s *Store) acquire() error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.broken == nil {
		s.users.Add(1)
	}
	return s.broken
}

// fail makes the store unusable.
func (s *Store) fail(err error) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.broken == nil {
		s.broken = fmt.Errorf("%w: %w", store.ErrBroken, err)
	}
	return err
}

// view opens an iterator over the synced data. It keeps the store open until release.
func (s *Store) view(opts *pdb.IterOptions) (*pdb.Iterator, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	return s.viewLocked(opts)
}

func (s *Store) viewLocked(opts *pdb.IterOptions) (*pdb.Iterator, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	it, err := s.db.NewIter(opts)
	if err == nil {
		s.users.Add(1)
	}
	return it, err
}

// release closes a view and the iterators cloned from it. Their errors were returned
// where they were used.
func (s *Store) release(its ...*pdb.Iterator) {
	for _, it := range its {
		_ = it.Close()
	}
	s.users.Done()
}

// Get returns a record.
func (s *Store) Get(ctx context.Context, key string) (store.Record, error) {
	it, err := s.view(nil)
	if err != nil {
		return store.Record{}, err
	}
	defer s.release(it)
	rec := store.Record{Key: key}
	err = lookup(it, recordKey(nil, key), func(v []byte) (err error) {
		rec, err = codec.DecodeRecord(key, v)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return rec, nil
	}
	return rec, err
}

// Stat describes the store. Bytes is the size of the directory's live files, including
// the log.
func (s *Store) Stat() store.Stat {
	st := store.Stat{Jobs: int(s.jobs.Load()), LiveJobs: int(s.live.Load()), Sessions: int(s.sessions.Load()), Lags: true}
	if s.acquire() == nil {
		defer s.users.Done()
		st.Bytes = int64(diskSpace(s.db.Metrics()))
	}
	return st
}

// diskSpace returns the size of the files. The sum of Pebble lacks the log that is written to, and the blob files that
// an earlier process has written.
func diskSpace(m *pdb.Metrics) uint64 {
	logs := max(m.WAL.PhysicalSize, m.WAL.Size)
	return m.DiskSpaceUsage() - m.WAL.PhysicalSize + logs - m.BlobFiles.Local.LiveSize + m.BlobFiles.LiveSize
}

// Close refuses later calls, ends backups, waits for calls in progress, and then flushes
// and releases the directory. It may be called again.
func (s *Store) Close() (err error) {
	s.closing.Do(func() {
		s.gate.Lock()
		whole := s.broken == nil
		s.broken = errClosed
		s.gate.Unlock()
		s.cancel()
		s.users.Wait()
		s.reclaim.close()
		if whole {
			s.flush()
		}
		err = errors.Join(s.db.Close(), s.lock.Close())
	})
	return err
}

// flushTimeout bounds the time that Close waits for the tables. A full disk takes none.
const flushTimeout = 5 * time.Second

// flush writes the memtables to tables, so that the next Open has no log to replay. Without them
// nothing is lost: the log has the data.
func (s *Store) flush() {
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return
	}
	select {
	case <-flushed:
	case <-time.After(flushTimeout):
	}
}

// lookup calls fn with the value of a key, which is valid until fn returns. It returns
// store.ErrNotFound if there is none. Errors name the key.
func lookup(it *pdb.Iterator, key []byte, fn func(value []byte) error) error {
	if !it.SeekPrefixGE(key) {
		if err := readable(it.Error()); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		return store.ErrNotFound
	}
	v, err := value(it)
	if err == nil {
		err = fn(v)
	}
	if err != nil {
		return fmt.Errorf("key %q: %w", key, err)
	}
	return nil
}

// value returns the value at the iterator.
func value(it *pdb.Iterator) (v []byte, err error) {
	defer recoverDamage(&err)
	v, err = it.ValueAndErr()
	return v, readable(err)
}

// readable returns an error of Pebble without the details for programs that Pebble joins
// to it when a file is damaged.
func readable(err error) error {
	if info := pdb.ExtractDataCorruptionInfo(err); info != nil {
		return info.Details
	}
	return err
}

// recoverDamage converts a panic to an error: Pebble panics on some kinds of damage.
func recoverDamage(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("a file is damaged: %v", p)
	}
}
