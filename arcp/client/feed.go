package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/arcpd/arcpd/arcp"
)

// Feed delivers the events of the principal's jobs that match the filter of its subscription, live or
// from a position (§3.7). It is safe for concurrent use.
type Feed struct {
	c     *Client
	queue *queue

	// Guarded by Client.mu; only the reader changes the ids.
	id      arcp.SubscriptionID // first id of the subscription
	current arcp.SubscriptionID // id on the current connection
	closed  bool

	// Owned by the reader.
	request  arcp.SubscribePayload // Since is nil after the runtime has dropped that position
	last     arcp.MessageID        // last event; empty: none, or dropped by the runtime
	caughtUp bool                  // the consumer has received FeedCaughtUp
	lost     bool                  // the consumer must receive FeedGap
}

// SubscribeFeedParams selects events. The zero value selects all future events of the principal's jobs.
type SubscribeFeedParams struct {
	Filter *arcp.EventFilter
	Since  *arcp.Since // first replay the events after this one; nil: no replay
}

// SubscribeFeed subscribes to the events of the principal's jobs. A refusal is a *RemoteError.
func (c *Client) SubscribeFeed(ctx context.Context, p SubscribeFeedParams) (*Feed, error) {
	f := &Feed{
		c:        c,
		request:  arcp.SubscribePayload(p),
		queue:    newQueue(c.opts.Limits.EventBuffer, c.opts.Limits.EventBytes),
		caughtUp: p.Since == nil,
	}
	if _, err := c.request(ctx, arcp.Frame(arcp.Subscribe, f.request), arcp.SubscribeAccepted, f); err != nil {
		return nil, err
	}
	return f, nil
}

// openLocked routes the subscription of subscribe.accepted to the feed before its first event arrives.
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
	f.c.routes.calls[f.sendLocked(arcp.Subscribe, p)] = pendingCall{feed: f}
}

// position returns the position where the feed continues; nil: live.
func (f *Feed) position() *arcp.Since {
	if f.last != "" {
		return &arcp.Since{AfterMessageID: f.last}
	}
	return f.request.Since
}

// sendLocked sends a message without waiting for room in the send buffer.
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

// refusedLocked continues live if the runtime has dropped the position. The position of a feed with a
// selective filter may be old although few events are missing.
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

// emitGap emits the markers of a feed that continues live after a lost position. The number of missed
// events is unknown.
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

// ID returns the id of the subscription. With Connect it stays the id of the first connection.
func (f *Feed) ID() arcp.SubscriptionID {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.id
}

// Events iterates over the original envelopes. It ends with a *RemoteError if the runtime closes the
// subscription, with ErrEventBufferFull if the consumer is too slow, and with the error of the
// connection or of ctx.
func (f *Feed) Events(ctx context.Context) iter.Seq2[Event, error] { return f.queue.all(ctx) }

// Close unsubscribes. The iterator ends without an error.
func (f *Feed) Close() error {
	f.queue.finish(endError{})
	id, open := f.remove()
	if !open {
		return nil
	}
	return f.c.Send(arcp.Frame(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: id}))
}

// remove removes the feed from the routes. open reports whether the subscription is open at the
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

// receive handles a message of the subscription. The reader calls it.
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

// event unwraps and queues the original event.
func (f *Feed) event(env *arcp.Envelope) {
	p, err := arcp.DecodePayload[arcp.SubscribeEventPayload](env)
	if err != nil {
		f.c.opts.Log("decode subscribe.event", "error", err)
		return
	}
	inner, err := arcp.DecodeFromRuntime(p.Event)
	if err != nil {
		f.c.opts.Log("decode the event of subscribe.event", "error", err)
		return
	}
	if f.advance(&inner) {
		f.push(&inner)
	}
}

// Names of events about the feed itself (§3.7). Their ids are not positions.
const (
	FeedCaughtUp = arcp.EventCaughtUp // later events are live

	// FeedGap reports events skipped for a slow consumer; data is an arcp.FeedGap. Without
	// data, only from a client of Connect, it reports that the runtime has dropped the last
	// position: the feed continues live, and events may be missing.
	FeedGap = arcp.EventGap
)

// advance records the position of an event, and reports whether the event is for the consumer.
func (f *Feed) advance(env *arcp.Envelope) bool {
	var p arcp.EventEmitPayload
	if env.Type == arcp.EventEmit {
		p, _ = arcp.DecodePayload[arcp.EventEmitPayload](env) // an invalid payload is not a marker
	}
	switch p.Name {
	case FeedCaughtUp:
		repeated := f.caughtUp
		f.caughtUp = true
		return !repeated
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
