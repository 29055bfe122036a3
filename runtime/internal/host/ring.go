package host

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Kinds of events. Those of resources begin with "resource.".
const (
	AgentRegistered   = "agent.registered"
	AgentUnregistered = "agent.unregistered"
	AgentStatus       = "agent.status_changed"

	ApprovalRequested        = arcp.EventApprovalRequested
	ApprovalResolveRequested = "approval.resolve_requested"
	ApprovalResolved         = "approval.resolved"
	ApprovalExpired          = "approval.expired"
)

// Bounds of events.
const (
	MaxEvents     = 500      // of a principal that are kept
	maxRingBytes  = 4 << 20  // and what they take: the agents of a principal may be large
	maxRingsBytes = 64 << 20 // of all principals together: past it
	fairRingBytes = 16 << 10 // who adds an event keeps no more than this, or that event
	eventOverhead = 256      // bytes of an event without its texts, about
	maxEventBytes = 64 << 10
	maxBatch      = 64  // given to a subscriber at once: what is copied while others wait
	maxWatchers   = 256 // of a principal: each writes every event into a log of its own
)

const eventPrefix = "event-"

// Event is something that has happened.
type Event struct {
	ID        string    `json:"id"` // they ascend
	Timestamp time.Time `json:"timestamp"`
	Kind      string    `json:"kind"`
	AgentID   string    `json:"agent_id,omitzero"`
	Message   string    `json:"message"`
	Payload   arcp.Raw  `json:"payload"`
}

// ring is the latest durable events of a principal. They are counted from 0.
type ring struct {
	events  []Event // the oldest first
	bytes   int
	next    uint64        // the number of the event to come
	changed chan struct{} // closed at the next event; nil: nobody waits
}

func (e *Event) size() int { return eventOverhead + len(e.AgentID) + len(e.Message) + len(e.Payload) }

func (r *ring) first() uint64 { return r.next - uint64(len(r.events)) }

func (r *ring) add(e Event) {
	r.events, r.bytes, r.next = append(r.events, e), r.bytes+e.size(), r.next+1
	for len(r.events) > MaxEvents || r.bytes > maxRingBytes {
		r.drop()
	}
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// drop forgets the oldest event.
func (r *ring) drop() {
	r.bytes -= r.events[0].size()
	r.events[0] = Event{} // the array is shared with what is left
	r.events = r.events[1:]
}

// clear forgets all events; the numbers go on.
func (r *ring) clear() { r.events, r.bytes = nil, 0 }

// latest returns copies of the last events, the newest first.
func (r *ring) latest(n int) []Event {
	list := slices.Clone(r.events[max(0, len(r.events)-n):])
	slices.Reverse(list)
	return list
}

// Emit adds an event to those of a principal, as soon as it is durable. It waits
// for nobody; what is queued is bounded by who calls, after a write of their own or
// in one of a bounded number of calls. The payload, JSON or nothing, is not changed
// later; one that is too large is left out. If the store has failed, or is shut,
// there is no event.
func (h *Host) Emit(principal string, e Event) { h.EmitIn(context.Background(), principal, e) }

// EmitIn is Emit. If ctx belongs to a call, the event becomes part of the call's write.
func (h *Host) EmitIn(ctx context.Context, principal string, e Event) {
	if principal == "" {
		return
	}
	switch n := len(e.Payload); {
	case n == 0:
		e.Payload = arcp.Raw("{}")
	case n > maxEventBytes:
		e.Payload, _ = arcp.Marshal(map[string]int{"truncated_bytes": n}) // a number
	}
	w := new(store.Write)
	if t := txn.From(ctx); t != nil {
		t.Stage(txn.Change{Write: w, Order: &h.order, Fill: func() error { return fill(principal, &e, w) }, Done: func(err error) {
			if err == nil {
				h.happen(principal, e, nil)
			}
		}})
		return
	}
	if err := h.announce(principal, e, w, nil, nil); err != nil { // texts, and a payload that is JSON
		panic("host: " + err.Error())
	}
}

// announce writes an event to the feed of a principal together with what else is
// in w. When that is durable, what happens with it and the ring change at once. done
// is called when that is so, or will never be. Both may be nil, and are called by
// the committer.
func (h *Host) announce(name string, e Event, w *store.Write, withLocked func(), done func(error)) error {
	h.order.Lock()
	defer h.order.Unlock()
	if err := fill(name, &e, w); err != nil {
		return err
	}
	h.opts.Log.Append(w, func(res *store.Result) {
		if res.Err == nil {
			h.happen(name, e, withLocked)
		}
		if done != nil {
			done(res.Err)
		}
	})
	return nil
}

// fill gives an event its id and time, and a write the announcement of the event.
// Called with Host.order, which is held until the write is queued.
func fill(name string, e *Event, w *store.Write) error {
	e.ID, e.Timestamp = arcp.NewID(eventPrefix), moment()
	data, err := arcp.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	payload, err := arcp.Marshal(arcp.EventEmitPayload{Name: arcp.EventHost, Data: data})
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	w.Add(&store.Announce{Principal: name,
		Events: []*store.Event{store.NewEvent(arcp.EventEmit, e.Timestamp, new(store.Common), "", payload)}})
	return nil
}

func (h *Host) happen(name string, e Event, withLocked func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if withLocked != nil {
		withLocked()
	}
	h.addLocked(h.principalLocked(name), e)
}

func (h *Host) addLocked(p *principal, e Event) {
	before := p.ring.bytes
	p.ring.add(e)
	for h.ringBytes+p.ring.bytes-before > maxRingsBytes && p.ring.bytes > fairRingBytes && len(p.ring.events) > 1 {
		p.ring.drop()
	}
	h.ringBytes += p.ring.bytes - before
}

// Events returns the last events of a principal, the newest first.
func (h *Host) Events(principal string, n int) []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.principals[principal]; p != nil {
		return p.ring.latest(n)
	}
	return nil
}

