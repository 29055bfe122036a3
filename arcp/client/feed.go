package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/arcpd/arcpd/arcp"
)

// Feed delivers the events of the principal's jobs, live or from a position (§3.7). It has the
// events that its subscription, a filter on the feed of the principal, selects. Any number of
// goroutines may use it.
type Feed struct {
	c     *Client
	queue *queue

	// Guarded by Client.mu; only the reader changes the ids.
	id      arcp.SubscriptionID // the first
	current arcp.SubscriptionID // on this connection
	closed  bool

	// Owned by the reader.
	request  arcp.SubscribePayload // without Since once that position is not retained any more
	last     arcp.MessageID        // last event; empty: none, or it is not retained any more
	caughtUp bool                  // a caught-up marker is not for the consumer any more
	lost     bool                  // the consumer has yet to get a gap marker
}

// SubscribeFeed opens a subscription to the feed of the principal. A refusal is a *RemoteError.
func (c *Client) SubscribeFeed(ctx context.Context, p arcp.SubscribePayload) (*Feed, error) {
	f := &Feed{c: c, request: p, queue: newQueue(c.opts.Limits.EventBuffer, c.opts.Limits.EventBytes), caughtUp: p.Since == nil}
	if _, err := c.request(ctx, arcp.Frame(arcp.Subscribe, p), arcp.SubscribeAccepted, f); err != nil {
		return nil, err
	}
	return f, nil
}

// openLocked registers the feed under the id of subscribe.accepted, before the reader
// receives its events.
func (f *Feed) openLocked(env *arcp.Envelope) {
	p, err := arcp.DecodePayload[arcp.SubscribeAcceptedPayload](env)
	if f.current = p.SubscriptionID; err != nil || f.current == "" {
		f.current = env.SubscriptionID
	}
	if f.id == "" {
		f.id = f.current
	}
	f.c.routes.feeds[f.current] = f
}

// reopenLocked subscribes again on a new connection, from the last position.
func (f *Feed) reopenLocked() {
	if f.closed {
		return
	}
	p := f.request
	p.Since = f.position()
	f.c.routes.calls[f.sendLocked(arcp.Subscribe, p)] = waiting{feed: f}
}

// position is where the feed continues; nil: live.
func (f *Feed) position() *arcp.Since {
	if f.last != "" {
		return &arcp.Since{AfterMessageID: f.last}
	}
	return f.request.Since
}

// sendLocked sends a message without waiting for room.
func (f *Feed) sendLocked(t arcp.Type, payload any) arcp.MessageID {
	env := arcp.Frame(t, payload)
	f.c.stamp(&env)
	f.c.out.putNow(&env)
	return env.ID
}

// reopenedLocked handles the answer to reopenLocked.
func (f *Feed) reopenedLocked(env *arcp.Envelope) {
	if env.Type != arcp.SubscribeAccepted {
		f.refusedLocked(env)
		return
	}
	f.openLocked(env)
	switch {
	case f.closed:
		delete(f.c.routes.feeds, f.current)
		f.sendLocked(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: f.current})
	case f.lost:
		f.lost = false
		f.emitGap()
	}
}

// refusedLocked continues live if the position is not retained any more: a feed whose
// filter selects little may have an old position although it has missed little.
func (f *Feed) refusedLocked(env *arcp.Envelope) {
	refusal := RemoteErrorOf(env)
	switch {
	case refusal == nil:
		f.queue.finish(unexpected("reopen feed", env.Type))
	case refusal.Code == arcp.CodeDataLoss && f.position() != nil:
		f.request.Since, f.last, f.lost = nil, "", true
		f.reopenLocked()
	default:
		f.queue.finish(fmt.Errorf("reopen feed: %w", refusal))
	}
}

// emitGap emits the markers of a feed that continues live because its position is
// lost. The number of missed events is unknown.
func (f *Feed) emitGap() {
	names := []string{FeedGap}
	if !f.caughtUp {
		f.caughtUp = true
		names = append(names, FeedCaughtUp)
	}
	for _, name := range names {
		env := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: name})
		env.SubscriptionID = f.id
		f.c.opts.stamp(&env)
		f.queue.push(&env) // a full queue ends the iterator
	}
}

