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

// Client is one session, over one connection or, made by Connect, over as many as
// it takes.
type Client struct {
	opts  Options
	out   *outbox
	again *reconnection // nil: when the connection ends, so does the client

	sequence   sequence      // changed by the reader alone
	acked      uint64        // by AckEvery; the reader's
	ackEvery   atomic.Uint64 // AckEvery, or less if the window is smaller
	link       *link         // the connection in use; the reader's
	farewell   error         // why the runtime is about to close; the reader's
	stray      *queue        // what nobody asked for
	worker     atomic.Pointer[worker]
	refreshing refreshing // running and next guarded by mu, the rest its goroutine's

	mu         sync.Mutex
	conn       transport.Conn // changed by the reader alone
	down       bool           // between two connections
	tokens     []Secret       // the newest that resume the session, newest first
	session    Session
	credential Secret // the newest
	calls      map[arcp.MessageID]waiting
	submits    map[arcp.MessageID]*Job // by the id of what submitted them
	jobs       map[arcp.JobID][]*Job
	feeds      map[arcp.SubscriptionID]*Feed
	asking     asking
	closing    bool  // by Close: what the connection ends with is no loss
	err        error // set once, before donec is closed

	donec chan struct{}      // nothing more is said
	life  context.Context    // ends with donec
	kill  context.CancelFunc // of life
	group sync.WaitGroup     // the goroutines
}

// New opens a session on a connection, which it owns from then on and closes
// when it fails. A refusal is a *RemoteError.
//
// The context bounds New only.
func New(ctx context.Context, conn transport.Conn, opts Options) (*Client, error) {
	return open(ctx, conn, opts, nil)
}

func open(ctx context.Context, conn transport.Conn, opts Options, again *reconnection) (*Client, error) {
	c := &Client{
		conn:    conn,
		opts:    opts.withDefaults(),
		again:   again,
		calls:   make(map[arcp.MessageID]waiting),
		submits: make(map[arcp.MessageID]*Job),
		jobs:    make(map[arcp.JobID][]*Job),
		feeds:   make(map[arcp.SubscriptionID]*Feed),
		donec:   make(chan struct{}),
	}
	c.credential = c.opts.Auth.Token
	c.life, c.kill = context.WithCancel(context.Background())
	c.out = newOutbox(c.opts.Limits.SendBuffer)
	c.out.keeps, c.sequence.lenient = again != nil, again != nil
	c.stray = newQueue(c.opts.Limits.Unsolicited, c.opts.Limits.EventBytes)
	c.startSequence()
	if err := c.attach(ctx, &handshake{c: c, conn: conn, resume: c.opts.Resume}); err != nil {
		c.kill()
		return nil, fmt.Errorf("open session: %w", err)
	}
	if r := c.opts.Resume; r != nil {
		for _, id := range r.Jobs {
			_ = c.follow(newJob(c, id)) // it fails only if the connection has ended, which every call reports
		}
	}
	c.group.Go(c.run)
	return c, nil
}

// attach does a handshake; the connection is aborted when ctx ends first, and
// closed when it fails.
func (c *Client) attach(ctx context.Context, h *handshake) error {
	h.token = c.currentCredential()
	h.conn.SetReadLimit(c.opts.Limits.Transport.ReadLimit)
	c.farewell = nil
	stop := context.AfterFunc(ctx, func() { h.conn.Abort() })
	err := h.run()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = h.conn.Close(transport.CloseNormal, "") // the handshake's error says more
	}
	return err
}

// startSequence sets what the first event number must follow: nothing in a new
// session, the position asked for in an old one, and whatever comes when the
// runtime chooses the position.
func (c *Client) startSequence() {
	switch r := c.opts.Resume; {
	case r == nil:
		c.sequence.start(0)
	case r.LastEventSeq != nil:
		c.sequence.start(*r.LastEventSeq)
	}
}

// Session is what the runtime said about the session, most recently.
func (c *Client) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

func (c *Client) sessionID() arcp.SessionID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.ID
}

// LastEventSeq is the event_seq of the last event received.
func (c *Client) LastEventSeq() uint64 { return c.sequence.last.Load() }

// Done is closed when the connection has ended, and with Connect no other can
// follow; Err then says why.
func (c *Client) Done() <-chan struct{} { return c.donec }

// Err is nil until Done is closed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close asks the runtime to end the connection in order and waits until it has,
// or until ctx ends; the connection is then closed and the goroutines are gone.
// Jobs go on, and the session can be resumed. Closing twice is fine. Between two
// connections there is nobody to ask: Close then ends the client only.
func (c *Client) Close(ctx context.Context, reason string) error {
	return c.CloseWith(ctx, arcp.SessionClosePayload{Reason: reason})
}

// CloseWith is Close with all options of session.close.
func (c *Client) CloseWith(ctx context.Context, p arcp.SessionClosePayload) error {
	c.mu.Lock()
	first, down := !c.closing && c.err == nil, c.down
	c.closing = true
	c.mu.Unlock()
	var err error
	switch {
	case down:
	case first:
		_, err = c.request(ctx, arcp.Frame(arcp.SessionClose, p), arcp.SessionClosed, nil)
	default:
		select {
		case <-c.donec:
		case <-ctx.Done():
		}
	}
	c.end(ErrClosed, closeNormal)
	c.group.Wait()
	if errors.Is(err, ErrClosed) { // the runtime was faster than its answer, or Abort was
		err = nil
	}
	return err
}

// Abort ends the connection without a word. It returns when the goroutines are
// gone.
func (c *Client) Abort() {
	c.end(ErrClosed, abort)
	c.group.Wait()
}

func abort(conn transport.Conn)       { _ = conn.Abort() } // nothing more is expected of it
func closeNormal(conn transport.Conn) { _ = conn.Close(transport.CloseNormal, "") }

// end ends the client for a reason; the first one counts.
func (c *Client) end(err error, disconnect func(transport.Conn)) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	jobs, feeds := c.allLocked()
	conn := c.conn
	close(c.donec)
	c.mu.Unlock()

	c.kill()
	c.out.close()
	disconnect(conn)
	c.stray.finish(err)
	for _, j := range jobs {
		j.finish(err)
	}
	for _, f := range feeds {
		f.queue.finish(err)
	}
}

// allLocked takes every handle out of the tables.
func (c *Client) allLocked() (jobs []*Job, feeds []*Feed) {
	for _, j := range c.submits {
		jobs = append(jobs, j)
	}
	for _, js := range c.jobs {
		jobs = append(jobs, js...)
	}
	clear(c.submits)
	clear(c.jobs)
	return jobs, c.takeFeedsLocked()
}

// lost wraps a transport's error.
func lost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, err)
}
