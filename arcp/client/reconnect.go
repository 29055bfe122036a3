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

// Connect is Dial for a client that outlives its connections. When a connection is lost the client dials
// again and resumes the session (§3.1).
//
//   - Jobs and feeds continue without missing or repeated events. A feed without a delivered
//     event continues live. A feed whose last event the runtime has dropped also continues
//     live, after a FeedGap.
//   - Unanswered requests are sent again with the same id, which the runtime executes once.
//     Calls wait as long as their contexts allow. A request whose context ends while there is
//     no connection was not sent.
//   - Messages of Send and Reply may be lost with a connection.
//
// The client ends when it is closed, evicted or superseded by another connection of the session, and when
// the runtime violates the protocol. It reconnects after an eviction for silence, and with Auth.Refresh
// after an eviction for an expired credential. It ends with ErrSessionLost when the session cannot be
// resumed. The jobs continue: a new client lists them with Jobs and follows them with SubscribeJob.
func Connect(ctx context.Context, address string, opts Options) (*Client, error) {
	return ConnectFunc(ctx, func(ctx context.Context) (transport.Conn, error) {
		return connect(ctx, address, &opts)
	}, opts)
}

// ConnectFunc is Connect with a function that connects. Calls of dial do not overlap.
func ConnectFunc(ctx context.Context, dial func(context.Context) (transport.Conn, error), opts Options) (*Client, error) {
	r := opts.Reconnect.withDefaults()
	delays := backoff.Backoff{Policy: backoff.Policy{Min: r.MinDelay, Max: r.MaxDelay}}
	return openOver(ctx, dial, opts, &reconnection{Reconnect: r, dial: dial, delays: delays})
}

// Reconnect bounds the reconnects of a client of Connect. A zero member has the documented default.
type Reconnect struct {
	// Window bounds the time without a connection. Default: the resume window announced by
	// the runtime, or 10 min.
	Window time.Duration

	// MinDelay is the largest delay before the first attempt, default 100 ms. It doubles
	// with each attempt up to MaxDelay, default 5 s. The delays are random.
	MinDelay, MaxDelay time.Duration

	// OnChange is called when a connection is lost, and when the session is resumed or
	// lost. The reader calls it: it must not block.
	OnChange func(LinkChange)
}

func (r Reconnect) withDefaults() Reconnect {
	setDefault(&r.MinDelay, 100*time.Millisecond)
	setDefault(&r.MaxDelay, 5*time.Second)
	r.MinDelay = max(r.MinDelay, time.Millisecond)
	r.MaxDelay = max(r.MaxDelay, r.MinDelay)
	if r.OnChange == nil {
		r.OnChange = func(LinkChange) {}
	}
	return r
}

// LinkChange is a change in the connection of a client of Connect.
type LinkChange struct {
	State LinkState
	Err   error // reason of Reconnecting or Lost
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

// reconnection makes the next connection of a client. It belongs to the reader.
type reconnection struct {
	Reconnect
	c                  *Client
	dial               dialFunc
	delays             backoff.Backoff // largest delays before the attempts
	unansweredAttempts int             // number of attempts without an answer
}

const (
	// defaultWindow is the window if the runtime announces none.
	defaultWindow = 10 * time.Minute
	// attemptTimeout bounds one attempt, so a lost packet does not use up the window.
	attemptTimeout = 10 * time.Second
	// maxUnansweredAttempts bounds the failures explained by unanswered attempts. A lost session is
	// then reported soon.
	maxUnansweredAttempts = 3
)

var errNoAnswer = fmt.Errorf("%w: no answer within %s", ErrUnreachable, attemptTimeout)

// begin reports whether the session may continue over another connection after err. lasted is the
// lifetime of the lost connection. If so, the client is marked as down.
func (r *reconnection) begin(err error, lasted time.Duration) bool {
	r.delays.Lasted(lasted)
	if lasted > attemptTimeout {
		r.unansweredAttempts = 0
	}
	resumable := isTransient(err) || r.causedByUnanswered(err) || r.mayReturn(err)
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = resumable && c.err == nil && !c.closing && len(c.state.resumeTokens()) > 0
	return c.down
}

// causedByUnanswered reports whether an unanswered earlier attempt may have caused err. The runtime may
// have accepted that attempt late and superseded the current connection. Each unanswered attempt explains
// one failure.
func (r *reconnection) causedByUnanswered(err error) bool {
	if r.unansweredAttempts == 0 || !superseded(err) && !expired(err) {
		return false
	}
	r.unansweredAttempts--
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

// mayReturn reports whether the runtime accepts the client after an eviction: for silence, or for an
// expired credential that can be refreshed.
func (r *reconnection) mayReturn(err error) bool {
	e, ok := errors.AsType[*RemoteError](err)
	return ok && e.Type == arcp.SessionEvicted &&
		(e.Code == arcp.CodeLeaseExpired || e.Code == arcp.CodeUnauthenticated && r.c.opts.Auth.Refresh != nil)
}

// isTransient reports whether another connection may succeed after err.
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
		return false // the client would send the same frame again
	}
	return true
}

// isFatal reports whether further attempts would fail too.
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
	if _, ok := errors.AsType[*UnsupportedError](err); ok {
		return true
	}
	return errors.Is(err, ErrConnectionLost) && !isTransient(err)
}

// run resumes the session on another connection.
func (r *reconnection) run(cause error) error {
	r.OnChange(LinkChange{Reconnecting, cause})
	if err := r.retry(cause); err != nil {
		if r.c.Err() != nil { // the client was closed
			return err
		}
		err = fmt.Errorf("%w: %w", ErrSessionLost, err)
		r.OnChange(LinkChange{Lost, err})
		return err
	}
	if w := r.c.worker.Load(); w != nil {
		w.resumed()
	}
	r.OnChange(LinkChange{State: Resumed})
	return nil
}

// retry makes attempts until one succeeds or fails fatally, or the window has ended.
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

// pause waits before an attempt, for at least a duration.
func (r *reconnection) pause(ctx context.Context, least time.Duration) error {
	return backoff.Sleep(ctx, max(rand.N(r.delays.Next()), least))
}

// attempt makes a connection for each resume token until a token is accepted. After a lost answer the
// runtime may accept either token.
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

// reopen attaches to the session with a new credential. Resume tokens expire with the old credential.
func (r *reconnection) reopen(ctx context.Context) error {
	token, err := r.c.refresher.renew(ctx)
	if err != nil {
		return err
	}
	r.c.refresher.set(token)
	return r.resume(ctx, "")
}

// resume makes a connection and resumes the session on it. Without a token it opens the session by its
// id.
func (r *reconnection) resume(ctx context.Context, token Secret) error {
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errNoAnswer)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	conn = r.c.opts.inDialect(conn)
	resume := &Resume{SessionID: r.c.state.id(), Token: token, LastEventSeq: new(r.c.LastEventSeq())}
	h := &handshake{c: r.c, conn: conn, resume: resume, reattach: true}
	if err := h.attach(ctx); err != nil {
		if _, answered := errors.AsType[*RemoteError](err); !answered {
			r.unansweredAttempts = min(r.unansweredAttempts+1, maxUnansweredAttempts)
		}
		return err
	}
	return r.switchTo(conn)
}

// switchTo makes conn the connection of the client and sends the unanswered requests again.
func (r *reconnection) switchTo(conn transport.Conn) error {
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
