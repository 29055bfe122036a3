package runtime

import (
	"context"
	"sync"

	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
)

// changes commits what built-in tools change: together with the call of the tool if
// ctx belongs to one, and else by itself.
type changes struct{ log *eventlog.Log }

func (r *Runtime) changes() changes { return changes{r.log} }

// Commit makes a write part of the call that ctx belongs to, and returns nil; or it
// makes the write durable. done is called once, on the committer's goroutine, when the
// write is durable or will not be. It must not block. When ctx ends first the write may
// happen all the same. A nil write changes nothing in the store.
func (c changes) Commit(ctx context.Context, w *store.Write, done func(error)) error {
	if call := engine.CallOf(ctx); call != nil {
		call.Stage(engine.Change{Write: w, Done: done})
		return nil
	}
	if w == nil {
		done(nil)
		return nil
	}
	result := make(chan error, 1)
	c.log.Append(w, func(res *store.Result) {
		done(res.Err)
		result <- res.Err
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join is host.Options.Join.
func (c changes) join(ctx context.Context, w *store.Write, order sync.Locker, fill func() error, done func(error)) bool {
	call := engine.CallOf(ctx)
	if call != nil {
		call.Stage(engine.Change{Write: w, Order: order, Fill: fill, Done: done})
	}
	return call != nil
}
