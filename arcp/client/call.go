package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// stamp sets the zero members that every envelope needs.
func (c *Client) stamp(env *arcp.Envelope) {
	if env.SessionID == "" {
		env.SessionID = c.state.id()
	}
	c.opts.stamp(env)
}

func (o *Options) stamp(env *arcp.Envelope) {
	if env.ARCP == "" {
		env.ARCP = o.Version
	}
	if env.ID == "" {
		env.ID = arcp.NewMessageID()
	}
	if env.Timestamp.IsZero() {
		env.Timestamp = time.Now()
	}
}

// Send sends an envelope after setting the zero members arcp, id, timestamp and session_id. It
// returns when the envelope is in the send buffer, and waits while the buffer is full.
func (c *Client) Send(env arcp.Envelope) error { return c.send(context.Background(), &env, false) }

// send is Send with a context. A request is sent again on later connections until it is answered.
func (c *Client) send(ctx context.Context, env *arcp.Envelope, request bool) error {
	c.stamp(env)
	err := c.opts.check(env)
	if err == nil {
		err = c.out.put(ctx, env, request)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrClosed) { // the reader reports the reason within writeGrace
		select {
		case <-c.donec:
			err = c.Err()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return fmt.Errorf("send %s: %w", env.Type, err)
}

// Reply sends an answer to env: a message with the same job and the correlation_id of env.
func (c *Client) Reply(env *arcp.Envelope, t arcp.Type, payload any) error {
	raw, err := arcp.Marshal(payload)
	if err != nil {
		return fmt.Errorf("send %s: %w", t, err)
	}
	return c.Send(arcp.Envelope{Type: t, JobID: env.JobID, CorrelationID: env.ID, Payload: raw})
}

// Call sends an envelope like Send and waits for the first answer: a message of any type with its
// correlation_id. RemoteErrorOf reports whether the answer is a refusal. Later answers are unsolicited.
//
// The id of env must not be in use. An answer after the end of ctx is unsolicited.
func (c *Client) Call(ctx context.Context, env arcp.Envelope) (arcp.Envelope, error) {
	return c.call(ctx, env, nil)
}

// call is Call for a feed. An accepting answer opens the feed f, which may be nil.
func (c *Client) call(ctx context.Context, env arcp.Envelope, f *Feed) (arcp.Envelope, error) {
	if env.ID == "" {
		env.ID = arcp.NewMessageID()
	}
	w := pendingCall{make(chan arcp.Envelope, 1), f}
	if err := w.register(c, env.ID); err != nil {
		return arcp.Envelope{}, fmt.Errorf("call %s: %w", env.Type, err)
	}
	defer w.unregister(c, env.ID)
	onlyThisConn := env.Type == arcp.SessionAuthenticate || env.Type == arcp.SessionClose // not repeated on the next connection
	if err := c.send(ctx, &env, !onlyThisConn); err != nil {
		return arcp.Envelope{}, err
	}
	var err error
	select {
	case got := <-w.answer:
		return got, nil
	case <-c.donec:
		err = c.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	select { // the answer may have arrived at the same time
	case got := <-w.answer:
		return got, nil
	default:
		return arcp.Envelope{}, fmt.Errorf("call %s: %w", env.Type, err)
	}
}

func (pc pendingCall) register(c *Client, id arcp.MessageID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if _, used := c.routes.calls[id]; used {
		return fmt.Errorf("the id %s is in use", id)
	}
	c.routes.calls[id] = pc
	return nil
}

func (pendingCall) unregister(c *Client, id arcp.MessageID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.routes.calls, id)
	c.out.answered(id)
}

// request is call for an answer of type want. A refusal is a *RemoteError.
func (c *Client) request(ctx context.Context, env arcp.Envelope, want arcp.Type, f *Feed) (arcp.Envelope, error) {
	t := env.Type
	got, err := c.call(ctx, env, f)
	if err != nil || got.Type == want {
		return got, err
	}
	if refusal := RemoteErrorOf(&got); refusal != nil {
		return got, fmt.Errorf("%s: %w", t, refusal)
	}
	return got, unexpected(string(t), got.Type)
}

// ask is request with encoded and decoded payloads.
func ask[P any](ctx context.Context, c *Client, t arcp.Type, payload any, want arcp.Type) (P, error) {
	got, err := c.request(ctx, arcp.Frame(t, payload), want, nil)
	if err != nil {
		return *new(P), err
	}
	p, err := arcp.DecodePayload[P](&got)
	if err != nil {
		err = &ProtocolError{string(want), err}
	}
	return p, err
}

// Ping sends a ping and returns the time until the pong.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	nonce := string(arcp.NewMessageID())
	pong, err := ask[arcp.PongPayload](ctx, c, arcp.Ping, arcp.PingPayload{Nonce: nonce}, arcp.Pong)
	if err == nil && pong.Nonce != nonce {
		err = &ProtocolError{"pong", fmt.Errorf("nonce %q, want %q", pong.Nonce, nonce)}
	}
	return time.Since(start), err
}

// Ack acknowledges every event up to event_seq seq. It does not wait. Of several acknowledgements
// in the send buffer only the highest is written.
func (c *Client) Ack(seq uint64) { c.out.putAck(seq) }

// Unsolicited iterates over the messages outside calls, jobs and feeds. It ends with the error of
// the connection or of ctx. With Options.OnUnsolicited it yields no messages.
func (c *Client) Unsolicited(ctx context.Context) iter.Seq2[arcp.Envelope, error] {
	return c.unsolicited.all(ctx)
}
