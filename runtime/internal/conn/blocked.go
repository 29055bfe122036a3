package conn

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
)

// blocked is the session's next event while what it needs is read from the store. Nothing
// of the session's log overtakes it.
type blocked struct {
	item    *eventlog.Item // nil: there is none
	reading bool
	origin  []byte // see forwarded.head
}

// nextItem returns what the connection sends next of its session's log; ok is false if
// there is nothing, or it still has to be read.
func (c *conn) nextItem() (item eventlog.Item, ok bool, err error) {
	if c.blocked.reading {
		return item, false, nil
	}
	if c.blocked.item != nil {
		item, c.forwarded.head = *c.blocked.item, c.blocked.origin
		c.blocked = blocked{}
		return item, true, nil
	}
	if item, ok, err = c.cursor.Next(); !ok || err != nil || item.Event == nil {
		return item, ok, err
	}
	known := true
	if item.Origin {
		c.forwarded.head, known = c.origin(item.Event.JobID())
	}
	if result := c.needsResult(item.Event); result || !known {
		c.block(item, result, !known)
		return item, false, nil
	}
	return item, true, nil
}

// block reads what an event needs: its result, its origin, or both.
func (c *conn) block(item eventlog.Item, result, origin bool) {
	e := item.Event
	c.blocked = blocked{item: &item, reading: true, origin: c.forwarded.head}
	c.async(func() {
		ctx := context.Background()
		whole, err := e, error(nil)
		if result {
			whole, err = c.srv.withResult(ctx, e)
		}
		var j store.Job
		var noJob error
		if origin {
			j, noJob = c.srv.opts.Store.Job(ctx, e.JobID())
		}
		c.complete(func(now time.Time) {
			c.blocked.reading, item.Event = false, whole
			if err != nil {
				c.unreadable(now, err)
			}
			if origin {
				c.unblockOrigin(e, &j, noJob)
			}
		})
	})
}

func (c *conn) unblockOrigin(e *store.Event, j *store.Job, err error) {
	if err != nil {
		c.srv.opts.Logger.Error().Err(err).Str("job_id", string(e.JobID())).Msg("origin of a forwarded event")
		c.blocked.origin = []byte(originExtension)
		return
	}
	c.blocked.origin = c.learnOrigin(j, e.Type)
}
