package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/backoff"
	"github.com/arcpd/arcpd/transport"
)

// Connect is Dial for a client that outlives its connections: when one is lost
// it dials again and resumes the session (§3.1), and who uses the client notices
// nothing but a delay.
//
//   - Jobs and feeds go on where they were: no event is missing and none comes
//     twice. A feed that has not seen an event yet goes on live, and so does one
//     whose last event the runtime does not keep any more, after a FeedGap.
//   - What was asked and not answered is asked again under the same id, which the
//     runtime executes once. What waits for an answer waits on, as long as its
//     context allows; so does what is asked between two connections, and when its
//     context ends before there is one, it was never said.
//   - What needs no answer, by Send and Reply, may be lost with a connection.
//
// It ends like another client when it is closed, evicted or superseded by another
// connection of the session, or when the runtime breaks the protocol; but it comes
// back when it was evicted because nothing was heard of it for too long, or with
// Auth.Refresh because its credential has ended. It ends with
// ErrSessionLost when the session cannot be resumed. Jobs do not end with it: a
// new client finds them with ListJobs and follows them with Subscribe.
func Connect(ctx context.Context, address string, opts Options) (*Client, error) {
	return ConnectFunc(ctx, func(ctx context.Context) (transport.Conn, error) {
		return connect(ctx, address, &opts)
	}, opts)
}

// ConnectFunc is Connect over whatever dial returns. It is called for each
// connection, by one goroutine at a time.
func ConnectFunc(ctx context.Context, dial func(context.Context) (transport.Conn, error), opts Options) (*Client, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	r := opts.Reconnect.withDefaults()
	return open(ctx, conn, opts, &reconnection{Reconnect: r, dial: dial, delays: backoff.Backoff{Policy: backoff.Policy{Min: r.MinDelay, Max: r.MaxDelay}}})
}

// Reconnect says how a client of Connect finds back. The zero value will do.
type Reconnect struct {
	// Window bounds the time without a connection; default the resume window
	// that the runtime announced, or 10 minutes.
	Window time.Duration

	// Before each attempt comes a random delay of at most MinDelay, default 100
	// ms; it doubles with each attempt up to MaxDelay, default 5 s.
	MinDelay, MaxDelay time.Duration

	// OnChange is told when a connection is lost and when the session goes on or
	// is lost too. It is called by the client's goroutine and must not block.
	OnChange func(Change)
}

func (r Reconnect) withDefaults() Reconnect {
	setDefault(&r.MinDelay, 100*time.Millisecond)
	setDefault(&r.MaxDelay, 5*time.Second)
	r.MinDelay = max(r.MinDelay, time.Millisecond)
	r.MaxDelay = max(r.MaxDelay, r.MinDelay)
	if r.OnChange == nil {
		r.OnChange = func(Change) {}
	}
	return r
}

// Change is what became of a connection.
type Change struct {
	State LinkState
	Err   error // why the connection, or the session, was lost
}

// LinkState is where a client of Connect is.
type LinkState int

const (
	Reconnecting LinkState = iota + 1 // the connection is lost; others are tried
	Resumed                           // the session goes on over another one
	Lost                              // it cannot; the client has ended
)

func (s LinkState) String() string {
	switch s {
	case Reconnecting:
		return "reconnecting"
	case Resumed:
		return "resumed"
	case Lost:
		return "lost"
	}
	return fmt.Sprintf("LinkState(%d)", int(s))
}

// reconnection is how the client gets its next connection. The reader's.
type reconnection struct {
	Reconnect
	dial   func(context.Context) (transport.Conn, error)
	delays backoff.Backoff // the longest before each attempt
	ghosts int             // attempts whose answer did not come
}

// settle is told how long a connection lasted: one that ends at once must not
// make attempts more frequent.
func (r *reconnection) settle(lasted time.Duration) {
	r.delays.Lasted(lasted)
	if lasted > attemptTimeout {
		r.ghosts = 0
	}
}

// haunted reports whether a failure may be the work of a ghost: the runtime may
// have acted on an attempt whose answer did not come while it acted on the next
// one, and let the wrong one have the session. Each is believed in once.
func (r *reconnection) haunted(err error) bool {
	if r.ghosts == 0 || !superseded(err) && !expired(err) {
		return false
	}
	r.ghosts--
	return true
}

func superseded(err error) bool {
	e, ok := errors.AsType[*transport.Error](err)
	return ok && e.Code == transport.ClosePolicy && strings.Contains(e.Reason, "superseded")
}

func expired(err error) bool {
	e, ok := errors.AsType[*RemoteError](err)
	return ok && e.Code == arcp.CodeResumeWindowExpired
}

const (
	// defaultWindow is for a runtime that announces none: the usual one.
	defaultWindow = 10 * time.Minute
	// attemptTimeout bounds one attempt: a network that swallows it must not
	// take the time of the others.
	attemptTimeout = 10 * time.Second
	// maxGhosts is more than act at the same time, and few enough that a session
	// that is really lost is soon given up.
	maxGhosts = 3
)

var errNoAnswer = fmt.Errorf("%w: no answer within %s", ErrUnreachable, attemptTimeout)

// pause waits before an attempt.
func (r *reconnection) pause(ctx context.Context, least time.Duration) error {
	return backoff.Sleep(ctx, max(rand.N(r.delays.Next()), least))
}

