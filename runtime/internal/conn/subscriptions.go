package conn

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of a connection's subscriptions (SPEC.md §5.9).
const (
	maxSubscriptions = 64
	maxFeedLag       = 10_000 // events; a subscription that is further behind skips events with priority low
	maxNamed         = 1000   // jobs that a filter may name, if they may be of another principal
	maxShown         = 1024   // jobs of another principal that are remembered
	feedStep         = 4096   // events examined in one turn, however few of them are selected
)

// subscriptions are the subscriptions of a connection. They end with the connection.
type subscriptions struct {
	c       *conn
	slots   subscriptionSlots
	list    []*subscription
	limiter *rate.Limiter // nil: any rate
	room    uint64        // bytes that the client has room for, if bounded
	bounded bool
	due     time.Time // when the limiter lets the next event through; zero: nothing waits
}

// subscriptionSlots counts the subscriptions of a connection, with those that are being opened.
type subscriptionSlots struct{ taken int }

// enter takes a slot for a new subscription. It reports false if all are taken.
func (l *subscriptionSlots) enter() bool {
	if l.taken >= maxSubscriptions {
		return false
	}
	l.taken++
	return true
}

// leave frees n slots. Every slot is freed once: when the subscription is refused, when it
// ends, or with the connection.
func (l *subscriptionSlots) leave(n int) { l.taken -= n }

// subscription is a cursor of a principal's feed with a filter.
type subscription struct {
	id     arcp.SubscriptionID
	owner  string // principal of the feed
	filter eventFilter
	cursor *eventlog.Cursor
	marker bool         // the client is to be told of the end of the backfill
	until  uint64       // last position of the backfill
	gap    arcp.FeedGap // events skipped since one was last sent

	frame  []byte // see feedFrame
	head   []byte // frame head of events of headOf
	headOf arcp.SessionID

	held    *eventlog.Item      // next event, which waits for its time or for the store
	reading bool                // held needs something that is being read
	ready   *store.Event        // of held, after it was read
	shown   map[arcp.JobID]bool // known jobs of another principal; see shows
}

func (f *subscription) next() (item eventlog.Item, ok bool, err error) {
	if f.held != nil {
		item, f.held = *f.held, nil
		return item, true, nil
	}
	return f.cursor.Next()
}

// backpressure handles backpressure of the client, which slows its subscriptions. The numbered
// events of the session are held back by the acknowledgement window instead.
func (s *subscriptions) backpressure(now time.Time, env *arcp.Envelope, p *arcp.BackpressurePayload) error {
	if env.StreamID != "" {
		s.c.note(machine.Incident{Reason: "not_served", Type: env.Type})
		s.c.nack(now, env.ID, arcp.Errorf(arcp.CodeUnimplemented, "streams are not offered by this runtime; without stream_id it slows subscriptions"))
		return nil
	}
	s.slow(p)
	return nil
}

// slow bounds the events a second of all subscriptions together, 0 for any number, and the
// bytes until the client sets a new bound.
func (s *subscriptions) slow(p *arcp.BackpressurePayload) {
	if p.DesiredRatePerSecond != nil {
		s.limiter, s.due = nil, time.Time{}
		if *p.DesiredRatePerSecond > 0 {
			s.limiter = rate.NewLimiter(rate.Limit(*p.DesiredRatePerSecond), 1)
		}
	}
	if p.BufferRemainingBytes != nil {
		s.room, s.bounded = *p.BufferRemainingBytes, true
	}
}

// fits reports whether the client has room for an event, and takes the room.
func (s *subscriptions) fits(size int) bool {
	if !s.bounded {
		return true
	}
	if uint64(size) > s.room {
		return false
	}
	s.room -= uint64(size)
	return true
}

// find returns the index of a subscription; -1: there is none.
func (s *subscriptions) find(id arcp.SubscriptionID) int {
	return slices.IndexFunc(s.list, func(o *subscription) bool { return o.id == id })
}

