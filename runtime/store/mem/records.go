package mem

import (
	"context"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

func (s *Store) applyRecord(c *sequence.RecordChange) {
	_, there := s.records[c.Key]
	switch {
	case c.Value == nil:
		delete(s.records, c.Key)
		if there {
			s.names.remove(c.Key)
		}
		return
	case !there:
		s.names.add(c.Key)
	}
	s.records[c.Key] = store.Record{Key: c.Key, Rev: c.Rev, Value: c.Value}
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
	for key := range s.names.from(from) {
		if len(page) == pageRecords || !strings.HasPrefix(key, prefix) {
			break
		}
		page = append(page, s.records[key])
	}
	return page, s.broken
}

// names is an ordered set of strings in pieces of bounded length, so that adding one
// does not move half of a million.
type names struct{ pieces [][]string }

const pieceLen = 512

// piece returns the index of the piece for a name; 0 if there are no pieces.
func (n *names) piece(name string) int {
	i, found := slices.BinarySearchFunc(n.pieces, name, func(p []string, name string) int { return strings.Compare(p[0], name) })
	if !found && i > 0 {
		i--
	}
	return i
}

// add adds a new name.
func (n *names) add(name string) {
	if len(n.pieces) == 0 {
		n.pieces = [][]string{{name}}
		return
	}
	i := n.piece(name)
	p := n.pieces[i]
	k, _ := slices.BinarySearch(p, name)
	if len(p) < pieceLen {
		n.pieces[i] = slices.Insert(p, k, name)
		return
	}
	low, high := slices.Clone(p[:len(p)/2]), slices.Clone(p[len(p)/2:])
	n.pieces = slices.Replace(n.pieces, i, i+1, low, high)
	n.add(name)
}

// remove removes an existing name.
func (n *names) remove(name string) {
	i := n.piece(name)
	k, _ := slices.BinarySearch(n.pieces[i], name)
	if n.pieces[i] = slices.Delete(n.pieces[i], k, k+1); len(n.pieces[i]) == 0 {
		n.pieces = slices.Delete(n.pieces, i, i+1)
	}
}

// from yields the names that are not less than name.
func (n *names) from(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := n.piece(name); i < len(n.pieces); i++ {
			k, _ := slices.BinarySearch(n.pieces[i], name)
			for _, s := range n.pieces[i][k:] {
				if !yield(s) {
					return
				}
			}
		}
	}
}
