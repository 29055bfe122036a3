package questions

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// RequestOf is the id of the message of a question that is pending.
func (b *Broker) RequestOf(q *approval.Row) arcp.MessageID {
	if q.Status != approval.Pending {
		return ""
	}
	a, _ := b.Find(q.ID)
	return a.Request
}

// Read reads a question that an actor may know of, with the revision of its
// record.
func (b *Broker) Read(ctx context.Context, who *approval.Actor, id string) (row approval.Row, rev uint64, err error) {
	key := approval.RecordPrefix(who.Principal) + id
	if a, ok := b.Find(id); ok {
		key = approval.RecordKey(&a.Row)
	}
	rec, err := b.opts.Store.Get(ctx, key)
	if err == nil && rec.Rev == 0 && (who.Admin || who.Sees != nil) {
		rec, err = b.findRecord(ctx, who, id)
	}
	if err == nil && rec.Rev != 0 {
		err = arcp.Unmarshal(rec.Value, &row)
	}
	switch {
	case err != nil:
		return row, 0, txn.Refusal(b.opts.Logger, err, "read approval")
	case rec.Rev == 0 || !row.Visible(who):
		return row, 0, arcp.Errorf(arcp.CodeNotFound, "no such question: %s", id)
	}
	row.Advance(time.Now().UTC())
	return row, rec.Rev, nil
}

// findRecord looks for a question of anybody whose questions are to be seen. It
// looks once a principal, however many there are of each.
func (b *Broker) findRecord(ctx context.Context, who *approval.Actor, id string) (store.Record, error) {
	all, after := approval.RecordPrefix(""), ""
	for {
		first := ""
		err := b.opts.Store.Records(ctx, all, after, func(rec store.Record) bool {
			first = rec.Key
			return false
		})
		if err != nil || first == "" {
			return store.Record{}, err
		}
		own := first[:strings.LastIndexByte(first, '/')+1]
		after = own + "\xff" // behind all of this principal
		if principal, err := url.PathUnescape(own[len(all) : len(own)-1]); err != nil || !who.Admin && !who.Sees(principal) {
			continue
		}
		if rec, err := b.opts.Store.Get(ctx, own+id); err != nil || rec.Rev != 0 {
			return rec, err
		}
	}
}

// ChangeOwned changes the row of an approval that no job waits for.
func (b *Broker) ChangeOwned(ctx context.Context, who *approval.Actor, id string, change func(*approval.Row) *arcp.Error) (approval.Row, error) {
	for {
		row, rev, err := b.Read(ctx, who, id)
		if err != nil {
			return row, err
		}
		if err := change(&row); err != nil {
			return row, err
		}
		raw, err := arcp.Marshal(row)
		if err != nil {
			return row, err
		}
		err = b.opts.Changes.Commit(ctx, store.NewWrite().Put(store.Record{Key: approval.RecordKey(&row), Rev: rev, Value: raw}), func(err error) {
			if err == nil && row.Status != approval.Pending {
				b.settled(row)
			}
		})
		switch {
		case errors.Is(err, store.ErrConflict):
			continue
		case err != nil:
			return row, txn.Refusal(b.opts.Logger, err, "store approval")
		}
		if row.Status != approval.Pending {
			b.show(ctx, shownAs(&row), &row)
		}
		return row, nil
	}
}

// Load takes over the approvals that no job waits for.
func (b *Broker) Load(ctx context.Context) error {
	return b.opts.Store.Records(ctx, approval.RecordPrefix(""), "", func(rec store.Record) bool {
		var row approval.Row
		if err := arcp.Unmarshal(rec.Value, &row); err != nil {
			b.opts.Logger.Error().Err(err).Str("record", rec.Key).Msg("an approval cannot be read and is left out")
			return true
		}
		if row.Job == "" && row.Status == approval.Pending {
			b.Asked(row, "")
		}
		return true
	})
}

// EndOverdue withdraws what a session that has ended for good had asked, and
// expires what nobody has resolved in time.
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

// cancelOwned withdraws a question whose session has ended, unless its time is over.
func (b *Broker) cancelOwned(ctx context.Context, q *owned, now time.Time) error {
	who := approval.Actor{Principal: q.principal, Session: q.session}
	_, err := b.ChangeOwned(ctx, &who, q.id, func(row *approval.Row) *arcp.Error {
		if row.Status == approval.Pending {
			row.Cancel(now.UTC(), "its session has ended")
		}
		return nil
	})
	return err
}

// EndSession withdraws the questions of a session that ends, in the transaction of ctx.
func (b *Broker) EndSession(ctx context.Context, id arcp.SessionID) error {
	now := time.Now()
	for _, q := range b.owned(id) {
		if err := b.cancelOwned(ctx, &q, now); err != nil {
			return err
		}
	}
	return nil
}

// Ask stores an approval that no job waits for, in the transaction of ctx if there is one.
func (b *Broker) Ask(ctx context.Context, row approval.Row) error {
	raw, err := arcp.Marshal(row)
	if err != nil {
		return err
	}
	err = b.opts.Changes.Commit(ctx, store.NewWrite().Put(store.Record{Key: approval.RecordKey(&row), Value: raw}), func(err error) {
		if err == nil {
			b.asked(row, "")
		}
	})
	if err != nil {
		return txn.Refusal(b.opts.Logger, err, "store approval")
	}
	b.show(ctx, host.ApprovalRequested, &row)
	return nil
}