// open opens a subscription. The client is sent subscribe.accepted, the events after a message if
// it asked for them, and then the events as they come.
func (s *subscriptions) open(now time.Time, env *arcp.Envelope, p *arcp.SubscribePayload) error {
	if err := checkFilter(p.Filter, len(env.Payload)); err != nil {
		return err
	}
	if !s.slots.enter() {
		s.c.nack(now, env.ID, arcp.Errorf(arcp.CodeResourceExhausted, "a connection has at most %d subscriptions; unsubscribe from some", maxSubscriptions).RetryAfter(1))
		return nil
	}
	viewer := s.c.actor()
	s.c.tasks.read(func(ctx context.Context) func(time.Time) {
		f := &subscription{id: arcp.SubscriptionID(arcp.NewID(arcp.SubscriptionPrefix))}
		after, refused := s.c.srv.newSubscription(ctx, &viewer, p, f)
		return func(now time.Time) {
			if refused != nil {
				s.refuse(now, env.ID, refused)
				return
			}
			s.attach(env.ID, p, f, after)
		}
	})
	return nil
}

// refuse refuses a subscription that has a slot.
func (s *subscriptions) refuse(now time.Time, request arcp.MessageID, err *arcp.Error) {
	s.slots.leave(1)
	s.c.nack(now, request, err)
}

// newSubscription sets the filter and the owner of a subscription of an actor, and returns the
// position at which it starts.
func (s *Server) newSubscription(ctx context.Context, viewer *approval.Actor, p *arcp.SubscribePayload, f *subscription) (after uint64, refused *arcp.Error) {
	if f.filter, f.owner, refused = s.newFilter(ctx, viewer, p.Filter); refused != nil {
		return 0, refused
	}
	if p.Since == nil || p.Since.AfterMessageID == "" {
		return math.MaxUint64, nil
	}
	f.marker = true
	return s.since(ctx, f.owner, p.Since.AfterMessageID)
}

// attach attaches a cursor to the feed of a new subscription.
func (s *subscriptions) attach(request arcp.MessageID, p *arcp.SubscribePayload, f *subscription, after uint64) {
	s.audit(p.Filter, f.owner)
	s.c.pending.add()
	s.c.srv.opts.Log.AttachFeed(f.owner, after, s.c.tasks.loop(), func(cursor *eventlog.Cursor, last uint64) {
		f.cursor, f.until = cursor, last
		if !s.c.inbox.complete(func(now time.Time) { s.opened(now, request, f) }) && cursor != nil {
			cursor.Close()
		}
		s.c.pending.done()
	})
}

// opened completes open.
func (s *subscriptions) opened(now time.Time, request arcp.MessageID, f *subscription) {
	if f.cursor == nil {
		s.refuse(now, request, unreadable())
		return
	}
	f.frame = feedFrame(s.c.id, f.id)
	s.list = append(s.list, f)
	env := arcp.Frame(arcp.SubscribeAccepted, arcp.SubscribeAcceptedPayload{SubscriptionID: f.id})
	env.SubscriptionID, env.CorrelationID = f.id, request
	s.c.send(now, env)
}

// since returns the position of a message in a feed. It refuses a message that is not kept.
func (s *Server) since(ctx context.Context, principal string, id arcp.MessageID) (uint64, *arcp.Error) {
	st := s.opts.Store
	pos, err := st.FeedPosition(ctx, principal, id)
	switch {
	case err == nil:
		return pos, nil
	case !errors.Is(err, store.ErrNotFound):
		s.opts.Logger.Error().Err(err).Msg("look for a position in a feed")
		return 0, unreadable()
	}
	lost := arcp.Errorf(arcp.CodeDataLoss, "the message is not among the events that are kept")
	trimmed, _, err := st.FeedBounds(ctx, principal)
	if err == nil {
		err = st.Feed(ctx, principal, trimmed, func(e store.FeedEvent) bool {
			lost = lost.WithDetails(arcp.LostDetails{OldestMessageID: e.Event.ID()})
			return false
		})
	}
	if err != nil {
		s.opts.Logger.Error().Err(err).Msg("oldest event of a feed")
	}
	return 0, lost
}

