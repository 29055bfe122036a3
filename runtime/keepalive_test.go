package runtime_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/transport"
)

// A client that sends nothing is alive while it answers the pings of the transport, for any setting of
// heartbeats. A local client is alive until its connection ends.
func TestListenersAreAlive(t *testing.T) {
	for _, heartbeat := range []time.Duration{-1, 10 * time.Second, 60 * time.Second, time.Hour} {
		inBubble(t, func(c *runtime.Config) { c.Heartbeat, c.SessionLease = heartbeat, 90*time.Second }, func(f *fixture) {
			local := f.dial("alice")
			pinged := &pongConn{began: time.Now()}
			near, far := transport.Pipe(transport.Limits{})
			pinged.Conn = far
			f.serve.Go(func() { _ = f.rt.Serve(context.Background(), pinged) })
			f.Cleanup(func() { _ = near.Abort() })
			p := &peer{fixture: f, conn: near}
			p.open("alice")
			p.expect("session.accepted")
			time.Sleep(time.Hour)
			local.wantOpen("a local one")
			p.wantOpen("one that answers pings")
			pinged.silent.Store(true)
			p.closed("it answers no more", transport.ClosePolicy)
		})
	}
}

// pongConn is a connection whose peer answers pings until silent is set.
type pongConn struct {
	transport.Conn
	began    time.Time
	lastPong atomic.Int64 // time after began
	silent   atomic.Bool
}

func (c *pongConn) Info() transport.Info {
	i := c.Conn.Info()
	i.Local, i.Pings = false, true
	return i
}

func (c *pongConn) Ping() error {
	if !c.silent.Load() {
		c.lastPong.Store(int64(time.Since(c.began)))
	}
	return nil
}

func (c *pongConn) LastSeen() time.Time { return c.began.Add(time.Duration(c.lastPong.Load())) }
