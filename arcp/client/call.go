package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// stamp sets the zero members of an envelope that every envelope needs.
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

// Send sends an envelope as it is, except that zero members arcp, id, timestamp and
// session_id are set. It returns when the envelope is in the buffer of the writer,
// after waiting for room.
func (c *Client) Send(env arcp.Envelope) error { return c.send(context.Background(), &env, false) }

// send is Send. A request is sent again on later connections until it is answered.
func (c *Client) send(ctx context.Context, env *arcp.Envelope, request bool) error {
	c.stamp(env)
	err := c.out.put(ctx, env, request)
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrClosed) { // the reason is known within writeGrace
		select {
		case <-c.donec:
			err = c.Err()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return fmt.Errorf("send %s: %w", env.Type, err)
}

// Reply sends an answer to env: a message correlated to it, about the same job.
func (c *Client) Reply(env *arcp.Envelope, t arcp.Type, payload any) error {
	raw, err := arcp.Marshal(payload)
	if err != nil {
		return fmt.Errorf("send %s: %w", t, err)
	}
	return c.Send(arcp.Envelope{Type: t, JobID: env.JobID, CorrelationID: env.ID, Payload: raw})
}

// Call sends an envelope like Send and waits for the first one correlated to it, of
// any type; RemoteErrorOf reports whether it is a refusal. Later ones are unsolicited.
//
// The id of env must not be in use. When ctx ends first, a later answer is
// unsolicited.
func (c *Client) Call(ctx context.Context, env arcp.Envelope) (arcp.Envelope, error) {
	return c.call(ctx, env, nil)
}

// call is Call. The answer opens the feed f, if it is set and the answer accepts it.
func (c *Client) call(ctx context.Context, env arcp.Envelope, f *Feed) (arcp.Envelope, error) {
	if env.ID == "" {
		env.ID = arcp.NewMessageID()
	}
	w := waiting{make(chan arcp.Envelope, 1), f}
	if err := w.register(c, env.ID); err != nil {
		return arcp.Envelope{}, fmt.Errorf("call %s: %w", env.Type, err)
	}
	defer w.unregister(c, env.ID)
	ofConnection := env.Type == arcp.SessionAuthenticate || env.Type == arcp.SessionClose // not sent again on another one
	if err := c.send(ctx, &env, !ofConnection); err != nil {
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
	select { // both may have happened
	case got := <-w.answer:
		return got, nil
	default:
		return arcp.Envelope{}, fmt.Errorf("call %s: %w", env.Type, err)
	}
}

func (w waiting) register(c *Client, id arcp.MessageID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if _, used := c.routes.calls[id]; used {
		return fmt.Errorf("the id %s is in use", id)
	}
	c.routes.calls[id] = w
	return nil
}

func (waiting) unregister(c *Client, id arcp.MessageID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.routes.calls, id)
	c.out.answered(id)
}

// request is call for an answer of one type; a refusal is a *RemoteError.
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

// Ping measures the time until a ping is answered.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	nonce := string(arcp.NewMessageID())
	pong, err := ask[arcp.PongPayload](ctx, c, arcp.Ping, arcp.PingPayload{Nonce: nonce}, arcp.Pong)
	if err == nil && pong.Nonce != nonce {
		err = &ProtocolError{"pong", fmt.Errorf("nonce %q, want %q", pong.Nonce, nonce)}
	}
	return time.Since(start), err
}

// Ack acknowledges every event up to seq. It does not wait; of several
// acknowledgements that are not yet written only the highest is.
func (c *Client) Ack(seq uint64) { c.out.putAck(seq) }

// Unsolicited iterates over the messages of no call, job or feed. It ends with the
// error of the connection or of ctx. Not used with Options.OnUnsolicited.
func (c *Client) Unsolicited(ctx context.Context) iter.Seq2[arcp.Envelope, error] {
	return c.strays.all(ctx)
}