// audit records a subscription to the events of other sessions.
func (s *subscriptions) audit(f *arcp.EventFilter, owner string) {
	var sessions []arcp.SessionID
	var jobs []arcp.JobID
	if f != nil {
		sessions, jobs = f.SessionID, f.JobID
	}
	if len(sessions) == 1 && sessions[0] == s.c.id {
		return
	}
	ev := s.c.audit("subscribe").Str("owner", owner).Strs("sessions", texts(sessions))
	if owner != s.c.principal.identity.Principal {
		ev = ev.Strs("jobs", texts(jobs))
	}
	ev.Str("decision", "allowed").Msg("audit")
}

func texts[T ~string](ids []T) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = string(id)
	}
	return list
}

// unsubscribe ends a subscription.
func (s *subscriptions) unsubscribe(now time.Time, env *arcp.Envelope, p *arcp.UnsubscribePayload) error {
	if !arcp.HasPrefix(string(p.SubscriptionID), arcp.SubscriptionPrefix) {
		s.c.badID(now, env, "subscription_id", arcp.SubscriptionPrefix)
		return nil
	}
	i := s.find(p.SubscriptionID)
	if i < 0 {
		s.c.nack(now, env.ID, arcp.Errorf(arcp.CodeNotFound, "no such subscription on this connection"))
		return nil
	}
	s.drop(i)
	return nil
}

// drop ends the subscription at an index.
func (s *subscriptions) drop(i int) {
	s.list[i].cursor.Close()
	s.list = slices.Delete(s.list, i, i+1)
	s.slots.leave(1)
}

// close ends all subscriptions. A subscription that is still being opened is not completed: its
// slot is freed, too.
func (s *subscriptions) close() {
	for len(s.list) > 0 {
		s.drop(0)
	}
	s.slots.leave(s.slots.taken)
}

// pull moves events of the subscriptions to the batch while there is room. The session's own
// events are sent first. The subscriptions take turns.
func (s *subscriptions) pull(now time.Time, room int) {
	s.due = time.Time{}
	for i := 0; i < len(s.list) && s.c.ending.close == nil; {
		f := s.list[i]
		if !s.observes(f.owner) {
			s.c.audit("subscribe").Str("owner", f.owner).Str("decision", "denied").Str("reason", "may not be observed any more").Msg("audit")
			s.end(now, f, arcp.CodePermissionDenied, "the principal may not be observed any more")
			s.drop(i)
			continue
		}
		more, err := s.pullOne(now, f, room)
		if err != nil {
			s.fail(now, f, err)
			s.drop(i)
			continue
		}
		if !more {
			break
		}
		i++
	}
	if n := len(s.list); n > 1 { // another one begins next time
		s.list = append(s.list[1:n:n], s.list[0])
	}
}

// pullOne moves events of one subscription. It reports whether there may be room for the next
// one.
func (s *subscriptions) pullOne(now time.Time, f *subscription, room int) (more bool, err error) {
	if f.reading {
		return true, nil
	}
	late := f.cursor.Lag() > maxFeedLag
	for range feedStep {
		if len(s.c.output.batch().data) >= room {
			return false, nil
		}
		item, ok, err := f.next()
		if err != nil {
			return true, s.passDeleted(f, err)
		}
		if ok && s.block(f, &item) {
			return true, nil
		}
		if ok && !s.deliver(now, f, &item, late) {
			return false, nil
		}
		if f.marker && f.cursor.Position() >= f.until {
			f.marker = false
			s.tell(now, f, arcp.EventEmitPayload{Name: arcp.EventCaughtUp})
		}
		if !ok {
			s.fillGap(now, f)
			return true, nil
		}
	}
	s.c.scheduler.wake() // there is more
	return false, nil
}

