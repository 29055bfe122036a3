package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of agents.
const (
	maxOfSession   = 1000      // agents: a program that makes them in a loop is found out
	maxOfPrincipal = 2000      // agents: all are in memory, and in every snapshot
	maxBytes       = 8 << 20   // of the rows of a principal's agents when they are registered
	maxAllBytes    = 256 << 20 // of all principals
)

// Options of a Store.
type Options struct {
	Log   txn.Log
	Store store.Store
	// Count receives the number of agents with a status after each change. It must not call
	// the Store.
	Count func(s Status, n int)
	// Lives reports whether a session has not ended.
	Lives func(arcp.SessionID) bool
	// Released is called for an agent that loses its session: it was unregistered, or the
	// session has ended. For one agent it is called by one goroutine at a time, and not
	// during a registration.
	Released func(Agent)
}

// Store has the agents and events of all principals. Its methods may be called by any goroutine.
type Store struct {
	*index
	opts  Options
	locks keyLock // by key: one goroutine at a time changes an agent

	// order is held while an event gets its id and is queued, so that ids ascend in the
	// order of the commits. Its holder does not block.
	order sync.Mutex
}

// NewStore returns a Store without agents.
func NewStore(o Options) *Store {
	return &Store{opts: o, index: &index{count: o.Count, principals: make(map[string]*principal), sessions: make(map[arcp.SessionID]*owner), counts: make(map[Status]int)}}
}

// Load reads the agents of the store. It calls bad for an agent that cannot be read, and leaves
// it out.
func (h *Store) Load(ctx context.Context, bad func(key string, err error)) error {
	return h.table().Scan(ctx, prefix, "", func(row records.Row[Agent], err error) bool {
		if err != nil {
			bad(row.Key, err)
			return true
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.setLocked(row.Value.Principal, row.Value.ID, &row.Value, row.Size)
		return true
	})
}

func (h *Store) table() records.Table[Agent] { return records.Table[Agent]{Reader: h.opts.Store} }

const prefix = "host/agent/"

func key(principal, id string) string {
	return records.Group(prefix, principal) + url.PathEscape(id)
}

// decision is the result of a change of an agent.
type decision struct {
	next  *Agent // nil: it is deleted
	event Event
	space *reservation // ends with the write; nil: none
	// done, if set, receives whether the row was written. The agent's lock is held.
	done func(ok bool)
}

// joins selects the writes that are staged in the transaction of ctx.
type joins bool

const (
	alone  joins = false
	joined joins = true
)

// change replaces an agent by the decision of decide; nil: nothing changes. After a conflict
// decide is called again with the new row. ctx bounds only the wait for the agent's lock: a
// write that has begun is waited for. A staged write is not waited for: the lock is held until
// the transaction is committed.
func (h *Store) change(ctx context.Context, name, id string, j joins, decide func(old *Agent) (*decision, error)) error {
	_, err := h.changeIn(ctx, name, id, j, decide)
	return err
}

// changeIn is change. It reports whether the write was staged.
func (h *Store) changeIn(ctx context.Context, name, id string, j joins, decide func(old *Agent) (*decision, error)) (waits bool, err error) {
	unlock, err := h.locks.lock(ctx, key(name, id))
	if err != nil {
		return false, err
	}
	for {
		waits, err = h.changeOnce(ctx, name, id, j, decide, unlock)
		switch {
		case waits:
			return true, nil
		case !errors.Is(err, store.ErrConflict):
			unlock()
			return false, err
		}
	}
}

// changeOnce tries a change. It reports whether the write was staged; then the end of the
// transaction calls unlock.
func (h *Store) changeOnce(ctx context.Context, name, id string, j joins, decide func(old *Agent) (*decision, error), unlock func()) (waits bool, err error) {
	row, err := h.table().Get(ctx, key(name, id))
	if err != nil {
		return false, fmt.Errorf("read agent: %w", err)
	}
	var old *Agent
	if row.Rev != 0 {
		old = &row.Value
	}
	d, err := decide(old)
	if d == nil || err != nil {
		return false, err
	}
	w, withLocked, err := h.writeOf(name, id, row, d)
	if err != nil {
		if d.done != nil {
			d.done(false)
		}
		return false, err
	}
	if j == joined && h.join(ctx, name, d, w, withLocked, unlock) {
		return true, nil
	}
	done := make(chan error, 1)
	if err = h.announce(name, d.event, w, withLocked, func(err error) { done <- err }); err == nil {
		err = <-done
	}
	if d.done != nil {
		d.done(err == nil)
	}
	if err != nil {
		err = fmt.Errorf("write agent: %w", err)
	}
	return false, err
}

// writeOf returns the write that replaces a row, and the change of the index when it is durable.
func (h *Store) writeOf(name, id string, row records.Row[Agent], d *decision) (w *store.Write, withLocked func(), err error) {
	rec := row.Delete()
	if d.next != nil {
		if rec, err = row.Put(d.next); err != nil {
			return nil, nil, err
		}
	}
	return store.NewWrite().Put(rec), func() {
		if d.space != nil {
			h.releaseLocked(d.space)
		}
		h.setLocked(name, id, d.next, len(rec.Value))
	}, nil
}

// join stages a write in the transaction of ctx. It returns false if there is none.
func (h *Store) join(ctx context.Context, name string, d *decision, w *store.Write, withLocked, unlock func()) bool {
	t := txn.From(ctx)
	if t == nil {
		return false
	}
	e := d.event
	t.Add(txn.Change{Write: w, Order: &h.order, Fill: func() error { return fill(name, &e, w) }, Done: func(err error) {
		if err == nil {
			h.happen(name, e, withLocked)
		} else if d.space != nil {
			h.release(d.space)
		}
		if d.done != nil {
			d.done(err == nil)
		}
		unlock()
		if d.next != nil && err == nil && d.next.EndedAt.IsZero() && !h.opts.Lives(d.next.Session) { // the session has ended meanwhile, without this agent
			go h.EndSession(context.Background(), d.next.Session) //nolint:errcheck // Sweep ends the remaining agents
		}
	}})
	return true
}

// eventOf returns an event of an agent. The default payload is the agent.
func eventOf(kind string, a *Agent, message string, payload arcp.Raw) (Event, error) {
	if len(payload) == 0 {
		var err error
		if payload, err = arcp.Marshal(a); err != nil {
			return Event{}, fmt.Errorf("encode agent: %w", err)
		}
	}
	return Event{Kind: kind, AgentID: a.ID, Message: cmp.Or(message, fmt.Sprintf("%s is %s", a.Name, a.Status)), Payload: payload}, nil
}

func moment() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func notFound(id string) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such agent: %s", id)
}

func foreign(id string) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, "agent %s is owned by another session", id)
}

// owned reports whether an agent has an owner: a session that has not ended.
func (h *Store) owned(a *Agent) bool { return a.EndedAt.IsZero() && h.opts.Lives(a.Session) }
