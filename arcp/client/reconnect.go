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

// Connect is Dial for a client that outlives its connections: when one is lost it
// dials again and resumes the session (§3.1). The user of the client notices a delay
// only.
//
//   - Jobs and feeds continue: no event is missing and none comes twice. A feed that
//     has not delivered an event yet continues live, and so does one whose last event
//     the runtime does not retain any more, after a FeedGap.
//   - Requests without an answer are sent again under the same id, which the runtime
//     executes once. Calls wait on, as long as their contexts allow. A request made
//     between two connections whose context ends before there is one was never sent.
//   - Messages without an answer, of Send and Reply, may be lost with a connection.
//
// The client ends when it is closed, evicted or superseded by another connection of
// the session, and when the runtime breaks the protocol. It comes back after an
// eviction for silence, and with Auth.Refresh after one for an expired credential. It
// ends with ErrSessionLost when the session cannot be resumed. Jobs do not end with
// it: a new client finds them with Jobs and follows them with SubscribeJob.
func Connect(ctx context.Context, address string, opts Options) (*Client, error) {
	return ConnectFunc(ctx, func(ctx context.Context) (transport.Conn, error) {
		return connect(ctx, address, &opts)
	}, opts)
}

// ConnectFunc is Connect with a function that makes connections. One goroutine at a
// time calls it, once for each connection.
func ConnectFunc(ctx context.Context, dial func(context.Context) (transport.Conn, error), opts Options) (*Client, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	r := opts.Reconnect.withDefaults()
	return open(ctx, conn, opts, &reconnection{Reconnect: r, dial: dial, delays: backoff.Backoff{Policy: backoff.Policy{Min: r.MinDelay, Max: r.MaxDelay}}})
}

