package sequence

import (
	"fmt"

	"github.com/arcpd/arcpd/runtime/store"
)

// rev is a record's revision, 0 if there is none.
func (c *Core) rev(key string) uint64 {
	if rev, ok := c.recs[key]; ok {
		return rev
	}
	rev, err := c.src.Rev(key)
	if err != nil {
		c.fail(fmt.Errorf("record %q: %w", key, err))
	}
	return rev
}

// putRecord creates, changes or deletes a record whose revision was compared.
// A revision never comes back under the same key: a new record's is above that
// of all that were ever deleted.
func (c *Core) putRecord(r *store.Record) {
	if r.Value == nil {
		if r.Rev != 0 {
			c.deleted = max(c.deleted, r.Rev)
			c.setRecord(RecordChange{Key: r.Key})
		}
		return
	}
	rev := r.Rev + 1
	if r.Rev == 0 {
		rev = c.deleted + 1
	}
	c.setRecord(RecordChange{Key: r.Key, Rev: rev, Value: r.Value})
}

func (c *Core) setRecord(r RecordChange) {
	c.recs[r.Key] = r.Rev
	c.chg.Records = append(c.chg.Records, r)
}
