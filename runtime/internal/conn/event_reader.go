package conn

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// eventReader takes events and answers from the session's cursor, in order, and appends their
// frames to the batch. While the next item needs data of the store, the items after it wait.
type eventReader struct {
	c       *conn
	cursor  *eventlog.Cursor // nil before session.accepted
	held    *eventlog.Item   // the next item, until its data is read; nil: the cursor has it
	reading bool             // data for held is being read
	origin  origin           // follows.origin for held
}

// pull appends events and answers to the batch while the outbox has room, and then events of
// subscriptions.
func (er *eventReader) pull(now time.Time) {
	c := er.c
	if er.cursor.Superseded() {
		c.ending.closeWith(transport.ClosePolicy, "superseded")
		return
	}
	waiting, err := c.output.outbox.size()
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

// next returns the next item. ok is false if there is none, or its data is being read.
func (er *eventReader) next() (item eventlog.Item, ok bool, err error) {
	if er.reading {
		return item, false, nil
	}
	follows := &er.c.follows
	if er.held != nil {
		item, follows.origin = *er.held, er.origin
		er.held, er.origin = nil, origin{}
		return item, true, nil
	}
	if item, ok, err = er.cursor.Next(); !ok || err != nil {
		return item, ok, err
	}
	if item.Event == nil {
		if answer, deferred := item.Answer.(eventlog.DeferredAnswer); deferred {
			er.readFirst(item, func(ctx context.Context) func(time.Time) {
				env := answer(ctx)
				return func(time.Time) { er.held.Answer = env }
			})
			return item, false, nil
		}
		return item, true, nil
	}
	known := true
	if item.Forwarded {
		follows.origin, known = follows.knownOrigin(item.Event)
	}
	if result := er.needsWholeResult(item.Event); result || !known {
		er.readEvent(item, result, !known)
		return item, false, nil
	}
	return item, true, nil
}

// readFirst holds item. It calls read on another goroutine, and the function that
// read returns on the loop. Then next returns the item.
func (er *eventReader) readFirst(item eventlog.Item, read func(ctx context.Context) func(now time.Time)) {
	er.held, er.reading, er.origin = &item, true, er.c.follows.origin
	er.c.tasks.backgroundThenLoop(func(ctx context.Context) func(time.Time) {
		onLoop := read(ctx)
		return func(now time.Time) {
			er.reading = false
			onLoop(now)
		}
	})
}

// readEvent reads the result of the event's job, the job for its origin, or both. Then next
// returns the item.
func (er *eventReader) readEvent(item eventlog.Item, result, unknown bool) {
	e, principal, limit := item.Event, er.c.principal.identity.Principal, er.c.maxResult()
	er.readFirst(item, func(ctx context.Context) func(time.Time) {
		whole, err := e, error(nil)
		if result {
			whole, err = er.c.srv.withWholeResult(ctx, principal, limit, e)
		}
		var j store.Job
		var noJob error
		if unknown {
			j, noJob = er.c.srv.opts.Store.Job(ctx, e.JobID())
		}
		return func(now time.Time) {
			er.held.Event = whole
			if err != nil {
				er.fail(now, err)
			}
			switch {
			case !unknown:
			case errors.Is(noJob, store.ErrNotFound): // deleted with its events
				er.c.ack.closeForOverflow(now)
			case noJob != nil:
				er.fail(now, noJob)
			default:
				er.origin = er.c.follows.addForwarded(&j, e.Type)
			}
		}
	})
}

// fail closes a connection whose next events cannot be read: they are deleted, or the store has
// failed.
func (er *eventReader) fail(now time.Time, err error) {
	c := er.c
	if gone, ok := errors.AsType[*store.TrimmedError](err); ok {
		// A followed job may be deleted. Without this trim, every resume from an earlier
		// position would be accepted and fail here again.
		c.append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: c.id, Seq: gone.UpTo}}, NoSync: true})
		c.ack.closeForOverflow(now)
		return
	}
	c.srv.opts.Logger.Error().Err(err).Str("session_id", string(c.id)).Msg("read events of the session")
	c.ending.closeWith(transport.CloseInternal, "the session's events cannot be read")
}

// deliver appends the frame of an item to the batch.
func (er *eventReader) deliver(now time.Time, item eventlog.Item) {
	c := er.c
	if item.Event == nil {
		c.send(now, item.Answer.(arcp.Envelope))
		return
	}
	if item.Forwarded && !c.follows.show(now, &item) {
		return
	}
	c.dialect.appendEvent(item)
	if item.Seq != 0 {
		c.output.batch().last = item.Seq
		c.lease.eventSent(now)
		c.ack.eventSent(now, item.Seq, len(item.Event.Body))
	}
}
