package questions

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/internal/txn"
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
