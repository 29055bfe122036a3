package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Client is one session, over one connection or, with Connect, over several consecutive
// connections.
type Client struct {
	opts        Options
	out         *outbox
	reader      reader
	state       sessionState
	questions   questions
	refresher   refresher
	unsolicited *queue        // messages for Unsolicited
	reconnect   *reconnection // nil without Connect: the client ends with its connection
	worker      atomic.Pointer[worker]

	mu      sync.Mutex
	routes  routes
	conn    transport.Conn // changed by the reader only
	down    bool           // no connection: between two connections
	closing bool           // Close was called: the end of the connection is not an error
	err     error          // set once, before donec is closed

	donec chan struct{}      // closed at the end of the client
	life  context.Context    // ends with donec
	kill  context.CancelFunc // ends life
	group sync.WaitGroup     // all goroutines
}

// New opens a session on conn. The client owns conn, and closes it if New fails. A refused session is a
// *RemoteError.
//
// The context bounds New only.
func New(ctx context.Context, conn transport.Conn, opts Options) (*Client, error) {
	return open(ctx, conn, opts, nil)
}

func open(ctx context.Context, conn transport.Conn, opts Options, r *reconnection) (*Client, error) {
	opts = opts.withDefaults()
	if opts.DetectDialect {
		closeNormal(conn) // the error of the options is more useful
		return nil, errors.New("open session: DetectDialect needs Dial or Connect")
	}
	conn = opts.inDialect(conn)
	c := &Client{conn: conn, opts: opts, reconnect: r, routes: newRoutes(), donec: make(chan struct{})}
	c.reader.c, c.questions.c, c.refresher.c = c, c, c
	if r != nil {
		r.c = c
	}
	c.refresher.credential = c.opts.Auth.Token
	c.life, c.kill = context.WithCancel(context.Background())
	c.out = newOutbox(c.opts.Limits.SendBuffer)
	c.out.resends, c.reader.sequence.lenient = r != nil, r != nil
	c.unsolicited = newQueue(c.opts.Limits.Unsolicited, c.opts.Limits.EventBytes)
	c.reader.sequence.startFor(c.opts.Resume)
	if err := (&handshake{c: c, conn: conn, resume: c.opts.Resume}).attach(ctx); err != nil {
		c.kill()
		return nil, fmt.Errorf("open session: %w", err)
	}
	if resume := c.opts.Resume; resume != nil {
		for _, id := range resume.Jobs {
			_ = c.follow(newJob(c, id)) // fails only after the end of the client, which every call reports
		}
	}
	c.group.Go(c.reader.run)
	return c, nil
}

// Session returns the session as last announced by the runtime.
func (c *Client) Session() Session {
	s := c.state.get()
	s.Dialect = c.opts.Dialect
	return s
}

// LastEventSeq returns the event_seq of the last event received.
func (c *Client) LastEventSeq() uint64 { return c.reader.sequence.last.Load() }

// Done returns a channel that is closed at the end of the client. Without Connect this is the end of
// the connection. Err then returns the reason.
func (c *Client) Done() <-chan struct{} { return c.donec }

// Err returns the reason of the end; nil before Done is closed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close sends session.close and waits for session.closed or the end of ctx. On return the connection is
// closed and the goroutines have ended. Jobs continue, and the session can be resumed. Further calls do
// nothing. Without a connection Close only ends the client.
func (c *Client) Close(ctx context.Context, reason string) error {
	return c.CloseWith(ctx, CloseParams{Reason: reason})
}

// CloseParams are the options of CloseWith.
type CloseParams struct {
	Reason     string // for people
	CancelJobs bool   // cancel the jobs of the session that have not ended; else they continue
	Forget     bool   // end the session; else it can be resumed
}

func (p CloseParams) payload() arcp.SessionClosePayload {
	payload := arcp.SessionClosePayload{Reason: p.Reason, Forget: p.Forget}
	if p.CancelJobs {
		payload.OpenJobs = "cancel"
	}
	return payload
}

// CloseWith is Close with options.
func (c *Client) CloseWith(ctx context.Context, p CloseParams) error {
	c.mu.Lock()
	first, down := !c.closing && c.err == nil, c.down
	c.closing = true
	c.mu.Unlock()
	var err error
	switch {
	case down:
	case first:
		_, err = c.request(ctx, arcp.Frame(arcp.SessionClose, p.payload()), arcp.SessionClosed, nil)
	default:
		select {
		case <-c.donec:
		case <-ctx.Done():
		}
	}
	c.end(ErrClosed, closeNormal)
	c.group.Wait()
	if errors.Is(err, ErrClosed) { // the connection closed before the answer, or Abort was called
		err = nil
	}
	return err
}

// Abort ends the connection without session.close. It returns when the goroutines have ended.
func (c *Client) Abort() {
	c.end(ErrClosed, abort)
	c.group.Wait()
}

func abort(conn transport.Conn)       { _ = conn.Abort() } // the connection is not used any more
func closeNormal(conn transport.Conn) { _ = conn.Close(transport.CloseNormal, "") }

// end ends the client with err. Only the first call has an effect.
func (c *Client) end(err error, disconnect func(transport.Conn)) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	jobs, feeds := c.routes.removeAll()
	conn := c.conn
	close(c.donec)
	c.mu.Unlock()

	c.kill()
	c.out.close()
	disconnect(conn)
	c.unsolicited.finish(err)
	for _, j := range jobs {
		j.endWithError(err)
	}
	for _, f := range feeds {
		f.queue.finish(err)
	}
}

// connectionLost wraps a transport error in ErrConnectionLost; nil stays nil.
func connectionLost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, err)
}
