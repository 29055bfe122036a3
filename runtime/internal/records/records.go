// Package records keeps values as JSON in records of the store. A change names the revision
// that it replaces, so of two concurrent changes of a record one fails with
// store.ErrConflict.
package records

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Reader is the part of a store.Store that a Table reads.
type Reader interface {
	Get(ctx context.Context, key string) (store.Record, error)
	Records(ctx context.Context, prefix, after string, fn func(store.Record) bool) error
}

// Committer makes writes durable; see txn.Committer. It may be called by any goroutine.
type Committer interface {
	// Commit makes a write durable, or stages it in the transaction of ctx and returns nil.
	// done is called once, when the write is durable or will not be. It must not block.
	Commit(ctx context.Context, w *store.Write, done func(error)) error
}

// Table reads and encodes values of type T.
type Table[T any] struct {
	Reader Reader
	// Check, if set, completes a value that was read, or refuses it.
	Check func(key string, value *T) error
}

// Row is a value with the revision of its record.
type Row[T any] struct {
	Key   string
	Rev   uint64 // 0: there is no record, and Value is zero
	Size  int    // bytes of the stored value
	Value T
}

// Decode returns the row of a record. The error names the key.
func (t Table[T]) Decode(rec store.Record) (Row[T], error) {
	row := Row[T]{Key: rec.Key, Rev: rec.Rev, Size: len(rec.Value)}
	if rec.Rev == 0 {
		return row, nil
	}
	err := arcp.Unmarshal(rec.Value, &row.Value)
	if err == nil && t.Check != nil {
		err = t.Check(rec.Key, &row.Value)
	}
	if err != nil {
		err = fmt.Errorf("record %s: %w", rec.Key, err)
	}
	return row, err
}

// Get reads the row of a key.
func (t Table[T]) Get(ctx context.Context, key string) (Row[T], error) {
	rec, err := t.Reader.Get(ctx, key)
	if err != nil {
		return Row[T]{Key: key}, err
	}
	rec.Key = key
	return t.Decode(rec)
}

// Scan calls fn for the rows of the keys with a prefix, behind the key after, in the order
// of the keys, until fn returns false. bad says why a value cannot be read.
func (t Table[T]) Scan(ctx context.Context, prefix, after string, fn func(row Row[T], bad error) bool) error {
	return t.Reader.Records(ctx, prefix, after, func(rec store.Record) bool {
		row, bad := t.Decode(rec)
		return fn(row, bad)
	})
}

// Put returns the record that replaces the row by a value.
func (r Row[T]) Put(value *T) (store.Record, error) {
	raw, err := arcp.Marshal(value)
	if err != nil {
		return store.Record{}, fmt.Errorf("encode %s: %w", r.Key, err)
	}
	return store.Record{Key: r.Key, Rev: r.Rev, Value: raw}, nil
}

// Delete returns the record that deletes the row.
func (r Row[T]) Delete() store.Record { return store.Record{Key: r.Key, Rev: r.Rev} }

// Retry calls change until it fails with another error than store.ErrConflict, or succeeds.
// change reads the rows again each time.
func Retry(change func() error) error {
	for {
		if err := change(); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// Group returns the prefix of the keys of one group: prefix, the escaped name, "/".
func Group(prefix, name string) string { return prefix + url.PathEscape(name) + "/" }

// NextGroup returns the name of the first group behind a key, and a key behind all of the
// group. The name is empty if there is no such group. It reads one record.
func NextGroup(ctx context.Context, from Reader, prefix, after string) (name, end string, err error) {
	for {
		first := ""
		err := from.Records(ctx, prefix, after, func(rec store.Record) bool {
			first = rec.Key
			return false
		})
		if err != nil || first == "" {
			return "", "", err
		}
		escaped, _, _ := strings.Cut(first[len(prefix):], "/")
		after = prefix + escaped + "/\xff"
		if name, err := url.PathUnescape(escaped); err == nil {
			return name, after, nil
		}
	}
}
