package questions

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

func (b *Broker) table() records.Table[approval.Row] {
	return records.Table[approval.Row]{Reader: b.opts.Store}
}

// RequestOf returns the id of the event of a pending question; empty: the question has none.
func (b *Broker) RequestOf(q *approval.Row) arcp.MessageID {
	if q.Status != approval.Pending {
		return ""
	}
	a, _ := b.Find(q.ID)
	return a.Request
}

// Read returns a stored question that an actor may see, as of now: a pending question past its
// deadline is expired. The error is NOT_FOUND if there is none.
func (b *Broker) Read(ctx context.Context, actor *approval.Actor, id string) (approval.Row, error) {
	row, err := b.read(ctx, actor, id)
	return row.Value, err
}

func (b *Broker) read(ctx context.Context, actor *approval.Actor, id string) (row records.Row[approval.Row], err error) {
	key := approval.RecordPrefix(actor.Principal) + id
	if a, ok := b.Find(id); ok {
		key = approval.RecordKey(&a.Row)
	}
	row, err = b.table().Get(ctx, key)
	if err == nil && row.Rev == 0 && (actor.Admin || actor.Sees != nil) {
		row, err = b.findRow(ctx, actor, id)
	}
	switch {
	case err != nil:
		return row, txn.Refusal(b.opts.Logger, err, "read approval")
	case row.Rev == 0 || !row.Value.Visible(actor):
		return records.Row[approval.Row]{}, arcp.Errorf(arcp.CodeNotFound, "no such question: %s", id)
	}
	row.Value.Advance(time.Now().UTC())
	return row, nil
}

// findRow searches a question among all principals that an actor may see. It reads two records of
// each principal.
func (b *Broker) findRow(ctx context.Context, actor *approval.Actor, id string) (row records.Row[approval.Row], err error) {
	for after := ""; row.Rev == 0; {
		var principal string
		if principal, after, err = records.NextGroup(ctx, b.opts.Store, approval.RecordPrefix(""), after); principal == "" || err != nil {
			return row, err
		}
		if actor.Admin || actor.Sees(principal) {
			if row, err = b.table().Get(ctx, approval.RecordPrefix(principal)+id); err != nil {
				return row, err
			}
		}
	}
	return row, nil
}

// List calls fn for the stored questions of a principal until fn returns false. An empty principal
// is all principals. The list begins behind the key after. size is the size of the stored row in
// bytes.
func (b *Broker) List(ctx context.Context, principal, after string, fn func(key string, size int, q *approval.Row) bool) (err error) {
	var unreadable error
	err = b.table().Scan(ctx, approval.RecordPrefix(principal), after, func(row records.Row[approval.Row], bad error) bool {
		unreadable = bad
		return bad == nil && fn(row.Key, row.Size, &row.Value)
	})
	if err == nil {
		err = unreadable
	}
	return err
}

// ChangeOwned changes an approval that no job waits for. change is called again if another goroutine
// has changed the row meanwhile.
func (b *Broker) ChangeOwned(ctx context.Context, actor *approval.Actor, id string, change func(*approval.Row) *arcp.Error) (q approval.Row, err error) {
	err = records.Retry(func() error {
		row, err := b.read(ctx, actor, id)
		q = row.Value
		if err != nil {
			return err
		}
		if refused := change(&q); refused != nil {
			return refused
		}
		return b.commit(ctx, row, q, func(err error) {
			if err == nil && q.Status != approval.Pending {
				b.remove(q)
			}
		})
	})
	if err == nil && q.Status != approval.Pending {
		b.emitChange(ctx, eventKind(&q), &q)
	}
	return q, b.refusal(err)
}

// Ask stores an approval that no job waits for, in the transaction of ctx if there is one.
func (b *Broker) Ask(ctx context.Context, q approval.Row) error {
	release, err := b.opts.Sessions.DeferEnd(ctx, q.Session)
	if err != nil {
		return b.refusal(err)
	}
	err = b.commit(ctx, records.Row[approval.Row]{Key: approval.RecordKey(&q)}, q, func(err error) {
		if err == nil {
			b.asked(q, "")
		}
		release()
	})
	if err == nil {
		b.emitChange(ctx, agents.ApprovalRequested, &q)
	}
	return b.refusal(err)
}

// commit replaces a row by q. done is called once, when the row is written or will not be.
func (b *Broker) commit(ctx context.Context, row records.Row[approval.Row], q approval.Row, done func(error)) error {
	rec, err := row.Put(&q)
	if err != nil {
		done(err)
		return err
	}
	return b.opts.Changes.Commit(ctx, store.NewWrite().Put(rec), done)
}

func (b *Broker) refusal(err error) error {
	if err == nil {
		return nil
	}
	return txn.Refusal(b.opts.Logger, err, "store approval")
}

// Load reads the pending approvals that no job waits for from the store.
func (b *Broker) Load(ctx context.Context) error {
	return b.table().Scan(ctx, approval.RecordPrefix(""), "", func(row records.Row[approval.Row], bad error) bool {
		if bad != nil {
			b.opts.Logger.Error().Err(bad).Str("record", row.Key).Msg("an approval cannot be read and is left out")
		} else if q := row.Value; q.Job == "" && q.Status == approval.Pending {
			b.Asked(q, "")
		}
		return true
	})
}

// EndOverdue cancels the approvals of sessions that have ended, and expires the approvals that
// are unresolved at their deadline.
func (b *Broker) EndOverdue(ctx context.Context, now time.Time) {
	for _, q := range b.owned("") {
		if b.opts.Sessions.Lives(q.session) && now.Before(q.expires) {
			continue
		}
		if err := b.cancelOwned(ctx, &q, now); err != nil && ctx.Err() == nil {
			b.opts.Logger.Error().Err(err).Str("approval_id", q.id).Msg("end an approval")
		}
	}
}

// cancelOwned cancels a question of a session that has ended, unless it has expired.
func (b *Broker) cancelOwned(ctx context.Context, q *owned, now time.Time) error {
	actor := approval.Actor{Principal: q.principal, Session: q.session}
	_, err := b.ChangeOwned(ctx, &actor, q.id, func(row *approval.Row) *arcp.Error {
		if row.Status == approval.Pending {
			row.Cancel(now.UTC(), "its session has ended")
		}
		return nil
	})
	return err
}

// EndSession cancels the questions of a session that ends, in the transaction of ctx.
func (b *Broker) EndSession(ctx context.Context, id arcp.SessionID) error {
	now := time.Now()
	for _, q := range b.owned(id) {
		if err := b.cancelOwned(ctx, &q, now); err != nil {
			return err
		}
	}
	return nil
}
