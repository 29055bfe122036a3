package sequence

import (
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/runtime/store"
)

// records are the revisions of records.
type records struct {
	*batch
	revs    map[string]uint64 // of the records that this batch has changed
	deleted uint64            // highest revision that a deleted record had
}

// rev returns the revision of a record, 0 if there is none.
func (rs *records) rev(key string) uint64 {
	if rev, ok := rs.revs[key]; ok {
		return rev
	}
	rev, err := rs.source.Rev(key)
	if err != nil {
		rs.fail(fmt.Errorf("record %q: %w", key, err))
	}
	return rev
}

// put creates, changes or deletes a record whose revision has been compared. The
// revision of a new record is above all revisions of deleted records, so that a key
// never has the same revision twice.
func (rs *records) put(r *store.Record) {
	if r.Value == nil {
		if r.Rev != 0 {
			rs.deleted = max(rs.deleted, r.Rev)
			rs.set(RecordChange{Key: r.Key})
		}
		return
	}
	rev := r.Rev + 1
	if r.Rev == 0 {
		rev = rs.deleted + 1
	}
	rs.set(RecordChange{Key: r.Key, Rev: rev, Value: r.Value})
}

func (rs *records) set(r RecordChange) {
	rs.revs[r.Key] = r.Rev
	rs.changes.Records = append(rs.changes.Records, r)
}

func (rs *records) deletePrefix(prefix string) {
	var keys []string
	if err := rs.source.Keys(prefix, func(key string) { keys = append(keys, key) }); err != nil {
		rs.fail(fmt.Errorf("records %q: %w", prefix, err))
	}
	for key := range rs.revs {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		rs.put(&store.Record{Key: key, Rev: rs.rev(key)})
	}
}
