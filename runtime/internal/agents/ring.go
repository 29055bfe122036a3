package agents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Kinds of events. The kind of a resource event begins with "resource.".
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
	MaxEvents        = 500      // of a principal
	maxRingBytes     = 4 << 20  // of the events of a principal: an event may have a large agent
	maxRingsBytes    = 64 << 20 // of the events of all principals; then a principal that adds one
	fairRingBytes    = 16 << 10 // has at most this many bytes, or only the new event
	eventOverhead    = 256      // approximate bytes of an event without its texts
	maxEventBytes    = 64 << 10
	maxBatch         = 64  // events that Next returns; they are copied under the lock
	maxSubscriptions = 256 // subscriptions of a principal; each writes all events to its own log
)

const eventPrefix = "event-"

// Event is an event of a principal.
type Event struct {
	ID        string    `json:"id"` // ids ascend
	Timestamp time.Time `json:"timestamp"`
	Kind      string    `json:"kind"`
	AgentID   string    `json:"agent_id,omitzero"`
	Message   string    `json:"message"`
	Payload   arcp.Raw  `json:"payload"`
}

// ring has the latest durable events of a principal. Events are numbered from 0.
type ring struct {
	events  []Event // the oldest first
	bytes   int
	next    uint64        // number of the next event
	changed chan struct{} // closed at the next event; nil: no subscriber waits
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

// drop deletes the oldest event.
func (r *ring) drop() {
	r.bytes -= r.events[0].size()
	r.events[0] = Event{} // the array stays in use
	r.events = r.events[1:]
}

// clear deletes all events. The numbering continues.
func (r *ring) clear() { r.events, r.bytes = nil, 0 }

// latest returns copies of the last events, the newest first.
func (r *ring) latest(n int) []Event {
	list := slices.Clone(r.events[max(0, len(r.events)-n):])
	slices.Reverse(list)
	return list
}

// Emit adds an event to a principal when the event is durable. It does not block. Callers bound the
// queue: they emit after a write of their own, or in a bounded number of calls. The payload is JSON
// or nil and must not change after the call. A payload over maxEventBytes is replaced by its size.
// If the store has failed, the event is lost.
func (s *Store) Emit(principal string, e Event) { s.EmitIn(context.Background(), principal, e) }

// Announce emits the status of an agent, as a has it, without a change of the agent.
func (s *Store) Announce(a Agent) {
	e, err := eventOf(AgentStatus, &a, "", nil)
	if err != nil { // it was decoded
		panic("agents: " + err.Error())
	}
	s.Emit(a.Principal, e)
}

// EmitIn is Emit, in the transaction of ctx if there is one.
func (s *Store) EmitIn(ctx context.Context, principal string, e Event) {
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
	events := []Event{e}
	if t := txn.From(ctx); t != nil {
		t.Add(txn.Change{Write: w, Order: &s.order, Fill: func() error { return completeEvents(principal, events, w) }, Done: func(err error) {
			if err == nil {
				s.addToRing(principal, events, nil)
			}
		}})
		return
	}
	if err := s.appendEvents(principal, events, w, nil, nil); err != nil { // texts, and a payload that is JSON
		panic("agents: " + err.Error())
	}
}

// appendEvents adds events to a write and appends it. When the write is durable, withLocked and the
// ring change the index together. done receives the result. Both may be nil; they run on the
// committer's goroutine.
func (s *Store) appendEvents(principal string, events []Event, w *store.Write, withLocked func(), done func(error)) error {
	s.order.Lock()
	defer s.order.Unlock()
	if err := completeEvents(principal, events, w); err != nil {
		return err
	}
	s.opts.Log.Append(w, func(res *store.Result) {
		if res.Err == nil {
			s.addToRing(principal, events, withLocked)
		}
		if done != nil {
			done(res.Err)
		}
	})
	return nil
}

// completeEvents sets the ids and times of events and adds their announcement to a write. The caller
// holds Store.order until the write is queued.
func completeEvents(principal string, events []Event, w *store.Write) error {
	announce := &store.Announce{Principal: principal}
	for i := range events {
		e := &events[i]
		e.ID, e.Timestamp = arcp.NewID(eventPrefix), now()
		data, err := arcp.Marshal(e)
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		payload, err := arcp.Marshal(arcp.EventEmitPayload{Name: arcp.EventHost, Data: data})
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		announce.Events = append(announce.Events, store.NewEvent(arcp.EventEmit, e.Timestamp, new(store.JobContext), "", payload))
	}
	w.Add(announce)
	return nil
}

// Snapshot is the state at the start of a subscription.
type Snapshot struct {
	Agents []Agent // sorted
	Events []Event // the newest first
}

// Subscription reads the events of a principal at the pace of its one reader.
type Subscription struct {
	index     *index
	principal *principalState
	next      uint64 // number of the next event to read
}

// Next waits for events and returns at most maxBatch of them. skipped is the number of events
// before them that the ring has dropped.
func (s *Subscription) Next(ctx context.Context) (events []Event, skipped uint64, err error) {
	for {
		events, skipped, changed := s.poll()
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

func (s *Subscription) poll() (events []Event, skipped uint64, changed <-chan struct{}) {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	r := &s.principal.ring
	if s.next == r.next {
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		return nil, 0, r.changed
	}
	if first := r.first(); s.next < first {
		skipped, s.next = first-s.next, first
	}
	i := int(s.next - r.first())
	events = slices.Clone(r.events[i:min(i+maxBatch, len(r.events))])
	s.next += uint64(len(events))
	return events, skipped, nil
}

// Close ends the subscription. The reader calls it once.
func (s *Subscription) Close() {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.principal.subscriptions--
}
