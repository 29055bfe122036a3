package questions

import (
	"context"
	"time"

	"github.com/RaduBerinde/btreemap"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// SessionApprovals asks and ends the approvals that no job waits for. Such an approval belongs to the
// session that asks it, and ends with the session.
type SessionApprovals struct{ *Broker }

// SessionApprovals returns the approvals without a job.
func (b *Broker) SessionApprovals() SessionApprovals { return SessionApprovals{b} }

// snapshot returns the questions without a job that are pending now.
func (sa SessionApprovals) snapshot() *approvalTree {
	sa.mu.Lock()
	defer sa.mu.Unlock()
	return sa.pending.approvals.Clone()
}

// Change changes an approval that no job waits for. change is called again if another goroutine
// has changed the row meanwhile.
func (sa SessionApprovals) Change(ctx context.Context, actor *approval.Actor, id string,
	change func(*approval.Row) *arcp.Error) (q approval.Row, err error) {
	err = records.Retry(func() error {
		row, err := sa.read(ctx, actor, id)
		q = row.Value
		if err != nil {
			return err
		}
		if refused := change(&q); refused != nil {
			return refused
		}
		return sa.commit(ctx, row, q, func(err error) {
			if err == nil && q.Status != approval.Pending {
				sa.remove(q)
			}
		})
	})
	if err == nil && q.Status != approval.Pending {
		sa.emitChange(ctx, eventKind(&q), &q)
	}
	return q, sa.refusal(err)
}

// Ask stores an approval that no job waits for, in the transaction of ctx if there is one.
func (sa SessionApprovals) Ask(ctx context.Context, q approval.Row) error {
	release, err := sa.opts.Sessions.DeferEnd(ctx, q.Session)
	if err != nil {
		return sa.refusal(err)
	}
	err = sa.commit(ctx, records.Row[approval.Row]{Key: approval.RecordKey(&q)}, q, func(err error) {
		if err == nil {
			sa.asked(q, "")
		}
		release()
	})
	if err == nil {
		sa.emitChange(ctx, agents.ApprovalRequested, &q)
	}
	return sa.refusal(err)
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
func (sa SessionApprovals) Load(ctx context.Context) error {
	return sa.table().Scan(ctx, approval.RecordPrefix(""), "", func(row records.Row[approval.Row], bad error) bool {
		if bad != nil {
			sa.opts.Logger.Error().Err(bad).Str("record", row.Key).Msg("an approval cannot be read and is left out")
		} else if q := row.Value; q.Job == "" && q.Status == approval.Pending {
			sa.Asked(q, "")
		}
		return true
	})
}

// EndOverdue cancels the approvals of sessions that have ended, and expires the approvals that
// are unresolved at their deadline.
func (sa SessionApprovals) EndOverdue(ctx context.Context, now time.Time) {
	for key, q := range sa.snapshot().Ascend(btreemap.Min[approvalKey](), btreemap.Max[approvalKey]()) {
		if sa.opts.Sessions.Lives(key.session) && now.Before(q.Row.ExpiresAt) {
			continue
		}
		if err := sa.cancel(ctx, &q.Row, now); err != nil && ctx.Err() == nil {
			sa.opts.Logger.Error().Err(err).Str("approval_id", key.id).Msg("end an approval")
		}
	}
}

// cancel cancels a question of a session that has ended, unless it has expired.
func (sa SessionApprovals) cancel(ctx context.Context, q *approval.Row, now time.Time) error {
	actor := approval.Actor{Principal: q.Principal, Session: q.Session}
	_, err := sa.Change(ctx, &actor, q.ID, func(row *approval.Row) *arcp.Error {
		if row.Status == approval.Pending {
			row.Cancel(now.UTC(), "its session has ended")
		}
		return nil
	})
	return err
}

// EndSession cancels the questions of a session that ends, in the transaction of ctx.
func (sa SessionApprovals) EndSession(ctx context.Context, id arcp.SessionID) error {
	now := time.Now()
	for key, q := range sa.snapshot().Ascend(btreemap.GE(approvalKey{session: id}), btreemap.Max[approvalKey]()) {
		if key.session != id {
			break
		}
		if err := sa.cancel(ctx, &q.Row, now); err != nil {
			return err
		}
	}
	return nil
}
