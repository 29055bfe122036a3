package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of agents.
const (
	maxOfSession   = 1000      // agents of a session; bounds a program that registers agents in a loop
	maxOfPrincipal = 2000      // agents of a principal: all are in memory, and in every snapshot
	maxBytes       = 8 << 20   // of the rows of a principal's agents at their registration
	maxAllBytes    = 256 << 20 // of the rows of all agents
)

// Options of a Store.
type Options struct {
	Log   txn.Log
	Store store.Store
	// OnCount receives the number of agents with a status, which may be Disconnected, after each
	// change. It must not call the Store.
	OnCount  func(s Status, n int)
	Sessions Sessions
	// OnRelease is called for an agent that loses its session: it was unregistered, or the
	// session has ended. For one agent it is called by one goroutine at a time, and not
	// during a registration.
	OnRelease func(Agent)
}

// Sessions are the sessions that own agents; see session.Directory.
type Sessions interface {
	// Lives reports whether a session has not ended durably.
	Lives(id arcp.SessionID) bool
	// DeferEnd delays the end of a session until release is called, or refuses an ended session.
	DeferEnd(ctx context.Context, id arcp.SessionID) (release func(), err error)
	// AwaitEnd waits while the end of a session is being written, and reports whether the session
	// has ended durably.
	AwaitEnd(ctx context.Context, id arcp.SessionID) (ended bool, err error)
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
	return &Store{opts: o, index: &index{count: o.OnCount, principals: make(map[string]*principalState), counts: make(map[Status]int),
		away: make(map[arcp.SessionID]struct{})}}
}

// Load reads the agents of the store. It counts the live ones as Disconnected, because no session has a
// connection yet; see SetAway. It calls bad for an agent that cannot be read, and leaves it out.
func (s *Store) Load(ctx context.Context, bad func(key string, err error)) error {
	return s.table().Scan(ctx, prefix, "", func(row records.Row[Agent], err error) bool {
		if err != nil {
			bad(row.Key, err)
			return true
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if row.Value.EndedAt.IsZero() {
			s.away[row.Value.Session] = struct{}{} // no session has a connection yet
		}
		s.setLocked(row.Value.Principal, row.Value.ID, &row.Value, row.Size)
		return true
	})
}

func (s *Store) table() records.Table[Agent] { return records.Table[Agent]{Reader: s.opts.Store} }

const prefix = "host/agent/"

func key(principal, id string) string {
	return records.Group(prefix, principal) + url.PathEscape(id)
}

// decision is the result of a change of an agent.
type decision struct {
	next        *Agent // nil: it is deleted
	event       Event
	replaced    []replacement // agents that stop in the same write
	reservation *reservation  // ends with the write; nil: none
	// done, if set, receives whether the row was written. The agent's lock is held.
	done func(ok bool)
}

// txnMode selects the writes that are staged in the transaction of ctx.
type txnMode bool

const (
	ownWrite txnMode = false
	inTxn    txnMode = true
)

// change replaces an agent by the decision of decide; nil: nothing changes. After a conflict
// decide is called again with the new row. ctx bounds only the wait for the agent's lock, not the
// wait for the write. change does not wait for a staged write, which holds the lock until the
// transaction is committed.
func (s *Store) change(ctx context.Context, principal, id string, j txnMode, decide func(old *Agent) (*decision, error)) error {
	unlock, err := s.lock(ctx, principal, id)
	if err != nil {
		return err
	}
	return s.changeLocked(ctx, principal, id, j, decide, unlock)
}

// lock locks agents of a principal. The order of the ids is the order of locking for all.
func (s *Store) lock(ctx context.Context, principal string, ids ...string) (unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, release := range held {
			release()
		}
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		release, err := s.locks.lock(ctx, key(principal, id))
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, release)
	}
	return unlock, nil
}

// changeLocked is change for an agent that the caller has locked. It calls end once, when the row is
// written or will not be.
func (s *Store) changeLocked(ctx context.Context, principal, id string, j txnMode,
	decide func(old *Agent) (*decision, error), end func()) error {
	for {
		staged, err := s.changeOnce(ctx, principal, id, j, decide, end)
		if staged {
			return nil
		}
		if !errors.Is(err, store.ErrConflict) {
			end()
			return err
		}
	}
}

// changeOnce tries a change. It reports whether the write was staged; then the end of the
// transaction calls end.
func (s *Store) changeOnce(ctx context.Context, principal, id string, j txnMode,
	decide func(old *Agent) (*decision, error), end func()) (staged bool, err error) {
	row, err := s.table().Get(ctx, key(principal, id))
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
	w, withLocked, err := s.writeOf(principal, id, row, d)
	if err != nil {
		d.finish(err)
		return false, err
	}
	if t := txn.From(ctx); t != nil && j == inTxn {
		s.stageWrite(t, principal, d, w, withLocked, end)
		return true, nil
	}
	done := make(chan error, 1)
	if err = s.appendEvents(principal, d.events(), w, withLocked, func(err error) { done <- err }); err == nil {
		err = <-done
	}
	d.finish(err)
	if err != nil {
		err = fmt.Errorf("write agent: %w", err)
	}
	return false, err
}

// finish reports the outcome of the write.
func (d *decision) finish(err error) {
	if d.done != nil {
		d.done(err == nil)
	}
}

// events returns the events of the write.
func (d *decision) events() (events []Event) {
	for i := range d.replaced {
		events = append(events, d.replaced[i].event)
	}
	return append(events, d.event)
}

// writeOf returns the write that replaces a row. withLocked changes the index when the write is durable.
func (s *Store) writeOf(principal, id string, row records.Row[Agent], d *decision) (w *store.Write, withLocked func(), err error) {
	rec := row.Delete()
	if d.next != nil {
		if rec, err = row.Put(d.next); err != nil {
			return nil, nil, err
		}
	}
	w = store.NewWrite().Put(rec)
	for i := range d.replaced {
		w.Put(d.replaced[i].record)
	}
	return w, func() {
		if d.reservation != nil {
			s.releaseLocked(d.reservation)
		}
		for i := range d.replaced {
			r := &d.replaced[i]
			s.setLocked(principal, r.stopped.ID, &r.stopped, len(r.record.Value))
		}
		s.setLocked(principal, id, d.next, len(rec.Value))
	}, nil
}

// stageWrite adds a write to a transaction. end is called after the transaction.
func (s *Store) stageWrite(t *txn.Txn, principal string, d *decision, w *store.Write, withLocked, end func()) {
	events := d.events()
	t.Add(txn.Change{Write: w, Order: &s.order, Fill: func() error { return completeEvents(principal, events, w) }, Done: func(err error) {
		if err == nil {
			s.addToRing(principal, events, withLocked)
		} else if d.reservation != nil {
			s.release(d.reservation)
		}
		d.finish(err)
		end()
	}})
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

// now returns the present time with the precision of stored times.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func errNotFound(id string) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such agent: %s", id)
}

func errForeign(id string) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, "agent %s is owned by another session", id)
}

// owned reports whether an agent has an owner: a session that has not ended.
func (s *Store) owned(a *Agent) bool { return a.EndedAt.IsZero() && s.opts.Sessions.Lives(a.Session) }
