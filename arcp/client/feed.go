package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/arcpd/arcpd/arcp"
)

// Feed delivers the events of the principal's jobs, live or from a position
// (§3.7). It may be used from any number of goroutines.
type Feed struct {
	c     *Client
	queue *queue

	// Of the client's lock; only the reader changes the ids.
	id      arcp.SubscriptionID // the first
	current arcp.SubscriptionID // on this connection
	closed  bool

	// The reader's.
	asked    arcp.SubscribePayload // but Since, once that is not kept any more
	last     arcp.MessageID        // of the events that came; empty: none, or it is not kept any more
	caughtUp bool                  // a marker that says so is not for the consumer
	lost     bool                  // the consumer is to be told that events may be missing
}

// SubscribeFeed opens a feed. A refusal is a *RemoteError.
func (c *Client) SubscribeFeed(ctx context.Context, p arcp.SubscribePayload) (*Feed, error) {
	f := &Feed{c: c, asked: p, queue: newQueue(c.opts.Limits.EventBuffer, c.opts.Limits.EventBytes), caughtUp: p.Since == nil}
	if _, err := c.request(ctx, arcp.Frame(arcp.Subscribe, p), arcp.SubscribeAccepted, f); err != nil {
		return nil, err
	}
	return f, nil
}

// openLocked enters the feed under the id that the runtime gave it, before the
// reader sees what comes for it.
func (f *Feed) openLocked(env *arcp.Envelope) {
	p, err := arcp.DecodePayload[arcp.SubscribeAcceptedPayload](env)
	if f.current = p.SubscriptionID; err != nil || f.current == "" {
		f.current = env.SubscriptionID
	}
	if f.id == "" {
		f.id = f.current
	}
	f.c.feeds[f.current] = f
}

// takeFeedsLocked takes the feeds out of the tables, also those that wait to be
// opened again.
func (c *Client) takeFeedsLocked() (feeds []*Feed) {
	for _, f := range c.feeds {
		feeds = append(feeds, f)
	}
	clear(c.feeds)
	for id, w := range c.calls {
		if w.answer == nil {
			feeds = append(feeds, w.feed)
			delete(c.calls, id)
		}
	}
	return feeds
}

// reopenLocked asks for the feed on a new connection, from where it was.
func (c *Client) reopenLocked(f *Feed) {
	if f.closed {
		return
	}
	p := f.asked
	p.Since = f.since()
	c.calls[c.sayLocked(arcp.Subscribe, p)] = waiting{feed: f}
}

// since is where the feed goes on; nil: live.
func (f *Feed) since() *arcp.Since {
	if f.last != "" {
		return &arcp.Since{AfterMessageID: f.last}
	}
	return f.asked.Since
}

// sayLocked sends a message without waiting for room.
func (c *Client) sayLocked(t arcp.Type, payload any) arcp.MessageID {
	env := arcp.Frame(t, payload)
	env.SessionID = c.session.ID
	c.date(&env)
	c.out.putAnyway(&env)
	return env.ID
}

// reopenedLocked takes the answer to that.
func (f *Feed) reopenedLocked(env *arcp.Envelope) {
	if env.Type != arcp.SubscribeAccepted {
		f.notReopenedLocked(env)
		return
	}
	f.openLocked(env)
	switch {
	case f.closed:
		delete(f.c.feeds, f.current)
		f.c.sayLocked(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: f.current})
	case f.lost:
		f.lost = false
		f.tellLost()
	}
}

// notReopenedLocked goes on live if the position is not kept any more: a feed
// whose filter selects little is at an old one although it has missed little.
func (f *Feed) notReopenedLocked(env *arcp.Envelope) {
	refusal := RemoteErrorOf(env)
	switch {
	case refusal == nil:
		f.queue.finish(unexpected("reopen feed", env.Type))
	case refusal.Code == arcp.CodeDataLoss && f.since() != nil:
		f.asked.Since, f.last, f.lost = nil, "", true
		f.c.reopenLocked(f)
	default:
		f.queue.finish(fmt.Errorf("reopen feed: %w", refusal))
	}
}

// tellLost gives the consumer the markers of a feed that goes on live where it
// cannot go on where it was. How much was missed nobody knows.
func (f *Feed) tellLost() {
	names := []string{FeedGap}
	if !f.caughtUp {
		f.caughtUp = true
		names = append(names, FeedCaughtUp)
	}
	for _, name := range names {
		env := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: name})
		env.SubscriptionID = f.id
		f.c.date(&env)
		f.queue.push(&env) // a full queue tells the consumer itself
	}
}

// ID is the subscription's id. With Connect it stays the first one.
func (f *Feed) ID() arcp.SubscriptionID {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.id
}

// Events iterates over the original envelopes, until the runtime closes the
// feed, which is a *RemoteError, the connection or ctx ends, or the consumer is
// too slow: ErrEventBufferFull.
func (f *Feed) Events(ctx context.Context) iter.Seq2[Event, error] { return f.queue.all(ctx) }

// Close gives the feed up; its iterator ends.
func (f *Feed) Close() error {
	f.queue.finish(endError{})
	id, open := f.drop()
	if !open {
		return nil
	}
	return f.c.Send(arcp.Frame(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: id}))
}

// drop takes the feed out of the table; open says that the runtime still has it.
func (f *Feed) drop() (id arcp.SubscriptionID, open bool) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.closed = true
	if f.c.feeds[f.current] != f {
		return "", false
	}
	delete(f.c.feeds, f.current)
	return f.current, !f.c.down
}

// receive is called by the reader with every message of the subscription.
func (f *Feed) receive(env *arcp.Envelope) {
	switch env.Type {
	case arcp.SubscribeEvent:
		f.event(env)
	case arcp.SubscribeClosed, arcp.Unsubscribe:
		f.drop()
		f.queue.finish(closedBy(env))
	default:
		env.SubscriptionID = f.id // whatever it is on this connection
		f.push(env)
	}
}

// event takes the original out of its wrapping.
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
	if f.follow(&inner) {
		f.push(&inner)
	}
}

// Markers are events about the feed itself (§3.7). Their ids are no positions.
const (
	FeedCaughtUp = arcp.EventCaughtUp // what follows is live

	// Events were left out for a slow consumer: data is an arcp.FeedGap. Without
	// data, which only a client of Connect gives: the last event that came is not
	// kept any more, so that the feed goes on live and events that came while there
	// was no connection may be missing.
	FeedGap = arcp.EventGap
)

// follow notes how far the feed has come, and reports whether an event is for
// the consumer.
func (f *Feed) follow(env *arcp.Envelope) bool {
	var p arcp.EventEmitPayload
	if env.Type == arcp.EventEmit {
		p, _ = arcp.DecodePayload[arcp.EventEmitPayload](env) // one that cannot be read is no marker
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