// Reconnect bounds how a client of Connect reconnects. Zero members are the defaults.
type Reconnect struct {
	// Window bounds the time without a connection; default the resume window that the
	// runtime announced, or 10 minutes.
	Window time.Duration

	// A random delay of at most MinDelay, default 100 ms, precedes each attempt; it
	// doubles with each attempt up to MaxDelay, default 5 s.
	MinDelay, MaxDelay time.Duration

	// OnChange is called when a connection is lost, and when the session is resumed or
	// lost. The client's goroutine calls it: it must not block.
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

// Change is a change of the connection of a client of Connect.
type Change struct {
	State LinkState
	Err   error // why the connection, or the session, was lost
}

// LinkState is the state of the connection of a client of Connect.
type LinkState int

const (
	Reconnecting LinkState = iota + 1 // the connection is lost; the client dials again
	Resumed                           // the session continues over a new connection
	Lost                              // the session cannot be resumed; the client has ended
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

// reconnection makes the next connection of a client. The reader owns it.
type reconnection struct {
	Reconnect
	c          *Client
	dial       func(context.Context) (transport.Conn, error)
	delays     backoff.Backoff // longest delays before the attempts
	unanswered int             // attempts without an answer
}

const (
	// defaultWindow is for a runtime that announces no resume window.
	defaultWindow = 10 * time.Minute
	// attemptTimeout bounds one attempt: a network that drops it must not use up the
	// window.
	attemptTimeout = 10 * time.Second
	// maxUnanswered is more attempts than a runtime handles at the same time, and few
	// enough that a lost session is soon reported.
	maxUnanswered = 3
)

var errNoAnswer = fmt.Errorf("%w: no answer within %s", ErrUnreachable, attemptTimeout)

// begin reports whether the session may continue over another connection after an
// error; lasted is the time that the connection existed. The client is then without a
// connection.
func (r *reconnection) begin(err error, lasted time.Duration) bool {
	r.delays.Lasted(lasted)
	if lasted > attemptTimeout {
		r.unanswered = 0
	}
	resumable := isTransient(err) || r.causedByUnanswered(err) || r.mayReturn(err)
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = resumable && c.err == nil && !c.closing && len(c.state.resumeTokens()) > 0
	return c.down
}

// causedByUnanswered reports whether a failure may be the effect of an earlier attempt
// whose answer was lost: the runtime may have accepted that one after a later one, and
// superseded the wrong connection. Each unanswered attempt explains one failure.
func (r *reconnection) causedByUnanswered(err error) bool {
	if r.unanswered == 0 || !superseded(err) && !expired(err) {
		return false
	}
	r.unanswered--
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

// mayReturn reports whether the runtime accepts the client again although it evicted
// the session: for silence, or for an expired credential that can be refreshed.
func (r *reconnection) mayReturn(err error) bool {
	e, ok := errors.AsType[*RemoteError](err)
	return ok && e.Type == arcp.SessionEvicted &&
		(e.Code == arcp.CodeLeaseExpired || e.Code == arcp.CodeUnauthenticated && r.c.opts.Auth.Refresh != nil)
}

// isTransient reports whether the reason of a lost connection need not affect another
// one.
func isTransient(err error) bool {
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
		return false // the same frame would be sent again
	}
	return true
}

// isFatal reports whether another attempt would fail, too.
func isFatal(err error) bool {
	if e, ok := errors.AsType[*RemoteError](err); ok {
		return !e.Retryable
	}
	if _, ok := errors.AsType[*SequenceError](err); ok || errors.Is(err, errOtherSession) {
		return true
	}
	if _, ok := errors.AsType[*ProtocolError](err); ok {
		return true
	}
	return errors.Is(err, ErrConnectionLost) && !isTransient(err)
}

// run resumes the session on another connection.
func (r *reconnection) run(cause error) error {
	r.OnChange(Change{Reconnecting, cause})
	if err := r.retry(cause); err != nil {
		if r.c.Err() != nil { // closed meanwhile
			return err
		}
		err = fmt.Errorf("%w: %w", ErrSessionLost, err)
		r.OnChange(Change{Lost, err})
		return err
	}
	r.OnChange(Change{State: Resumed})
	return nil
}

// retry makes attempts until one succeeds or is fatal, or the window is over.
func (r *reconnection) retry(last error) error {
	window := r.window()
	ctx, cancel := context.WithTimeout(r.c.life, window)
	defer cancel()
	for {
		if r.pause(ctx, retryAfter(last)) != nil {
			return fmt.Errorf("no connection within %s: %w", window, last)
		}
		last = r.attempt(ctx)
		if last == nil || isFatal(last) && !r.causedByUnanswered(last) {
			return last
		}
	}
}

func (r *reconnection) window() time.Duration {
	if r.Window > 0 {
		return r.Window
	}
	if w := r.c.Session().ResumeWindow; w > 0 {
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

// pause waits before an attempt, at least for a duration.
func (r *reconnection) pause(ctx context.Context, least time.Duration) error {
	return backoff.Sleep(ctx, max(rand.N(r.delays.Next()), least))
}

// attempt makes one connection for each resume token until one is accepted: when the
// reply to a resume was lost, the runtime may know either token.
func (r *reconnection) attempt(ctx context.Context) (err error) {
	for _, token := range r.c.state.resumeTokens() {
		if err = r.resume(ctx, token); !expired(err) {
			break
		}
	}
	if e, ok := errors.AsType[*RemoteError](err); ok && e.Code == arcp.CodeUnauthenticated && r.c.opts.Auth.Refresh != nil {
		return r.reopen(ctx)
	}
	return err
}

// reopen attaches to the session with a new credential: resume tokens end with the
// credential before.
func (r *reconnection) reopen(ctx context.Context) error {
	token, err := r.c.refresher.renew(ctx)
	if err != nil {
		return err
	}
	r.c.refresher.set(token)
	return r.resume(ctx, "")
}

// resume makes a connection and resumes the session on it; without a token it opens
// the session again.
func (r *reconnection) resume(ctx context.Context, token Secret) error {
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errNoAnswer)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	h := &handshake{c: r.c, conn: conn, resume: &Resume{SessionID: r.c.state.id(), Token: token, LastEventSeq: new(r.c.LastEventSeq())}, reattach: true}
	if err := h.attach(ctx); err != nil {
		if _, answered := errors.AsType[*RemoteError](err); !answered {
			r.unanswered = min(r.unanswered+1, maxUnanswered)
		}
		return err
	}
	return r.use(conn)
}

// use makes conn the client's connection and sends the unanswered messages of the previous
// connection again.
func (r *reconnection) use(conn transport.Conn) error {
	c := r.c
	c.out.requeue()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		abort(conn)
		return c.err
	}
	for _, f := range c.routes.removeFeeds() {
		f.reopenLocked()
	}
	c.conn, c.down = conn, false
	return nil
}
