package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/transport"
)

// UnsupportedError says that the dialect of the client cannot express a message.
type UnsupportedError = draft.UnsupportedError

// dialFunc makes a connection.
type dialFunc func(context.Context) (transport.Conn, error)

// openOver opens a client over a new connection, with DetectDialect over at most three. r is nil
// without Connect.
func openOver(ctx context.Context, dial dialFunc, opts Options, r *reconnection) (*Client, error) {
	if opts.DetectDialect {
		return openAuto(ctx, dial, opts, r)
	}
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	return open(ctx, conn, opts, r)
}

// openAuto opens a client in the dialect that the runtime understands. A lost connection alone does not
// tell the dialect: the runtime may have stopped. Then session.open is sent once more.
func openAuto(ctx context.Context, dial dialFunc, opts Options, r *reconnection) (*Client, error) {
	opts.Dialect, opts.DetectDialect = arcp.DialectRFC, false
	c, err := openRFC(ctx, dial, opts, r)
	if ctx.Err() == nil && errors.Is(err, ErrConnectionLost) {
		c, err = openRFC(ctx, dial, opts, r)
	}
	if err == nil || ctx.Err() != nil || !notUnderstood(err) {
		return c, err
	}
	opts.Dialect = arcp.DialectDraft
	c, inDraft := openOver(ctx, dial, opts, r)
	if inDraft != nil {
		return nil, fmt.Errorf("%w; in the draft dialect: %w", err, inDraft)
	}
	return c, nil
}

// openingTimeout bounds the wait for the answer to session.open with DetectDialect.
const openingTimeout = 5 * time.Second

var errSilent = fmt.Errorf("%w: session.open has no answer within %s", ErrConnectionLost, openingTimeout)

// openRFC opens a client over a new connection, and waits for the answer at most openingTimeout.
func openRFC(ctx context.Context, dial dialFunc, opts Options, r *reconnection) (*Client, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openingTimeout, errSilent)
	defer cancel()
	return open(ctx, conn, opts, r)
}

// notUnderstood reports whether a runtime may fail the handshake so because it does not know
// session.open: it is silent, closes the connection, or answers with another message.
func notUnderstood(err error) bool {
	if refusal, ok := errors.AsType[*RemoteError](err); ok {
		return refusal.Type == arcp.Nack && (refusal.Code == arcp.CodeUnimplemented ||
			refusal.Code == arcp.CodeInvalidRequest || refusal.Code == arcp.CodeInvalidArgument)
	}
	_, strange := errors.AsType[*ProtocolError](err)
	return strange || errors.Is(err, ErrConnectionLost)
}

// inDialect returns a connection that reads and writes frames of RFC 0001. In the draft dialect a codec
// translates them.
func (o *Options) inDialect(conn transport.Conn) transport.Conn {
	if o.Dialect == arcp.DialectDraft {
		return &draftConn{Conn: conn, codec: draft.NewClientCodec()}
	}
	return conn
}

// check returns an *UnsupportedError for a message that the dialect cannot express.
func (o *Options) check(env *arcp.Envelope) error {
	if o.Dialect == arcp.DialectDraft {
		return draft.Check(env)
	}
	return nil
}

// draftConn translates the frames of a connection in the draft dialect.
type draftConn struct {
	transport.Conn
	codec   *draft.ClientCodec
	in, out []byte // frames
}

// Read returns the next frame with an equivalent in RFC 0001.
func (c *draftConn) Read() ([]byte, error) {
	for {
		frame, err := c.Conn.Read()
		if err != nil {
			return nil, err
		}
		env, ok, err := c.codec.Decode(frame)
		if err != nil {
			return nil, &ProtocolError{"read", err}
		}
		if !ok {
			continue
		}
		if env.Timestamp.IsZero() {
			env.Timestamp = time.Now()
		}
		c.in = env.Append(c.in[:0])
		return c.in, nil
	}
}

// Write translates a frame and writes it.
func (c *draftConn) Write(frame []byte) error {
	env, err := arcp.Decode(frame)
	if err != nil {
		return err
	}
	if c.out, err = c.codec.Append(c.out[:0], &env); err != nil {
		return err
	}
	return c.Conn.Write(c.out)
}
