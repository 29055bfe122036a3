// Package mem is a store in memory: nothing survives the process.
//
// The row and the events of a short job are packed into one piece of memory when the
// job ends. Values passed to Commit belong to the store from then on.
package mem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/ordered"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// Options of a store. The zero value is ready.
type Options struct {
	// IDs mints the ids of events. Default: a source of its own.
	IDs *arcp.IDSource
}

// Store is a store.Store in memory. Readers share a lock with the end of Commit, when a
// decided batch is applied.
type Store struct {
	core    *sequence.Core // only Commit uses it
	scratch []byte         // only Commit uses it

	mu       sync.RWMutex
	sessions map[arcp.SessionID]*session
	jobs     map[arcp.JobID]*job
	live     map[arcp.JobID]struct{}
	lists    map[string]*lists // by principal
	ended    list
	feeds    map[string]*trail // by principal
	keys     map[idempotencyKey]holder
	records  map[string]store.Record
	names    ordered.Set // keys of records
	bytes    int64       // of its live heap, estimated
	broken   error       // set: the store is closed, or Commit has failed
}

type idempotencyKey struct{ principal, key string }

type holder struct {
	job    arcp.JobID
	digest string
}

var errClosed = errors.New("the store is closed")

// Open returns an empty store.
func Open(opts Options) store.Store {
	s := &Store{
		sessions: make(map[arcp.SessionID]*session),
		jobs:     make(map[arcp.JobID]*job),
		live:     make(map[arcp.JobID]struct{}),
		lists:    make(map[string]*lists),
		feeds:    make(map[string]*trail),
		keys:     make(map[idempotencyKey]holder),
		records:  make(map[string]store.Record),
	}
	if opts.IDs == nil {
		opts.IDs = new(arcp.IDSource)
	}
	s.core = sequence.New(source{s}, opts.IDs, 0)
	return s
}

// Commit performs writes in order. It fails only if the caller made a mistake.
func (s *Store) Commit(writes []*store.Write, results []store.Result) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	chg, err := s.core.Decide(writes, results)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.broken = fmt.Errorf("%w: %w", store.ErrBroken, err)
		return fmt.Errorf("commit: %w", err)
	}
	s.apply(chg)
	return nil
}

// apply applies a decided batch. Jobs refer to sessions and trails to jobs, so deletions
// come last.
func (s *Store) apply(chg *sequence.Changes) {
	for _, c := range chg.Sessions {
		if c.New {
			s.sessions[c.ID] = new(session)
			s.bytes += sessionBytes
		}
	}
	for _, c := range chg.Jobs {
		s.applyJob(c)
	}
	for _, c := range chg.Sessions {
		s.applySession(c)
	}
	for _, c := range chg.Feeds {
		s.applyFeed(c)
	}
	for i := range chg.Records {
		s.applyRecord(&chg.Records[i])
	}
	for _, c := range chg.Sessions {
		if c.Ended {
			s.bytes -= sessionBytes + s.sessions[c.ID].runs*runBytes
			delete(s.sessions, c.ID)
		}
	}
	for i := range chg.Deletions {
		s.deleteJob(&chg.Deletions[i])
	}
}

// Stat describes the store. Bytes estimates the memory that the process takes for it, which is more
// than its live heap; see processBytes.
func (s *Store) Stat() store.Stat {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return store.Stat{Jobs: len(s.jobs), LiveJobs: len(s.live), Sessions: len(s.sessions), Bytes: processBytes(s.bytes)}
}

// Close frees the memory.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = errClosed
	clear(s.sessions)
	clear(s.jobs)
	clear(s.live)
	clear(s.lists)
	clear(s.feeds)
	s.ended, s.names = list{}, ordered.Set{}
	clear(s.keys)
	clear(s.records)
	return nil
}

// checkOpen returns nil, or why the store cannot be used.
func (s *Store) checkOpen() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.broken
}

// sorted returns the keys of a map of the store in order.
func sorted[K ~string, V any](s *Store, m map[K]V) ([]K, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(m)), s.broken
}

// source reads the maps without the lock: only Commit, which calls it, changes them.
type source struct{ s *Store }

func (s source) Session(id arcp.SessionID) (store.Session, error) {
	if e := s.s.sessions[id]; e != nil {
		return e.fullRow(), nil
	}
	return store.Session{}, store.ErrNotFound
}

func (s source) Job(id arcp.JobID) (store.Job, error) {
	r := s.s.jobs[id].copyRow()
	return r.unpack()
}

func (s source) Submitted(id arcp.SessionID, submit arcp.MessageID) (arcp.JobID, string, error) {
	e := s.s.sessions[id]
	if e == nil || e.submits[submit] == nil {
		return "", "", nil
	}
	r := e.submits[submit].copyRow()
	j, err := r.unpack()
	return j.ID, j.Digest, err
}

func (s source) Feed(principal string) (trimmed, last uint64, err error) {
	t := s.s.feedOf(principal)
	return t.trimmed, t.last, nil
}

func (s source) Keys(prefix string, fn func(key string)) error {
	for key := range s.s.names.From(prefix) {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		fn(key)
	}
	return nil
}

func (s source) Ended(id arcp.JobID) (bool, error) { return s.s.jobs[id] != nil, nil }

func (s source) Key(principal, key string) (arcp.JobID, string, error) {
	h := s.s.keys[idempotencyKey{principal, key}]
	return h.job, h.digest, nil
}

func (s source) Rev(key string) (uint64, error) { return s.s.records[key].Rev, nil }

func (s source) Events(id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	return s.s.jobs[id].log().each(context.Background(), after, fn)
}

// Backup returns store.ErrUnsupported.
func (s *Store) Backup(context.Context, string) error { return store.ErrUnsupported }
