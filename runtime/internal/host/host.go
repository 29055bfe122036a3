package host

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
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of agents.
const (
	maxOfSession   = 1000      // agents: a program that makes them in a loop is found out
	maxOfPrincipal = 2000      // agents: all are in memory, and in every snapshot
	maxBytes       = 8 << 20   // of the rows of a principal's agents when they are registered
	maxAllBytes    = 256 << 20 // of everybody's
)

// Log takes writes to the store; see eventlog.Log.
type Log interface {
	Append(w *store.Write, done func(*store.Result))
}

// Options of a Host.
type Options struct {
	Log   Log
	Store store.Store
	// Count is told how many agents have a status, in the order of the changes. It
	// must not call the Host.
	Count func(s Status, n int)
	// Lives reports whether a session has not ended for good.
	Lives func(arcp.SessionID) bool
	// Released is told of an agent that its session has no more: it was
	// unregistered, or the session has ended. For one agent it is called by one
	// goroutine at a time, and not while it is being registered.
	Released func(Agent)
}

// Host is the agents and events of all principals. Its methods may be called by
// many goroutines.
type Host struct {
	opts Options

	// order is held while an event is given its id and queued: ids ascend in the
	// order of the commits. Nobody who waits for anything has it.
	order sync.Mutex

	mu         sync.Mutex
	principals map[string]*principal
	sessions   map[arcp.SessionID]*owner
	counts     map[Status]int
	bytes      int // of all principals, those of agents that are being registered too
	ringBytes  int // of all events
	turns      map[string]*turn
}

// principal is what belongs to one. Guarded by Host.mu.
type principal struct {
	agents map[string]sizedAgent // by id, as they were committed
	bytes  int
	ring   ring

	coming, comingBytes int // agents that are being registered
	watchers            int
	users               int // of both: it is not to be dropped
}

// sizedAgent is an agent with the size of its row.
type sizedAgent struct {
	Agent
	size int
}

// owner is a session with agents, or with some that are being registered.
type owner struct {
	principal string
	agents    map[string]struct{}
	coming    int
}

// New returns a Host without agents.
func New(o Options) *Host {
	return &Host{opts: o, principals: make(map[string]*principal), sessions: make(map[arcp.SessionID]*owner), counts: make(map[Status]int),
		turns: make(map[string]*turn)}
}

