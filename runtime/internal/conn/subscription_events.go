package conn

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// pull appends events of the subscriptions to the batch while it is smaller than room. It starts
// with another subscription each time.
func (s *subscriptions) pull(now time.Time, room int) {
	s.due = time.Time{}
	for i := 0; i < len(s.list) && s.c.ending.close == nil; {
		sub := s.list[i]
		if !s.c.principal.mayObserve(sub.owner) {
			s.c.principal.audit("subscribe").Str("owner", sub.owner).Str("decision", "denied").
				Str("reason", "may not be observed any more").Msg("audit")
			s.sendClosed(now, sub, arcp.CodePermissionDenied, notObserved)
			s.drop(i)
			continue
		}
		more, err := s.pullOne(now, sub, room)
		if err != nil {
			s.fail(now, sub, err)
			s.drop(i)
			continue
		}
		if !more {
			break
		}
		i++
	}
	if n := len(s.list); n > 1 {
		s.list = append(s.list[1:n:n], s.list[0])
	}
}

// pullOne appends events of one subscription. It reports whether the next subscription may append
// events.
func (s *subscriptions) pullOne(now time.Time, sub *subscription, room int) (more bool, err error) {
	if sub.reading {
		return true, nil
	}
	late := sub.cursor.Lag() > maxFeedLag
	for range maxExamined {
		if len(s.c.output.batch().data) >= room {
			return false, nil
		}
		item, ok, err := sub.next()
		if err != nil {
			return true, s.passDeleted(sub, err)
		}
		if ok && s.readMissing(sub, &item) {
			return true, nil
		}
		if ok && !s.deliver(now, sub, &item, late) {
			return false, nil
		}
		if sub.backfilling && sub.cursor.Position() >= sub.backfillEnd {
			sub.backfilling = false
			s.sendNotice(now, sub, arcp.EventEmitPayload{Name: arcp.EventCaughtUp})
		}
		if !ok {
			s.sendGap(now, sub)
			return true, nil
		}
	}
	s.c.scheduler.wake() // there is more
	return false, nil
}

// next returns the next event; ok is false if there is none.
func (su *subscription) next() (item eventlog.Item, ok bool, err error) {
	if su.held != nil {
		item, su.held = *su.held, nil
		return item, true, nil
	}
	return su.cursor.Next()
}

// deliver appends an event if the filter selects it. It reports false if the client's backpressure
// does not admit it; the event is held then.
func (s *subscriptions) deliver(now time.Time, sub *subscription, item *eventlog.Item, late bool) bool {
	if s.omits(item.Event) {
		return true
	}
	item.Event = s.c.principal.withoutDetails(sub.owner, thoughtViewOf(&s.c.principal.identity).show(sub.owner, item.Event))
	event := submitterEvent{version: s.c.machine.Version(), item: item}
	if !sub.filter.selects(&event) || !s.mayShow(sub, item.Event.JobID()) {
		return true
	}
	if late && event.hasLowPriority() {
		s.c.srv.opts.Metrics.SlowConsumers.WithLabelValues(slowSkipped).Inc()
		sub.skip(item.Event.ID())
		return true
	}
	if !s.admits(now) || s.roomBounded && !s.reserveRoom(len(event.encoded())) {
		sub.held = item
		return false
	}
	s.sendGap(now, sub)
	s.append(now, sub, &event)
	return true
}

// append appends a subscribe.event frame to the batch. The body of the event is copied as it is
// stored.
func (s *subscriptions) append(now time.Time, sub *subscription, event *submitterEvent) {
	b := s.c.output.batch()
	start := len(b.data)
	b.data = append(arcp.AppendHead(b.data, event.version, arcp.NewMessageID(), arcp.SubscribeEvent, now), sub.framePrefix...)
	if event.frame != nil {
		b.data = append(b.data, event.frame...)
	} else {
		if sub.head == nil || sub.headOf != event.item.Session {
			sub.head, sub.headOf = event.head(), event.item.Session
		}
		b.data = event.append(b.data, sub.head)
	}
	b.data = append(b.data, "}}"...)
	b.ends = append(b.ends, len(b.data))
	s.c.output.counts.add(arcp.SubscribeEvent, len(b.data)-start)
}