// dropped reports whether the session may go on over another connection, which
// it is then waiting for.
func (c *Client) dropped(err error, lasted time.Duration) bool {
	if c.again == nil {
		return false
	}
	c.again.settle(lasted)
	passing := passing(err) || c.again.haunted(err) || c.welcome(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = passing && c.err == nil && !c.closing && len(c.tokens) > 0
	return c.down
}

// welcome reports whether the runtime, although it evicted the session, lets its
// client come back: it had not heard of it for too long, or wants to see a fresh
// credential.
func (c *Client) welcome(err error) bool {
	e, ok := errors.AsType[*RemoteError](err)
	return ok && e.Type == arcp.SessionEvicted &&
		(e.Code == arcp.CodeLeaseExpired || e.Code == arcp.CodeUnauthenticated && c.opts.Auth.Refresh != nil)
}

// passing reports whether a connection was lost for a reason that another one
// need not meet.
func passing(err error) bool {
	if _, evicted := errors.AsType[*RemoteError](err); evicted || !errors.Is(err, ErrConnectionLost) {
		return false
	}
	e, _ := errors.AsType[*transport.Error](err)
	if e == nil {
		return true
	}
	switch e.Code {
	case transport.ClosePolicy: // superseded, evicted, not authenticated
		return strings.Contains(e.Reason, "heartbeat lost")
	case transport.CloseProtocol, transport.CloseNotText, transport.CloseNotUTF8, transport.CloseTooBig:
		return false // it would be said again
	}
	return true
}

// comeBack resumes the session on another connection.
func (c *Client) comeBack(why error) error {
	c.again.OnChange(Change{Reconnecting, why})
	if err := c.tryAll(why); err != nil {
		if c.Err() != nil { // closed meanwhile
			return err
		}
		err = fmt.Errorf("%w: %w", ErrSessionLost, err)
		c.again.OnChange(Change{Lost, err})
		return err
	}
	c.again.OnChange(Change{State: Resumed})
	return nil
}

// tryAll makes attempts until one succeeds, none can, or the time is over.
func (c *Client) tryAll(last error) error {
	window := c.window()
	ctx, cancel := context.WithTimeout(c.life, window)
	defer cancel()
	for {
		if c.again.pause(ctx, retryAfter(last)) != nil {
			return fmt.Errorf("no connection within %s: %w", window, last)
		}
		last = c.attempt(ctx)
		if last == nil || hopeless(last) && !c.again.haunted(last) {
			return last
		}
	}
}

func (c *Client) window() time.Duration {
	if c.again.Window > 0 {
		return c.again.Window
	}
	if w := c.Session().ResumeWindow; w > 0 {
		return w
	}
	return defaultWindow
}

func retryAfter(err error) time.Duration {
	e, ok := errors.AsType[*RemoteError](err)
	if !ok {
		return 0
	}
	d, _ := e.RetryAfter()
	return d
}

// hopeless reports whether another attempt would fail too.
func hopeless(err error) bool {
	if e, ok := errors.AsType[*RemoteError](err); ok {
		return !e.Retryable
	}
	if _, ok := errors.AsType[*SequenceError](err); ok || errors.Is(err, errOtherSession) {
		return true
	}
	if _, ok := errors.AsType[*ProtocolError](err); ok {
		return true
	}
	return errors.Is(err, ErrConnectionLost) && !passing(err)
}

// attempt makes one connection, or as many as there are tokens: when the reply
// to a resume was lost, the runtime may know either.
func (c *Client) attempt(ctx context.Context) (err error) {
	c.mu.Lock()
	tokens := c.tokens
	c.mu.Unlock()
	for _, token := range tokens {
		if err = c.resume(ctx, token); !expired(err) {
			break
		}
	}
	if e, ok := errors.AsType[*RemoteError](err); ok && e.Code == arcp.CodeUnauthenticated && c.opts.Auth.Refresh != nil {
		return c.reopen(ctx)
	}
	return err
}

// reopen attaches to the session with a fresh credential: tokens do not outlive
// the one before.
func (c *Client) reopen(ctx context.Context) error {
	token, err := c.freshToken(ctx)
	if err != nil {
		return err
	}
	c.setCredential(token)
	return c.resume(ctx, "")
}

// resume makes a connection and resumes the session on it, or without a token
// opens it again.
func (c *Client) resume(ctx context.Context, token Secret) error {
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errNoAnswer)
	defer cancel()
	conn, err := c.again.dial(ctx)
	if err != nil {
		return err
	}
	r := &Resume{SessionID: c.sessionID(), Token: token, LastEventSeq: new(c.LastEventSeq())}
	if err := c.attach(ctx, &handshake{c: c, conn: conn, resume: r, back: true}); err != nil {
		if _, answered := errors.AsType[*RemoteError](err); !answered {
			c.again.ghosts = min(c.again.ghosts+1, maxGhosts)
		}
		return err
	}
	return c.carryOn(conn)
}

// carryOn makes conn the client's connection and says again what went unanswered
// on the one before.
func (c *Client) carryOn(conn transport.Conn) error {
	c.out.rewind()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		abort(conn)
		return c.err
	}
	for _, f := range c.takeFeedsLocked() {
		c.reopenLocked(f)
	}
	c.conn, c.down = conn, false
	return nil
}
