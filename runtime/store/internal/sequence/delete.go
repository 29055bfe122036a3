package sequence

import (
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// deleteJob deletes a job that has ended; one that is not there changes nothing.
func (c *Core) deleteJob(id arcp.JobID) {
	if !c.knowsJob(id) {
		return
	}
	row := c.endedRow(id)
	c.dead[id] = struct{}{}
	c.chg.Deletions = append(c.chg.Deletions, Deletion{Row: row})
	c.deleteRecords(store.JobRecords(id))
	if row.Session != "" && c.session(row.Session) != nil {
		c.trim(row.Session, row.LastSeq)
	}
}

// isDead reports whether a job was deleted in this batch: the source still
// knows it.
func (c *Core) isDead(id arcp.JobID) bool {
	_, ok := c.dead[id]
	return ok
}

// endedRow is the row of a job that has ended, if only in this batch.
func (c *Core) endedRow(id arcp.JobID) store.Job {
	var jc *JobChange
	if j := c.jobs[id]; j != nil {
		jc = j.change
		jc.finish()
	}
	if jc != nil && jc.Created != nil {
		return *jc.Created
	}
	row, err := c.src.Job(id)
	if err != nil {
		c.fail(fmt.Errorf("job %s: %w", id, err))
	}
	if jc != nil {
		jc.Status.Apply(&row)
	}
	return row
}

func (c *Core) deleteRecords(prefix string) {
	var keys []string
	if err := c.src.Keys(prefix, func(key string) { keys = append(keys, key) }); err != nil {
		c.fail(fmt.Errorf("records %q: %w", prefix, err))
	}
	for key := range c.recs {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		c.putRecord(&store.Record{Key: key, Rev: c.rev(key)})
	}
}

// settle decides, when the batch is complete, which names of a deleted job are
// free: another job may have taken them since.
func (c *Core) settle(d *Deletion) {
	row := &d.Row
	if row.IdempotencyKey != "" {
		holder, _ := c.holder(row.Principal, row.IdempotencyKey)
		d.Key = holder == row.ID
	}
	if row.Session != "" && row.SubmitID != "" && !c.isGone(row.Session) {
		holder, _ := c.submitted(row.Session, row.SubmitID)
		d.Submit = holder == row.ID
	}
}