// subscribePrefix returns the part of a subscribe.event frame between its timestamp and the event,
// which is the same in all frames of a subscription.
func subscribePrefix(session arcp.SessionID, id arcp.SubscriptionID) []byte {
	b := arcp.AppendString([]byte(`,"session_id":`), string(session))
	b = arcp.AppendString(append(b, `,"subscription_id":`...), string(id))
	return append(b, `,"payload":{"event":`...)
}

// readMissing reports whether an event needs data of the store, and starts to read it. Meanwhile
// the event is held.
func (s *subscriptions) readMissing(sub *subscription, item *eventlog.Item) bool {
	if item.Event == sub.heldRead || s.omits(item.Event) {
		return false
	}
	id := item.Event.JobID()
	_, known := sub.visible[id]
	known = known || sub.owner == s.c.principal.identity.Principal
	result := s.c.events.needsWholeResult(item.Event)
	if known && !result || !sub.filter.selects(&submitterEvent{version: s.c.machine.Version(), item: item}) {
		return false
	}
	sub.held, sub.reading = item, true
	principal, limit := s.c.principal.identity.Principal, s.c.maxResult()
	s.c.tasks.backgroundThenLoop(func(ctx context.Context) func(time.Time) {
		whole, err := item.Event, error(nil)
		if result {
			whole, err = s.c.srv.withWholeResult(ctx, principal, limit, item.Event)
		}
		shown := known || s.c.srv.opts.Jobs.VisibleToObservers(ctx, id)
		return func(now time.Time) {
			sub.reading, sub.heldRead, item.Event = false, whole, whole
			if !known {
				sub.setVisible(id, shown)
			}
			if err != nil {
				s.c.events.fail(now, err)
			}
		}
	})
	return true
}

// passDeleted moves a subscription past the events of deleted jobs. If the events are missing for
// another reason, it returns err, or closes the subscription later.
func (s *subscriptions) passDeleted(sub *subscription, err error) error {
	gone, ok := errors.AsType[*store.TrimmedError](err)
	if !ok {
		return err
	}
	sub.reading = true
	s.c.tasks.backgroundThenLoop(func(ctx context.Context) func(time.Time) {
		trimmed, _, failed := s.c.srv.opts.Store.FeedBounds(ctx, sub.owner)
		return func(now time.Time) {
			i := s.find(sub.id)
			switch {
			case i < 0: // closed meanwhile
			case failed != nil || gone.After < trimmed:
				s.fail(now, sub, err)
				s.drop(i)
			default:
				sub.reading = false
				sub.cursor.Seek(gone.UpTo)
			}
		}
	})
	return nil
}

// admits reports whether the limiter admits an event now. Otherwise it sets due.
func (s *subscriptions) admits(now time.Time) bool {
	l := s.limiter
	if l == nil || l.AllowN(now, 1) {
		return true
	}
	next := l.ReserveN(now, 1)
	s.due = now.Add(max(next.DelayFrom(now), time.Millisecond))
	next.CancelAt(now) // only the delay is needed
	return false
}

// reserveRoom reports whether the client has room for an event of size bytes, and subtracts it.
func (s *subscriptions) reserveRoom(size int) bool {
	if !s.roomBounded {
		return true
	}
	if uint64(size) > s.room {
		return false
	}
	s.room -= uint64(size)
	return true
}

// omits reports whether an event is not for the client: chunks of results, events of streams and metrics
// of the runtime that it did not negotiate, and checkpoints that it cannot read.
func (s *subscriptions) omits(e *store.Event) bool {
	switch e.Type {
	case arcp.Metric:
		return e.RuntimeMetric() && !s.c.session.negotiated(arcp.FeatureMetrics)
	case arcp.JobResultChunk:
		return !s.c.session.negotiated(arcp.FeatureResultChunk)
	case arcp.StreamOpen, arcp.StreamChunk, arcp.StreamClose, arcp.StreamError:
		return !s.c.session.negotiated(arcp.FeatureStreaming)
	case arcp.JobCheckpoint:
		return machine.ReadsNoCheckpoints(s.c.session.row.ClientKind)
	}
	return false
}

// mayShow reports whether the events of a job may be in a subscription. Jobs of built-in tools are
// visible only to their own principal, because their results are meant for that principal.
func (s *subscriptions) mayShow(sub *subscription, id arcp.JobID) bool {
	return sub.owner == s.c.principal.identity.Principal || sub.visible[id]
}

