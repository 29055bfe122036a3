package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// stamp fills in what every envelope needs and env leaves out.
func (c *Client) stamp(env *arcp.Envelope) {
	if env.SessionID == "" {
		env.SessionID = c.sessionID()
	}
	c.date(env)
}

// date is stamp for an envelope that says what session it is of.
func (c *Client) date(env *arcp.Envelope) {
	if env.ARCP == "" {
		env.ARCP = c.opts.Version
	}
	if env.ID == "" {
		env.ID = arcp.NewMessageID()
	}
	if env.Timestamp.IsZero() {
		env.Timestamp = time.Now()
	}
}

// Send sends an envelope as it is, but for the members arcp, id, timestamp and
// session_id, which are filled in when they are zero. It returns when the
// envelope is in the buffer of the writer, after waiting for room.
func (c *Client) Send(env arcp.Envelope) error { return c.send(context.Background(), &env, false) }

// send is Send. What is asked is said again on another connection until it is
// answered.
func (c *Client) send(ctx context.Context, env *arcp.Envelope, asked bool) error {
	c.stamp(env)
	err := c.out.put(ctx, env, asked)
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrClosed) { // the reason follows within writeGrace
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

// Call sends an envelope like Send and waits for the first one correlated to
// it, whatever its type; RemoteErrorOf tells whether it is a refusal. Later ones
// are unsolicited.
//
// The id of env must not be in use. When ctx ends first, an answer that comes
// later is unsolicited.
func (c *Client) Call(ctx context.Context, env arcp.Envelope) (arcp.Envelope, error) {
	return c.call(ctx, env, nil)
}

// call is Call. An answer that opens the feed f, if it is set, does so.
func (c *Client) call(ctx context.Context, env arcp.Envelope, f *Feed) (arcp.Envelope, error) {
	if env.ID == "" {
		env.ID = arcp.NewMessageID()
	}
	answer := make(chan arcp.Envelope, 1)
	if err := c.expect(env.ID, waiting{answer, f}); err != nil {
		return arcp.Envelope{}, fmt.Errorf("call %s: %w", env.Type, err)
	}
	defer c.unexpect(env.ID)
	if err := c.send(ctx, &env, !once(env.Type)); err != nil {
		return arcp.Envelope{}, err
	}
	var err error
	select {
	case got := <-answer:
		return got, nil
	case <-c.donec:
		err = c.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	select { // both may have happened
	case got := <-answer:
		return got, nil
	default:
		return arcp.Envelope{}, fmt.Errorf("call %s: %w", env.Type, err)
	}
}

// once reports whether a message is not said again on another connection: it is
// about the one that it is sent on.
func once(t arcp.Type) bool { return t == arcp.SessionAuthenticate || t == arcp.SessionClose }

// waiting is a call under way.
type waiting struct {
	answer chan arcp.Envelope // capacity 1; nil: the feed waits, which is opened again
	feed   *Feed              // opened by the answer; nil: none
}

func (c *Client) expect(id arcp.MessageID, w waiting) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if _, used := c.calls[id]; used {
		return fmt.Errorf("the id %s is in use", id)
	}
	c.calls[id] = w
	return nil
}

func (c *Client) unexpect(id arcp.MessageID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
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

// ask is request with the payloads encoded and decoded.
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

// Ping measures how long a ping takes to be answered.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	nonce := string(arcp.NewMessageID())
	pong, err := ask[arcp.PongPayload](ctx, c, arcp.Ping, arcp.PingPayload{Nonce: nonce}, arcp.Pong)
	if err == nil && pong.Nonce != nonce {
		err = &ProtocolError{"pong", fmt.Errorf("nonce %q, want %q", pong.Nonce, nonce)}
	}
	return time.Since(start), err
}

// Ack tells the runtime that every event up to seq was processed. It does not
// wait; of several acknowledgements not yet written only the highest is.
func (c *Client) Ack(seq uint64) { c.out.putAck(seq) }

// Unsolicited iterates over the messages that nobody asked for: those of no
// call, job or feed. It ends with the connection's error or with that of ctx.
// Not used with Options.OnUnsolicited.
func (c *Client) Unsolicited(ctx context.Context) iter.Seq2[arcp.Envelope, error] {
	return c.stray.all(ctx)
}
