package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// T runs one check. It belongs to the goroutine of the check. A method that finds the
// server at fault ends that goroutine.
type T struct {
	ctx    context.Context
	target *Target
	server *server
	tr     *transcript
	conns  []*Conn
	sent   map[string]bool // ids used on any connection

	failure string
	skip    string
}

func newT(ctx context.Context, target *Target, s *server) *T {
	return &T{ctx: ctx, target: target, server: s, tr: newTranscript(target.secrets()), sent: map[string]bool{}}
}

// play runs fn on a goroutine of its own, as Failf and Skipf end it, and cleans
// up. A check that passed also has to leave its sessions working.
func (t *T) play(fn func(ctx context.Context, t *T)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.cleanup()
		defer t.recover()
		fn(t.ctx, t)
		for _, c := range t.conns {
			c.checkAlive()
		}
	}()
	<-done
}

// recover turns a panic of a check into its failure, so that the run goes on.
func (t *T) recover() {
	switch r := recover().(type) {
	case nil:
	default:
		t.failure = fmt.Sprintf("the check itself panicked: %v\n%s", r, debug.Stack())
	}
}

func (t *T) cleanup() {
	for _, c := range t.conns {
		c.Drop()
	}
}

// Failf records a fault of the server and ends the check.
func (t *T) Failf(format string, args ...any) {
	t.failure = redact(fmt.Sprintf(format, args...), t.tr.secrets)
	runtime.Goexit()
}

// Skipf records why the check cannot run and ends it.
func (t *T) Skipf(format string, args ...any) {
	t.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// pollDeadline returns the time when a check stops polling, just before its timeout.
func (t *T) pollDeadline() time.Time {
	const toSaySo = time.Second
	end, bounded := t.ctx.Deadline()
	if !bounded {
		end = time.Now().Add(DefaultTimeout)
	}
	return end.Add(-toSaySo)
}

// Want fails the check unless ok. The rule is why, the rest describes what was found.
func (t *T) Want(why string, ok bool, format string, args ...any) {
	if !ok {
		t.Failf("%s: %s", why, fmt.Sprintf(format, args...))
	}
}

// want fails the check unless got equals expected. The rule is why.
func want[V comparable](t *T, why string, got, expected V) {
	if got != expected {
		t.Failf("%s: got %v, want %v", why, show(got), show(expected))
	}
}

func show(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(v)
}

// Dial connects and sends nothing.
func (t *T) Dial() *Conn {
	tc, err := t.target.dial(t.ctx)
	if err != nil {
		t.Failf("the server takes no connection: %v", err)
	}
	return t.connected(tc)
}

// Restart ends the server and starts it again, and drops the connections of the check.
func (t *T) Restart(ctx context.Context) {
	if err := t.target.Restart(ctx); err != nil {
		t.Failf("the server cannot be started again: %v", err)
	}
	for _, c := range t.conns {
		c.Drop()
	}
}

// DialSocket connects with a client that can send other frames than text.
func (t *T) DialSocket() *Conn {
	s, err := dialSocket(t.ctx, t.target.URL)
	if err != nil {
		t.Failf("the server takes no connection: %v", err)
	}
	return t.connected(s)
}

func (t *T) connected(tc transport.Conn) *Conn {
	c := newConn(t, tc)
	t.conns = append(t.conns, c)
	t.tr.add(c.n, Noted, []byte("connected"))
	return c
}

// Open connects and opens a session.
func (t *T) Open(with ...func(*arcp.SessionOpenPayload)) *Conn {
	c := t.Dial()
	c.Open(with...)
	return c
}

// openPayload returns the payload of a valid session.open.
func (t *T) openPayload() arcp.SessionOpenPayload {
	p := arcp.SessionOpenPayload{
		Auth:   arcp.Auth{Scheme: "bearer", Token: t.target.Token},
		Client: arcp.ClientInfo{Kind: "arcp-conformance", Version: "1.0.0"},
	}
	if t.target.Token == "" { // on a unix socket the server takes the identity from the peer credentials
		p.Auth.Scheme = "none"
	}
	return p
}

// offer adds features to the capabilities of a session.open.
func offer(features ...arcp.Feature) func(*arcp.SessionOpenPayload) {
	return func(p *arcp.SessionOpenPayload) {
		p.Capabilities.Flags = map[arcp.Feature]bool{}
		for _, f := range features {
			p.Capabilities.Flags[f] = true
		}
	}
}
