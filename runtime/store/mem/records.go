package mem

import (
	"context"
	"strings"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

func (s *Store) applyRecord(c *sequence.RecordChange) {
	rec, there := s.records[c.Key]
	s.bytes -= sizeOfRecord(&rec)
	switch {
	case c.Value == nil:
		delete(s.records, c.Key)
		if there {
			s.names.Remove(c.Key)
		}
		return
	case !there:
		s.names.Add(c.Key)
	}
	rec = store.Record{Key: c.Key, Rev: c.Rev, Value: c.Value}
	s.records[c.Key] = rec
	s.bytes += sizeOfRecord(&rec)
}

// Get returns a record.
func (s *Store) Get(_ context.Context, key string) (store.Record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	rec := s.records[key]
	rec.Key = key
	return rec, s.broken
}

// pageRecords is how many records are copied under the lock at once.
const pageRecords = 64

// Records calls fn for the records whose key begins with a prefix.
func (s *Store) Records(ctx context.Context, prefix, after string, fn func(store.Record) bool) error {
	from := prefix
	if after >= prefix {
		from = after + "\x00"
	}
	for {
		page, err := s.pageRecords(prefix, from)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, rec := range page {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !fn(rec) {
				return nil
			}
		}
		from = page[len(page)-1].Key + "\x00"
	}
}

func (s *Store) pageRecords(prefix, from string) (page []store.Record, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key := range s.names.From(from) {
		if len(page) == pageRecords || !strings.HasPrefix(key, prefix) {
			break
		}
		page = append(page, s.records[key])
	}
	return page, s.broken
}
