// Package txn collects the changes of several packages into one commit of the store.
//
// The code that runs in a transaction finds it in its context and stages changes. The
// owner of the transaction appends all of them as one write, or abandons them. Code that
// runs without a transaction commits by itself; see Committer.
package txn

import (
	"context"
	"errors"
	"sync"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Change is a write and its effect in memory.
type Change struct {
	Write *store.Write // nil: nothing changes in the store

	// Order, if set, is held while Fill completes the Write and the Write is appended.
	// The changes of a transaction must have the same Order, or none.
	Order sync.Locker
	Fill  func() error

	// Done, if set, is called once: with nil, on the committer's goroutine, when the write
	// is durable and before its events are delivered, or with the error that prevents the
	// write. It must not block.
	Done func(error)
}

// Txn is a list of staged changes. It belongs to one goroutine; the committer may call
// Finish. The zero value is an empty transaction.
type Txn struct{ staged []Change }

type key struct{}

// With returns a context whose changes are staged in t.
func With(ctx context.Context, t *Txn) context.Context { return context.WithValue(ctx, key{}, t) }

// From returns the transaction of ctx, nil if there is none.
func From(ctx context.Context) *Txn {
	t, _ := ctx.Value(key{}).(*Txn)
	return t
}

// Add adds a change. Two changes of a transaction must not write the same record. The
// transaction may be abandoned and run again from the start, if another writer changed a
// record meanwhile.
func (t *Txn) Add(c Change) { t.staged = append(t.staged, c) }

// Finish calls Done of all staged changes with err, and drops the changes.
func (t *Txn) Finish(err error) {
	staged := t.staged
	t.staged = nil
	for _, c := range staged {
		if c.Done != nil {
			c.Done(err)
		}
	}
}

// Combine combines the staged writes, and own after them, into one write. The end of a session
// comes last: own may append an event to the log of that session. at is the index of own
// in With of the returned write; -1: own is the returned write. own may be nil.
func (t *Txn) Combine(own *store.Write) (w *store.Write, at int) {
	var with []*store.Write
	w, at = own, -1
	for _, c := range t.staged {
		switch {
		case c.Write == nil:
		case store.Find[*store.EndSession](c.Write) != nil:
			w = c.Write
		default:
			with = append(with, c.Write)
		}
	}
	if w != own && own != nil {
		at = len(with)
		with = append(with, own)
	}
	w.With = with
	return w, at
}

// Log appends writes; see eventlog.Log.
type Log interface {
	// Append queues a write. done is called on the committer's goroutine when the write is
	// durable or refused.
	Append(w *store.Write, done func(*store.Result))
}

// Append appends the write that Combine returned. It completes the changes with Fill.
func (t *Txn) Append(log Log, w *store.Write, done func(*store.Result)) {
	var order sync.Locker
	for _, c := range t.staged {
		if c.Order != nil && order == nil {
			order = c.Order
			order.Lock()
			defer order.Unlock()
		}
		if c.Fill != nil {
			if err := c.Fill(); err != nil {
				done(&store.Result{Err: err, With: make([]store.Result, len(w.With))})
				return
			}
		}
	}
	log.Append(w, done)
}

// ErrorOf returns the error of a write that Combine returned, joined with the errors of the
// writes in its With; nil: the write is durable.
func ErrorOf(res *store.Result) error {
	if !errors.Is(res.Err, store.ErrTogether) {
		return res.Err
	}
	errs := []error{store.ErrTogether}
	for i := range res.With {
		errs = append(errs, res.With[i].Err)
	}
	return errors.Join(errs...)
}

// Committer commits writes in the transaction of the context, or alone if there is none.
type Committer struct{ Log Log }

// Commit stages a write in the transaction of ctx and returns nil, or makes it durable.
// done is called once, on the committer's goroutine, when the write is durable or refused.
// It must not block. When ctx ends first the write may still happen. A nil write
// changes nothing in the store.
func (c Committer) Commit(ctx context.Context, w *store.Write, done func(error)) error {
	if t := From(ctx); t != nil {
		t.Add(Change{Write: w, Done: done})
		return nil
	}
	if w == nil {
		done(nil)
		return nil
	}
	result := make(chan error, 1)
	c.Log.Append(w, func(res *store.Result) {
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

// Refusal converts an error of a read or a write to the error of a tool. It returns an *arcp.Error
// unchanged, CANCELLED if the call was cancelled, and UNAVAILABLE for an error of the store, which
// it logs with the name of the operation.
func Refusal(log zerolog.Logger, err error, operation string) *arcp.Error {
	if e, ok := errors.AsType[*arcp.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) {
		return arcp.Errorf(arcp.CodeCancelled, "%s: cancelled", operation)
	}
	log.Error().Err(err).Msg(operation)
	return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be used")
}