// passDeleted moves a subscription past the events of deleted jobs. The subscription fails
// with err if the events are missing for another reason.
func (s *subscriptions) passDeleted(f *subscription, err error) error {
	gone, ok := errors.AsType[*store.TrimmedError](err)
	if !ok {
		return err
	}
	f.reading = true
	s.c.tasks.async(func() {
		trimmed, _, failed := s.c.srv.opts.Store.FeedBounds(context.Background(), f.owner)
		s.c.inbox.complete(func(now time.Time) {
			i := s.find(f.id)
			switch {
			case i < 0: // it was closed meanwhile
			case failed != nil || gone.After < trimmed:
				s.fail(now, f, err)
				s.drop(i)
			default:
				f.reading = false
				f.cursor.Move(gone.UpTo)
			}
		})
	})
	return nil
}

// block reports whether an event needs data from the store, and reads that data. The
// subscription continues with the event after the read.
func (s *subscriptions) block(f *subscription, item *eventlog.Item) bool {
	if item.Event == f.ready || s.hides(item.Event.Type) {
		return false
	}
	id := item.Event.JobID()
	_, known := f.shown[id]
	known = known || f.owner == s.c.principal.identity.Principal
	result := s.c.events.needsResult(item.Event)
	if known && !result || !f.filter.selects(&original{version: s.c.m.Version(), item: item}) {
		return false
	}
	f.held, f.reading = item, true
	s.c.tasks.async(func() {
		whole, err := item.Event, error(nil)
		if result {
			whole, err = s.c.srv.withResult(context.Background(), item.Event)
		}
		shown := known || s.c.srv.opts.Jobs.Shows(context.Background(), id)
		s.c.inbox.complete(func(now time.Time) {
			f.reading, f.ready, item.Event = false, whole, whole
			if !known {
				f.show(id, shown)
			}
			if err != nil {
				s.c.events.fail(now, err)
			}
		})
	})
	return true
}

// paced reports whether the subscriptions may carry an event now.
func (s *subscriptions) paced(now time.Time) bool {
	l := s.limiter
	if l == nil || l.AllowN(now, 1) {
		return true
	}
	next := l.ReserveN(now, 1)
	s.due = now.Add(max(next.DelayFrom(now), time.Millisecond))
	next.CancelAt(now) // only the delay is needed
	return false
}

// deliver appends an event if the filter selects it. It reports false if it is too soon for the
// event, which is held.
func (s *subscriptions) deliver(now time.Time, f *subscription, item *eventlog.Item, late bool) bool {
	if s.hides(item.Event.Type) {
		return true
	}
	o := original{version: s.c.m.Version(), item: item}
	if !f.filter.selects(&o) || !s.shows(f, item.Event.JobID()) {
		return true
	}
	if late && o.isLow() {
		s.c.srv.opts.Metrics.SlowConsumers.WithLabelValues(slowSkipped).Inc()
		f.skip(item.Event.ID())
		return true
	}
	if !s.paced(now) || s.bounded && !s.fits(len(o.encoded())) {
		f.held = item
		return false
	}
	s.fillGap(now, f)
	s.append(now, f, &o)
	return true
}

// append appends a subscribe.event frame to the batch. The body of the event is
// encoded once and copied into the frame of each subscription.
func (s *subscriptions) append(now time.Time, f *subscription, o *original) {
	b := s.c.output.batch()
	start := len(b.data)
	b.data = append(arcp.AppendHead(b.data, o.version, arcp.NewMessageID(), arcp.SubscribeEvent, now), f.frame...)
	if o.frame != nil {
		b.data = append(b.data, o.frame...)
	} else {
		if f.head == nil || f.headOf != o.item.Session {
			f.head, f.headOf = o.head(), o.item.Session
		}
		b.data = o.append(b.data, f.head)
	}
	b.data = append(b.data, "}}"...)
	b.ends = append(b.ends, len(b.data))
	s.c.output.counts.add(arcp.SubscribeEvent, len(b.data)-start)
}

