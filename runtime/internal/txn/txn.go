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

// Change is a write and what follows from it in memory.
type Change struct {
	Write *store.Write // nil: nothing changes in the store

	// Order, if set, is held while Fill completes the Write and the Write is appended.
	// The changes of one transaction have the same Order, or none.
	Order sync.Locker
	Fill  func() error

	// Done, if set, is called once: with nil on the committer's goroutine when the write is
	// durable, before anything of it is delivered, or with the reason why it is not going
	// to happen. It must not block.
	Done func(error)
}

// Txn is a list of staged changes. It belongs to one goroutine; only Settle may be called
// by the committer's. The zero value is an empty transaction.
type Txn struct{ staged []Change }

type key struct{}

// With returns a context whose changes are staged in t.
func With(ctx context.Context, t *Txn) context.Context { return context.WithValue(ctx, key{}, t) }

// From returns the transaction of ctx, nil if there is none.
func From(ctx context.Context) *Txn {
	t, _ := ctx.Value(key{}).(*Txn)
	return t
}

// Stage adds a change. No two changes of a transaction may be of the same record. The
// transaction may be abandoned and run again from the start, if a record was changed by
// others meanwhile.
func (t *Txn) Stage(c Change) { t.staged = append(t.staged, c) }

// Settle calls Done of all staged changes with err, and forgets the changes.
func (t *Txn) Settle(err error) {
	staged := t.staged
	t.staged = nil
	for _, c := range staged {
		if c.Done != nil {
			c.Done(err)
		}
	}
}

// Join makes one write of the staged writes and, behind them, own. The end of a session
// is last of all: own may be an event of that session. at is where own is in With of the
// returned write; -1: it is the returned write. A nil own adds nothing.
func (t *Txn) Join(own *store.Write) (w *store.Write, at int) {
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

// Log is where writes are appended.
type Log interface {
	// Append queues a write. done is called on the committer's goroutine when it is
	// durable, or will not be.
	Append(w *store.Write, done func(*store.Result))
}

// Append appends the write that Join returned. Changes with an Order are completed in it.
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

// ErrorOf returns why a write that Join returned was refused, joined with the errors of
// the writes that it happens with; nil: it is durable.
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

// Committer commits writes: in the transaction of the context if there is one, and else
// by themselves.
type Committer struct{ Log Log }

// Commit stages a write in the transaction of ctx and returns nil, or makes it durable.
// done is called once, on the committer's goroutine, when the write is durable or will
// not be. It must not block. When ctx ends first the write may happen all the same. A nil
// write changes nothing in the store.
func (c Committer) Commit(ctx context.Context, w *store.Write, done func(error)) error {
	if t := From(ctx); t != nil {
		t.Stage(Change{Write: w, Done: done})
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

// Refusal returns what the caller of a tool is told of an error while something was
// read or stored: an *arcp.Error as it is, CANCELLED if the call was cancelled, and
// UNAVAILABLE for an error of the store, which is logged.
func Refusal(log zerolog.Logger, err error, what string) *arcp.Error {
	if e, ok := errors.AsType[*arcp.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) {
		return arcp.Errorf(arcp.CodeCancelled, "%s: cancelled", what)
	}
	log.Error().Err(err).Msg(what)
	return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be used")
}
