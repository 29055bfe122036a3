package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Client is one connection of one session.
type Client struct {
	conn transport.Conn
	opts Options
	out  *outbox

	sequence   sequence // changed by the reader alone
	acked      uint64   // by AckEvery; the reader's
	farewell   error    // why the runtime is about to close; the reader's
	stray      *queue   // what nobody asked for
	refreshing atomic.Bool

	mu      sync.Mutex
	session Session
	calls   map[arcp.MessageID]waiting
	submits map[arcp.MessageID]*Job // by the id of what submitted them
	jobs    map[arcp.JobID][]*Job
	feeds   map[arcp.SubscriptionID]*Feed
	closing bool  // by Close: what the connection ends with is no loss
	err     error // set once, before donec is closed

	donec chan struct{}  // the connection has ended
	group sync.WaitGroup // the goroutines
}

// New opens a session on a connection, which it owns from then on and closes
// when it fails. A refusal is a *RemoteError.
//
// The context bounds New only.
func New(ctx context.Context, conn transport.Conn, opts Options) (*Client, error) {
	c := &Client{
		conn:    conn,
		opts:    opts.withDefaults(),
		calls:   make(map[arcp.MessageID]waiting),
		submits: make(map[arcp.MessageID]*Job),
		jobs:    make(map[arcp.JobID][]*Job),
		feeds:   make(map[arcp.SubscriptionID]*Feed),
		donec:   make(chan struct{}),
	}
	c.out = newOutbox(c.opts.Limits.SendBuffer)
	c.stray = newQueue(c.opts.Limits.Unsolicited, c.opts.Limits.EventBytes)
	conn.SetReadLimit(c.opts.Limits.Transport.ReadLimit)
	if err := c.open(ctx); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	c.group.Go(c.read)
	c.group.Go(c.write)
	return c, nil
}

// open does the handshake; the connection is aborted when ctx ends first.
func (c *Client) open(ctx context.Context) error {
	c.startSequence()
	h := handshake{c: c, token: c.opts.Auth.Token}
	stop := context.AfterFunc(ctx, func() { c.conn.Abort() })
	err := h.run()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.conn.Close(transport.CloseNormal, "") // the handshake's error says more
		return err
	}
	if r := c.opts.Resume; r != nil {
		for _, id := range r.Jobs {
			c.follow(newJob(c, id))
		}
	}
	return nil
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

// Done is closed when the connection has ended; Err then says why.
func (c *Client) Done() <-chan struct{} { return c.donec }

// Err is nil until the connection has ended.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close asks the runtime to end the connection in order and waits until it has,
// or until ctx ends; the connection is then closed and the goroutines are gone.
// Jobs go on, and the session can be resumed. Closing twice is fine.
func (c *Client) Close(ctx context.Context, reason string) error {
	return c.CloseWith(ctx, arcp.SessionClosePayload{Reason: reason})
}

// CloseWith is Close with all options of session.close.
func (c *Client) CloseWith(ctx context.Context, p arcp.SessionClosePayload) error {
	c.mu.Lock()
	first := !c.closing && c.err == nil
	c.closing = true
	c.mu.Unlock()
	var err error
	if first {
		_, err = c.request(ctx, arcp.Frame(arcp.SessionClose, p), arcp.SessionClosed, nil)
	} else {
		select {
		case <-c.donec:
		case <-ctx.Done():
		}
	}
	c.end(ErrClosed, func() { c.conn.Close(transport.CloseNormal, "") })
	c.group.Wait()
	if errors.Is(err, ErrClosed) { // the runtime was faster than its answer, or Abort was
		err = nil
	}
	return err
}

// Abort ends the connection without a word. It returns when the goroutines are
// gone.
func (c *Client) Abort() {
	c.end(ErrClosed, func() { c.conn.Abort() })
	c.group.Wait()
}

// end ends the connection for a reason; the first one counts.
func (c *Client) end(err error, disconnect func()) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	jobs, feeds := c.allLocked()
	close(c.donec)
	c.mu.Unlock()

	c.out.close()
	disconnect()
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
	for _, f := range c.feeds {
		feeds = append(feeds, f)
	}
	clear(c.submits)
	clear(c.jobs)
	clear(c.feeds)
	return jobs, feeds
}

// lost wraps a transport's error.
func lost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, err)
}

// writeGrace is how long the reader may go on after a failed write: what the
// runtime said before it closed is the better reason.
const writeGrace = time.Second

// write is the writer's goroutine.
func (c *Client) write() {
	err := c.out.run(c.conn, func(seq uint64) *arcp.Envelope {
		env := arcp.Frame(arcp.SessionAck, arcp.SessionAckPayload{LastProcessedSeq: seq})
		c.stamp(&env)
		return &env
	})
	if err == nil {
		return
	}
	c.out.close()
	select {
	case <-c.donec:
	case <-time.After(writeGrace):
		c.end(lost(err), func() { c.conn.Abort() })
	}
}

// read is the reader's goroutine.
func (c *Client) read() {
	var env arcp.Envelope
	for {
		var err error
		if env, err = c.readFrame(); err == nil {
			err = c.receive(&env)
		}
		if err != nil {
			c.readEnded(err)
			return
		}
	}
}

func (c *Client) readFrame() (arcp.Envelope, error) {
	frame, err := c.conn.Read()
	if err != nil && c.farewell != nil {
		return arcp.Envelope{}, fmt.Errorf("%w: %w (%w)", ErrConnectionLost, c.farewell, err)
	}
	if err != nil {
		return arcp.Envelope{}, lost(err)
	}
	env, err := arcp.Decode(frame)
	if err != nil {
		return env, &ProtocolError{"read", err}
	}
	return env, nil
}

func (c *Client) readEnded(err error) {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if !errors.Is(err, ErrConnectionLost) {
		c.end(err, func() { c.conn.Close(transport.ClosePolicy, err.Error()) })
		return
	}
	if closing {
		err = ErrClosed
	}
	c.end(err, func() { c.conn.Abort() })
}