// feedFrame returns the part of a subscribe.event frame between its timestamp and the
// event, which is the same in all frames of a subscription.
func feedFrame(session arcp.SessionID, id arcp.SubscriptionID) []byte {
	b := arcp.AppendString([]byte(`,"session_id":`), string(session))
	b = arcp.AppendString(append(b, `,"subscription_id":`...), string(id))
	return append(b, `,"payload":{"event":`...)
}

// hides reports whether a subscription leaves out events of a type: chunks of results
// and checkpoints, for a client that did not negotiate them or cannot read them.
func (s *subscriptions) hides(t arcp.Type) bool {
	switch t {
	case arcp.JobResultChunk:
		return !s.c.negotiated(arcp.FeatureResultChunk)
	case arcp.JobCheckpoint:
		return machine.ReadsNoCheckpoints(s.c.row.ClientKind)
	}
	return false
}

// skip counts an event that is left out.
func (f *subscription) skip(id arcp.MessageID) {
	if f.gap.Skipped == 0 {
		f.gap.FirstID = id
	}
	f.gap.Skipped++
	f.gap.LastID = id
}

// fillGap tells the client which events were skipped.
func (s *subscriptions) fillGap(now time.Time, f *subscription) {
	if f.gap.Skipped == 0 {
		return
	}
	data, err := arcp.Marshal(f.gap)
	if err != nil { // a number and two strings
		panic("runtime: gap: " + err.Error())
	}
	f.gap = arcp.FeedGap{}
	s.tell(now, f, arcp.EventEmitPayload{Name: arcp.EventGap, Data: data})
}

// tell sends an event about the subscription itself.
func (s *subscriptions) tell(now time.Time, f *subscription, p arcp.EventEmitPayload) {
	env := arcp.Frame(arcp.EventEmit, p)
	env.ARCP, env.ID, env.Timestamp, env.SubscriptionID = s.c.m.Version(), arcp.NewMessageID(), now, f.id
	s.send(now, f, env.Append(nil))
}

// send sends an encoded event in a subscription.
func (s *subscriptions) send(now time.Time, f *subscription, event []byte) {
	env := arcp.Frame(arcp.SubscribeEvent, arcp.SubscribeEventPayload{Event: event})
	env.SubscriptionID = f.id
	s.c.send(now, env)
}

// fail tells the client why a subscription ends whose next events cannot be read.
func (s *subscriptions) fail(now time.Time, f *subscription, err error) {
	s.c.srv.opts.Metrics.SlowConsumers.WithLabelValues(slowClosed).Inc()
	if errors.Is(err, store.ErrTrimmed) {
		s.end(now, f, arcp.CodeBackpressureOverflow, "events that were still to be sent are not kept any more")
		return
	}
	s.c.srv.opts.Logger.Error().Err(err).Msg("read feed")
	s.end(now, f, arcp.CodeUnavailable, "the store cannot be read")
}

// end tells the client why a subscription ends.
func (s *subscriptions) end(now time.Time, f *subscription, code arcp.Code, reason string) {
	env := arcp.Frame(arcp.SubscribeClosed, arcp.SubscribeClosedPayload{SubscriptionID: f.id, Code: code, Reason: reason})
	env.SubscriptionID = f.id
	s.c.send(now, env)
}

// observes reports whether the client may observe a principal.
func (s *subscriptions) observes(principal string) bool {
	if principal == s.c.principal.identity.Principal {
		return true
	}
	viewer := s.c.actor()
	return viewer.Observes(principal)
}

// shows reports whether the events of a job may be in a subscription. Jobs of the runtime's own
// tools are shown to their own principal only: their results are meant for that principal.
func (s *subscriptions) shows(f *subscription, id arcp.JobID) bool {
	return f.owner == s.c.principal.identity.Principal || f.shown[id]
}

// show remembers whether the events of a job of another principal may be in the subscription.
func (f *subscription) show(id arcp.JobID, shown bool) {
	if f.shown == nil || len(f.shown) >= maxShown {
		f.shown = make(map[arcp.JobID]bool)
	}
	f.shown[id] = shown
}
