package runtime_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/transport"
)

// evicted reads up to the eviction and compares its code.
func (p *peer) evicted(why string, code arcp.Code) {
	p.Helper()
	env := p.until("session.evicted")
	e, err := arcp.DecodePayload[arcp.SessionEvictedPayload](&env)
	if err != nil || e.Code != code || e.Reason == "" {
		p.Errorf("%s: evicted with %s, %v, want %s", why, env.Payload, err, code)
	}
	p.closed(why, transport.ClosePolicy)
}

// goesOn checks that the session is open.
func (p *peer) goesOn(why string) {
	p.Helper()
	if _, err := p.try("ping", `{}`); err != nil {
		p.Fatalf("%s: %v", why, err)
	}
	p.expect("pong")
}

// A client that only listens is alive while it answers the transport's pings,
// which come often enough however heartbeats are set; so is a local one, whose end
// the operating system would tell.
func TestListenersAreAlive(t *testing.T) {
	for _, heartbeat := range []time.Duration{-1, 10 * time.Second, 60 * time.Second, time.Hour} {
		inBubble(t, func(c *runtime.Config) { c.Heartbeat, c.SessionLease = heartbeat, 90*time.Second }, func(b *fixture) {
			local := b.dial("alice")
			pinged := &answering{began: time.Now()}
			near, far := transport.Pipe(transport.Limits{})
			pinged.Conn = far
			b.serve.Go(func() { _ = b.rt.Serve(context.Background(), pinged) })
			b.Cleanup(func() { _ = near.Abort() })
			p := &peer{fixture: b, conn: near}
			p.open("alice")
			p.expect("session.accepted")
			time.Sleep(time.Hour)
			local.goesOn("a local one")
			p.goesOn("one that answers pings")
			pinged.deaf.Store(true)
			p.closed("it answers no more", transport.ClosePolicy)
		})
	}
}

// answering answers each ping of the transport.
type answering struct {
	transport.Conn
	began    time.Time
	requests atomic.Int64
	deaf     atomic.Bool
}

func (a *answering) Info() transport.Info {
	i := a.Conn.Info()
	i.Local, i.Pings = false, true
	return i
}

func (a *answering) Ping() error {
	if !a.deaf.Load() {
		a.requests.Store(int64(time.Since(a.began)))
	}
	return nil
}

func (a *answering) LastSeen() time.Time { return a.began.Add(time.Duration(a.requests.Load())) }
