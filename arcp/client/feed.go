package client

import (
	"context"
	"iter"

	"github.com/arcpd/arcpd/arcp"
)

// Feed delivers the events of the principal's jobs, live or from a position
// (§3.7). It may be used from any number of goroutines.
type Feed struct {
	c     *Client
	id    arcp.SubscriptionID // set by the reader before SubscribeFeed returns
	queue *queue
}

// SubscribeFeed opens a feed. A refusal is a *RemoteError.
func (c *Client) SubscribeFeed(ctx context.Context, p arcp.SubscribePayload) (*Feed, error) {
	f := &Feed{c: c, queue: newQueue(c.opts.Limits.EventBuffer, c.opts.Limits.EventBytes)}
	if _, err := c.request(ctx, arcp.Frame(arcp.Subscribe, p), arcp.SubscribeAccepted, f); err != nil {
		return nil, err
	}
	return f, nil
}

// openLocked enters the feed under the id that the runtime gave it, before the
// reader sees what comes for it.
func (f *Feed) openLocked(env *arcp.Envelope) {
	p, err := arcp.DecodePayload[arcp.SubscribeAcceptedPayload](env)
	if f.id = p.SubscriptionID; err != nil || f.id == "" {
		f.id = env.SubscriptionID
	}
	f.c.feeds[f.id] = f
}

// ID is the subscription's id.
func (f *Feed) ID() arcp.SubscriptionID { return f.id }

// Events iterates over the original envelopes, until the runtime closes the
// feed, which is a *RemoteError, the connection or ctx ends, or the consumer is
// too slow: ErrEventBufferFull.
func (f *Feed) Events(ctx context.Context) iter.Seq2[Event, error] { return f.queue.all(ctx) }

// Close gives the feed up; its iterator ends.
func (f *Feed) Close() error {
	f.queue.finish(endError{})
	if !f.c.dropFeed(f.id) {
		return nil
	}
	return f.c.Send(arcp.Frame(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: f.id}))
}

func (c *Client) dropFeed(id arcp.SubscriptionID) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, found = c.feeds[id]
	delete(c.feeds, id)
	return found
}

// receive is called by the reader with every message of the subscription.
func (f *Feed) receive(env *arcp.Envelope) {
	switch env.Type {
	case arcp.SubscribeEvent:
		f.event(env)
	case arcp.SubscribeClosed, arcp.Unsubscribe:
		f.c.dropFeed(f.id)
		f.queue.finish(closedBy(env))
	default:
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
	inner, err := arcp.Decode(p.Event)
	if err != nil {
		f.c.opts.Log("the event of subscribe.event cannot be read", "error", err)
		return
	}
	f.push(&inner)
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
