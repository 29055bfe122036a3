package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance"
	"github.com/arcpd/arcpd/transport"
)

// unexchanged are the message types that the checks do not exchange with the runtime. They depend on time and
// configuration: the scripts of the package runtime exchange them.
var unexchanged = []arcp.Type{arcp.SessionRefresh, arcp.SubscribeClosed}

// walk records the message types on the connections of checks.
type walk struct {
	mu       sync.Mutex
	received map[arcp.Type]bool
	sent     map[request]arcp.Type
	refused  map[request]bool // with a nack
}

// request identifies a message of a client.
type request struct {
	conn *walked
	id   arcp.MessageID
}

// record makes the checks of a target use recorded WebSocket connections.
func record(tg *conformance.Target) *walk {
	w := &walk{received: make(map[arcp.Type]bool), sent: make(map[request]arcp.Type), refused: make(map[request]bool)}
	tg.Dial = func(ctx context.Context) (transport.Conn, error) {
		conn, err := transport.Dial(ctx, tg.URL, transport.DialOptions{})
		if err != nil {
			return nil, err
		}
		return &walked{conn, w}, nil
	}
	return w
}

// walked is a recorded connection.
type walked struct {
	transport.Conn
	walk *walk
}

func (c *walked) Read() ([]byte, error) {
	frame, err := c.Conn.Read()
	if env, invalid := arcp.Decode(frame); err == nil && invalid == nil {
		c.walk.mu.Lock()
		defer c.walk.mu.Unlock()
		c.walk.received[env.Type] = true
		if env.Type == arcp.Nack {
			c.walk.refused[request{c, env.CorrelationID}] = true
		}
	}
	return frame, err
}

func (c *walked) Write(frame []byte) error {
	if env, invalid := arcp.Decode(frame); invalid == nil {
		c.walk.mu.Lock()
		c.walk.sent[request{c, env.ID}] = env.Type
		c.walk.mu.Unlock()
	}
	return c.Conn.Write(frame)
}

// check checks that each type of the catalog was received from the runtime, or sent to it without a nack,
// as its direction says.
func (w *walk) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := make(map[arcp.Type]bool)
	for r, typ := range w.sent {
		taken[typ] = taken[typ] || !w.refused[r]
	}
	for i := range arcp.Catalog {
		spec := &arcp.Catalog[i]
		seen := spec.From != arcp.FromClient && w.received[spec.Type] || spec.From != arcp.FromRuntime && taken[spec.Type]
		if want := !slices.Contains(unexchanged, spec.Type); seen != want {
			t.Errorf("%s was exchanged: %t, want %t", spec.Type, seen, want)
		}
	}
}