// Load takes over the agents of the store. One that cannot be read is left out,
// and bad is told.
func (h *Host) Load(ctx context.Context, bad func(key string, err error)) error {
	return h.opts.Store.Records(ctx, prefix, "", func(rec store.Record) bool {
		var a Agent
		if err := arcp.Unmarshal(rec.Value, &a); err != nil {
			bad(rec.Key, err)
			return true
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.setLocked(a.Principal, a.ID, &a, len(rec.Value))
		return true
	})
}

const prefix = "host/agent/"

func key(principal, id string) string {
	return prefix + url.PathEscape(principal) + "/" + url.PathEscape(id)
}

func (h *Host) principalLocked(name string) *principal {
	p := h.principals[name]
	if p == nil {
		p = &principal{agents: make(map[string]sizedAgent)}
		h.principals[name] = p
	}
	return p
}

func (h *Host) ownerLocked(a *Agent) *owner {
	o := h.sessions[a.Session]
	if o == nil {
		o = &owner{principal: a.Principal, agents: make(map[string]struct{})}
		h.sessions[a.Session] = o
	}
	return o
}

func (h *Host) idleOwnerLocked(id arcp.SessionID) {
	if o := h.sessions[id]; o != nil && o.coming == 0 && len(o.agents) == 0 {
		delete(h.sessions, id)
	}
}

// setLocked makes an agent what it is in the store; nil: it is not there.
func (h *Host) setLocked(name, id string, a *Agent, size int) {
	p := h.principalLocked(name)
	if old, ok := p.agents[id]; ok {
		p.bytes -= old.size
		h.bytes -= old.size
		delete(p.agents, id)
		if o := h.sessions[old.Session]; o != nil {
			delete(o.agents, id)
			h.idleOwnerLocked(old.Session)
		}
		h.countLocked(old.Status, -1)
	}
	if a == nil {
		return
	}
	p.bytes += size
	h.bytes += size
	p.agents[id] = sizedAgent{*a, size}
	if a.EndedAt.IsZero() {
		h.ownerLocked(a).agents[id] = struct{}{}
	}
	h.countLocked(a.Status, 1)
}

func (h *Host) countLocked(s Status, d int) {
	h.counts[s] += d
	h.opts.Count(s, h.counts[s])
}

// Agents returns the agents of a principal, by name, then id.
func (h *Host) Agents(name string) []Agent {
	h.mu.Lock()
	var list []Agent
	if p := h.principals[name]; p != nil {
		list = p.list()
	}
	h.mu.Unlock()
	slices.SortFunc(list, Compare) // nobody waits for that
	return list
}

func (p *principal) list() []Agent {
	list := make([]Agent, 0, len(p.agents))
	for _, k := range p.agents {
		list = append(list, k.Agent)
	}
	return list
}

// All returns the agents of everybody that are owned by a session.
func (h *Host) All() (list []Agent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.principals {
		for _, k := range p.agents {
			if k.EndedAt.IsZero() {
				list = append(list, k.Agent)
			}
		}
	}
	return list
}

// turn lets one goroutine at a time change an agent.
type turn struct {
	c chan struct{} // buffered 1: full while it is somebody's
	n int           // who has it or waits; guarded by Host.mu
}

// turnOf waits until nobody else changes the agent.
func (h *Host) turnOf(ctx context.Context, key string) (over func(), err error) {
	h.mu.Lock()
	t := h.turns[key]
	if t == nil {
		t = &turn{c: make(chan struct{}, 1)}
		h.turns[key] = t
	}
	t.n++
	h.mu.Unlock()
	leave := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if t.n--; t.n == 0 {
			delete(h.turns, key)
		}
	}
	select {
	case t.c <- struct{}{}:
		return func() { <-t.c; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// decision is what becomes of an agent.
type decision struct {
	next  *Agent // nil: it is deleted
	event Event
	room  *room // given back as the agent comes, or does not
	// settle, if set, is told whether the row could be written, in the agent's turn.
	settle func(ok bool)
}

// joins says which writes become part of the call that their ctx belongs to.
type joins bool

const (
	alone  joins = false
	joined joins = true
)

// change has an agent become what decide makes of it; nil of both: nothing. The
// row that decide sees is the one that is replaced: where it has changed
// meanwhile, in another process, decide is asked again. ctx ends the wait for the
// agent's turn only: what is being written is waited for. A write that has joined a
// call is not waited for: the agent's turn lasts until the call is committed.
func (h *Host) change(ctx context.Context, name, id string, j joins, decide func(old *Agent) (*decision, error)) error {
	_, err := h.changeIn(ctx, name, id, j, decide)
	return err
}

// changeIn is change. It reports whether the write has joined a call.
func (h *Host) changeIn(ctx context.Context, name, id string, j joins, decide func(old *Agent) (*decision, error)) (waits bool, err error) {
	over, err := h.turnOf(ctx, key(name, id))
	if err != nil {
		return false, err
	}
	for {
		waits, err = h.changeOnce(ctx, name, id, j, decide, over)
		switch {
		case waits:
			return true, nil
		case !errors.Is(err, store.ErrConflict):
			over()
			return false, err
		}
	}
}

// changeOnce tries a change. It reports whether the write has joined a call, which
// calls over.
func (h *Host) changeOnce(ctx context.Context, name, id string, j joins, decide func(old *Agent) (*decision, error), over func()) (waits bool, err error) {
	rec, err := h.opts.Store.Get(ctx, key(name, id))
	if err != nil {
		return false, fmt.Errorf("read agent: %w", err)
	}
	var old *Agent
	if rec.Rev != 0 {
		old = new(Agent)
		if err := arcp.Unmarshal(rec.Value, old); err != nil {
			return false, fmt.Errorf("read agent %s: %w", rec.Key, err)
		}
	}
	d, err := decide(old)
	if d == nil || err != nil {
		return false, err
	}
	w, withLocked, err := h.writeOf(name, id, rec, d)
	if err != nil {
		if d.settle != nil {
			d.settle(false)
		}
		return false, err
	}
	if j == joined && h.join(ctx, name, d, w, withLocked, over) {
		return true, nil
	}
	done := make(chan error, 1)
	if err = h.announce(name, d.event, w, withLocked, func(err error) { done <- err }); err == nil {
		err = <-done
	}
	if d.settle != nil {
		d.settle(err == nil)
	}
	if err != nil {
		err = fmt.Errorf("write agent: %w", err)
	}
	return false, err
}

// writeOf is the write that replaces a row, and what happens in memory when it is
// durable: in the order of the commits.
func (h *Host) writeOf(name, id string, old store.Record, d *decision) (w *store.Write, withLocked func(), err error) {
	var raw arcp.Raw
	if d.next != nil {
		if raw, err = arcp.Marshal(d.next); err != nil {
			return nil, nil, fmt.Errorf("encode agent: %w", err)
		}
	}
	w = store.NewWrite().Put(store.Record{Key: old.Key, Rev: old.Rev, Value: raw})
	return w, func() {
		if d.room != nil {
			h.giveBackLocked(d.room)
		}
		h.setLocked(name, id, d.next, len(raw))
	}, nil
}

// join makes a write part of a call, if ctx belongs to one.
func (h *Host) join(ctx context.Context, name string, d *decision, w *store.Write, withLocked, over func()) bool {
	t := txn.From(ctx)
	if t == nil {
		return false
	}
	e := d.event
	t.Stage(txn.Change{Write: w, Order: &h.order, Fill: func() error { return fill(name, &e, w) }, Done: func(err error) {
		if err == nil {
			h.happen(name, e, withLocked)
		} else if d.room != nil {
			h.giveBack(d.room)
		}
		if d.settle != nil {
			d.settle(err == nil)
		}
		over()
		if d.next != nil && err == nil && d.next.EndedAt.IsZero() && !h.opts.Lives(d.next.Session) { // it ended meanwhile, and the agent was not seen then
			go h.EndSession(context.Background(), d.next.Session) //nolint:errcheck // Sweep does what fails
		}
	}})
	return true
}

// eventOf is an event that shows the agent, unless there is something else to
// show.
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
func (h *Host) owned(a *Agent) bool { return a.EndedAt.IsZero() && h.opts.Lives(a.Session) }