// Snapshot is what there is when a subscription begins.
type Snapshot struct {
	Agents []Agent // sorted
	Events []Event // the newest first
}

// Subscription reads the events of a principal, at the pace of its one reader.
type Subscription struct {
	h  *Host
	p  *principal
	at uint64 // the number of the event to be read next
}

// Subscribe returns what there is, with n events at most, and a subscription to
// exactly what comes after it. It is to be closed.
func (h *Host) Subscribe(principal string, n int) (*Subscription, Snapshot, *arcp.Error) {
	s, list, refused := h.subscribe(principal, n)
	slices.SortFunc(list.Agents, Compare)
	return s, list, refused
}

func (h *Host) subscribe(principal string, n int) (*Subscription, Snapshot, *arcp.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.principalLocked(principal)
	if p.watchers >= maxWatchers {
		return nil, Snapshot{}, arcp.Errorf(arcp.CodeResourceExhausted, "%s has %d subscriptions to its host already; cancel some", principal, maxWatchers).RetryAfter(1)
	}
	p.watchers++
	p.users++
	return &Subscription{h, p, p.ring.next}, Snapshot{p.list(), p.ring.latest(n)}, nil
}

// Next waits for events and returns those there are, a batch at most. What the
// ring has lost since is skipped and counted; the events follow it.
func (s *Subscription) Next(ctx context.Context) (events []Event, skipped uint64, err error) {
	for {
		events, skipped, changed := s.take()
		if len(events) > 0 {
			return events, skipped, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

func (s *Subscription) take() (events []Event, skipped uint64, changed <-chan struct{}) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	r := &s.p.ring
	if s.at == r.next {
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		return nil, 0, r.changed
	}
	if first := r.first(); s.at < first {
		skipped, s.at = first-s.at, first
	}
	i := int(s.at - r.first())
	events = slices.Clone(r.events[i:min(i+maxBatch, len(r.events))])
	s.at += uint64(len(events))
	return events, skipped, nil
}

// Close ends the subscription. It is called once, by its reader.
func (s *Subscription) Close() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.p.watchers--
	s.p.users--
}