// ID returns the subscription's id. With Connect it stays the first one.
func (f *Feed) ID() arcp.SubscriptionID {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.id
}

// Events iterates over the original envelopes. It ends when the runtime closes the
// feed, with a *RemoteError, with the connection or ctx, and when the consumer is too
// slow, with ErrEventBufferFull.
func (f *Feed) Events(ctx context.Context) iter.Seq2[Event, error] { return f.queue.all(ctx) }

// Close closes the feed; its iterator ends.
func (f *Feed) Close() error {
	f.queue.finish(endError{})
	id, open := f.remove()
	if !open {
		return nil
	}
	return f.c.Send(arcp.Frame(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: id}))
}

// remove removes the feed from the routes; open reports whether it is open at the
// runtime.
func (f *Feed) remove() (id arcp.SubscriptionID, open bool) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.closed = true
	if f.c.routes.feeds[f.current] != f {
		return "", false
	}
	delete(f.c.routes.feeds, f.current)
	return f.current, !f.c.down
}

// receive is called by the reader with every message of the subscription.
func (f *Feed) receive(env *arcp.Envelope) {
	switch env.Type {
	case arcp.SubscribeEvent:
		f.event(env)
	case arcp.SubscribeClosed, arcp.Unsubscribe:
		f.remove()
		f.queue.finish(closedBy(env))
	default:
		env.SubscriptionID = f.id // in place of the id on this connection
		f.push(env)
	}
}

// event unwraps the original event.
func (f *Feed) event(env *arcp.Envelope) {
	p, err := arcp.DecodePayload[arcp.SubscribeEventPayload](env)
	if err != nil {
		f.c.opts.Log("subscribe.event cannot be read", "error", err)
		return
	}
	inner, err := arcp.DecodeFromRuntime(p.Event)
	if err != nil {
		f.c.opts.Log("the event of subscribe.event cannot be read", "error", err)
		return
	}
	if f.advance(&inner) {
		f.push(&inner)
	}
}

// Markers are events about the feed itself (§3.7). Their ids are no positions.
const (
	FeedCaughtUp = arcp.EventCaughtUp // later events are live

	// Events were left out for a slow consumer: data is an arcp.FeedGap. Without data,
	// which only a client of Connect emits: the last event is not retained any more, so
	// that the feed continues live and events may be missing.
	FeedGap = arcp.EventGap
)

// advance records the position of an event, and reports whether the event is for the
// consumer.
func (f *Feed) advance(env *arcp.Envelope) bool {
	var p arcp.EventEmitPayload
	if env.Type == arcp.EventEmit {
		p, _ = arcp.DecodePayload[arcp.EventEmitPayload](env) // an unreadable event is no marker
	}
	switch p.Name {
	case FeedCaughtUp:
		again := f.caughtUp
		f.caughtUp = true
		return !again
	case FeedGap:
		var gap arcp.FeedGap
		if arcp.Unmarshal(p.Data, &gap) == nil && gap.LastID != "" {
			f.last = gap.LastID
		}
		return true
	}
	f.last = env.ID
	return true
}

func (f *Feed) push(env *arcp.Envelope) {
	if !f.queue.push(env) {
		f.c.opts.Log("event buffer full", "subscription", f.id)
	}
}

func closedBy(env *arcp.Envelope) error {
	p, err := arcp.DecodePayload[arcp.SubscribeClosedPayload](env)
	if err != nil || p.Code == "" {
		return &RemoteError{Type: env.Type, Code: arcp.CodeUnknown, RawCode: string(arcp.CodeUnknown), Message: p.Reason}
	}
	code, _ := arcp.ParseCode(string(p.Code))
	return &RemoteError{Type: env.Type, Code: code, RawCode: string(p.Code), Message: p.Reason, Retryable: code.Retryable()}
}
