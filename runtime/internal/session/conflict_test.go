package session

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// conflictingLog refuses the first write that ends a session with a conflict.
type conflictingLog struct{ writes []*store.Write }

func (l *conflictingLog) Append(w *store.Write, done func(*store.Result)) {
	if store.Find[*store.EndSession](w) == nil {
		done(&store.Result{})
		return
	}
	l.writes = append(l.writes, w)
	if len(l.writes) > 1 {
		done(&store.Result{})
		return
	}
	done(&store.Result{Err: store.ErrTogether, With: []store.Result{{Err: store.ErrConflict}}})
}

func (l *conflictingLog) Forget(arcp.SessionID) {}

func stageRecord(ctx context.Context, log Log, key string) error {
	return txn.Committer{Log: log}.Commit(ctx, store.NewWrite().Put(store.Record{Key: key}), func(error) {})
}
