package conn

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// eventReader takes the items that the connection sends from the session's log, in order. While
// the next item needs something of the store, nothing of the log overtakes it.
type eventReader struct {
	c       *conn
	item    *eventlog.Item // the next item; nil: the cursor has it
	reading bool           // item needs something that is being read
	origin  []byte         // for item; see follows.head
}

// pull moves events and answers to the batch while the outbox has room.
func (er *eventReader) pull(now time.Time) {
	c := er.c
	if c.cursor.Superseded() {
		c.ending.close = &machine.Close{Code: int(transport.ClosePolicy), Reason: "superseded"}
		return
	}
	waiting, err := c.output.box.size()
	if err != nil {
		c.ending.err = err
		return
	}
	for c.ending.close == nil && waiting+len(c.output.batch().data) < outboxSoft {
		item, ok, err := er.next()
		if err != nil {
			er.fail(now, err)
			break
		}
		if !ok {
			break
		}
		er.deliver(now, item)
	}
	c.subscriptions.pull(now, outboxSoft-waiting)
	c.output.dropEmptyBatch()
}

// next returns the next item. ok is false if there is none, or it needs something that is
// being read.
func (er *eventReader) next() (item eventlog.Item, ok bool, err error) {
	if er.reading {
		return item, false, nil
	}
	follows := &er.c.follows
	if er.item != nil {
		item, follows.head = *er.item, er.origin
		er.item, er.origin = nil, nil
		return item, true, nil
	}
	if item, ok, err = er.c.cursor.Next(); !ok || err != nil {
		return item, ok, err
	}
	if item.Event == nil {
		if answer, later := item.Answer.(eventlog.DeferredAnswer); later {
			er.block(item, func(ctx context.Context) func(time.Time) {
				env := answer(ctx)
				return func(time.Time) { er.item.Answer = env }
			})
			return item, false, nil
		}
		return item, true, nil
	}
	known := true
	if item.Origin {
		follows.head, known = follows.origin(item.Event.JobID())
	}
	if result := er.needsResult(item.Event); result || !known {
		er.readEvent(item, result, !known)
		return item, false, nil
	}
	return item, true, nil
}

// block makes item the next one after read was called on another goroutine, and the function
// that it returns on the loop.
func (er *eventReader) block(item eventlog.Item, read func(ctx context.Context) func(now time.Time)) {
	er.item, er.reading, er.origin = &item, true, er.c.follows.head
	er.c.tasks.async(func() {
		then := read(context.Background())
		er.c.inbox.complete(func(now time.Time) {
			er.reading = false
			then(now)
		})
	})
}

// readEvent reads the result of the event's job, the origin of the event, or both.
func (er *eventReader) readEvent(item eventlog.Item, result, origin bool) {
	e := item.Event
	er.block(item, func(ctx context.Context) func(time.Time) {
		whole, err := e, error(nil)
		if result {
			whole, err = er.c.srv.withResult(ctx, e)
		}
		var j store.Job
		var noJob error
		if origin {
			j, noJob = er.c.srv.opts.Store.Job(ctx, e.JobID())
		}
		return func(now time.Time) {
			er.item.Event = whole
			if err != nil {
				er.fail(now, err)
			}
			switch {
			case !origin:
			case noJob != nil:
				er.c.srv.opts.Logger.Error().Err(noJob).Str("job_id", string(e.JobID())).Msg("origin of a forwarded event")
				er.origin = []byte(originExtension)
			default:
				er.origin = er.c.follows.learnOrigin(&j, e.Type)
			}
		}
	})
}

// fail closes a connection whose next events cannot be read: they are not kept any more, or
// the store has failed.
func (er *eventReader) fail(now time.Time, err error) {
	c := er.c
	if gone, ok := errors.AsType[*store.TrimmedError](err); ok {
		// A job that the session follows may be deleted: without this, every resume
		// from before it would be accepted and end here.
		c.append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: c.id, Seq: gone.UpTo}}, NoSync: true})
		c.ack.tooFarBehind(now)
		return
	}
	c.srv.opts.Logger.Error().Err(err).Str("session_id", string(c.id)).Msg("connection cannot go on")
	c.ending.close = &machine.Close{Code: int(transport.CloseInternal), Reason: "the session's events cannot be read"}
}

// deliver appends an item to the batch.
func (er *eventReader) deliver(now time.Time, item eventlog.Item) {
	c := er.c
	if item.Event == nil {
		c.send(now, item.Answer.(arcp.Envelope))
		return
	}
	f := c.output.batch()
	start := len(f.data)
	head := c.output.head
	if item.Origin {
		f.data, head = c.follows.appendOrigin(append(f.data, head...), item.Event), nil
	}
	f.data = store.AppendFrame(f.data, head, item.Seq, item.CorrelationID, item.Event)
	if c.srv.opts.Vault != nil && !item.Origin {
		f.data = c.srv.appendValues(f.data, item.Event)
	}
	f.ends = append(f.ends, len(f.data))
	c.output.counts.add(item.Event.Type, len(f.data)-start)
	if item.Seq != 0 {
		f.last, c.lease.worked = item.Seq, now
		c.ack.sent(now, item.Seq, len(item.Event.Body))
	}
}