// setVisible records whether the events of a job of another principal may be in the subscription.
func (su *subscription) setVisible(id arcp.JobID, shown bool) {
	if su.visible == nil || len(su.visible) >= maxVisible {
		su.visible = make(map[arcp.JobID]bool)
	}
	su.visible[id] = shown
}

// skip adds a skipped event to the gap.
func (su *subscription) skip(id arcp.MessageID) {
	if su.gap.Skipped == 0 {
		su.gap.FirstID = id
	}
	su.gap.Skipped++
	su.gap.LastID = id
}

// sendGap announces the skipped events, if any.
func (s *subscriptions) sendGap(now time.Time, sub *subscription) {
	if sub.gap.Skipped == 0 {
		return
	}
	data, err := arcp.Marshal(sub.gap)
	if err != nil { // a number and two strings
		panic("conn: gap: " + err.Error())
	}
	sub.gap = arcp.FeedGap{}
	s.sendNotice(now, sub, arcp.EventEmitPayload{Name: arcp.EventGap, Data: data})
}

// sendNotice sends an event about the subscription itself.
func (s *subscriptions) sendNotice(now time.Time, sub *subscription, p arcp.EventEmitPayload) {
	env := arcp.Frame(arcp.EventEmit, p)
	env.ARCP, env.ID, env.Timestamp, env.SubscriptionID = s.c.machine.Version(), arcp.NewMessageID(), now, sub.id
	s.send(now, sub, env.Append(nil))
}

// send sends an encoded event in a subscription.
func (s *subscriptions) send(now time.Time, sub *subscription, event []byte) {
	env := arcp.Frame(arcp.SubscribeEvent, arcp.SubscribeEventPayload{Event: event})
	env.SubscriptionID = sub.id
	s.c.send(now, env)
}

// fail sends subscribe.closed for a subscription whose next events cannot be read.
func (s *subscriptions) fail(now time.Time, sub *subscription, err error) {
	s.c.srv.opts.Metrics.SlowConsumers.WithLabelValues(slowClosed).Inc()
	if errors.Is(err, store.ErrTrimmed) {
		s.sendClosed(now, sub, arcp.CodeBackpressureOverflow, "events that were still to be sent are not kept any more")
		return
	}
	s.c.srv.opts.Logger.Error().Err(err).Msg("read feed")
	s.sendClosed(now, sub, arcp.CodeUnavailable, "the store cannot be read")
}

// sendClosed sends subscribe.closed.
func (s *subscriptions) sendClosed(now time.Time, sub *subscription, code arcp.Code, reason string) {
	env := arcp.Frame(arcp.SubscribeClosed, arcp.SubscribeClosedPayload{SubscriptionID: sub.id, Code: code, Reason: reason})
	env.SubscriptionID = sub.id
	s.c.send(now, env)
}

// backpressure handles a backpressure message, which slows a stream or the subscriptions. The acknowledgement
// window, not backpressure, slows the events of the session.
func (s *subscriptions) backpressure(now time.Time, env *arcp.Envelope, p *arcp.BackpressurePayload) error {
	if env.StreamID == "" {
		s.setBackpressure(p)
		return nil
	}
	if err := s.slowStream(env.StreamID, p); err != nil {
		s.c.nack(now, env.ID, err)
	}
	return nil
}

// slowStream slows the writes of a tool to a stream.
func (s *subscriptions) slowStream(id arcp.StreamID, p *arcp.BackpressurePayload) *arcp.Error {
	c := s.c
	if !actor.MayCommand(&c.principal.identity) {
		return arcp.Errorf(arcp.CodePermissionDenied, "backpressure of a stream: this principal may only observe")
	}
	return c.srv.opts.Engine.Streams().Slow(engine.Requester{Principal: c.principal.identity.Principal, Session: c.id}, id, p)
}

// setBackpressure bounds the events of all subscriptions: the number a second, where 0 is no bound,
// and the bytes until the next bound.
func (s *subscriptions) setBackpressure(p *arcp.BackpressurePayload) {
	if p.DesiredRatePerSecond != nil {
		s.limiter, s.due = nil, time.Time{}
		if *p.DesiredRatePerSecond > 0 {
			s.limiter = rate.NewLimiter(rate.Limit(*p.DesiredRatePerSecond), 1)
		}
	}
	if p.BufferRemainingBytes != nil {
		s.room, s.roomBounded = *p.BufferRemainingBytes, true
	}
}
