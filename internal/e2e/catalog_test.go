package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance"
	"github.com/arcpd/arcpd/transport"
)

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
		if !seen {
			t.Errorf("%s was not exchanged", spec.Type)
		}
	}
}

// dialog is a connection that sends frames and waits for answers.
type dialog struct {
	*testing.T
	conn transport.Conn
	sent int
}

// openDialog opens a session, and returns it with its id.
func openDialog(t *testing.T, tg *conformance.Target, scheme, token string) (*dialog, arcp.SessionID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := tg.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d := &dialog{t, conn, 0}
	d.send(arcp.SessionOpen, fmt.Sprintf(`{"auth":{"scheme":%q,"token":%q},"client":{"kind":"test","version":"1"},"capabilities":{"subscriptions":true,"refresh":true}}`, scheme, token))
	return d, d.await(arcp.SessionAccepted).SessionID
}

func (d *dialog) send(typ arcp.Type, payload string) {
	d.Helper()
	d.sent++
	frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_%d","type":%q,"timestamp":"2030-01-02T15:04:05Z","payload":%s}`, d.sent, typ, payload)
	if err := d.conn.Write([]byte(frame)); err != nil {
		d.Fatal(err)
	}
	if err := d.conn.Flush(); err != nil {
		d.Fatal(err)
	}
}

// await returns the next message of a type. A connection that ends without one fails the test.
func (d *dialog) await(typ arcp.Type) arcp.Envelope {
	d.Helper()
	abort := time.AfterFunc(time.Minute, func() { _ = d.conn.Abort() })
	defer abort.Stop()
	last := "nothing"
	for {
		frame, err := d.conn.Read()
		if err != nil {
			d.Fatalf("no %s after %s: %v", typ, last, err)
		}
		last = string(frame)
		if env, err := arcp.Decode(frame); err == nil && env.Type == typ {
			return env
		}
	}
}

// exchangeConfigured exchanges the messages that depend on the configuration: a session whose credential ends
// soon is asked for another, and a subscription ends when its principal loses the permission. It changes the
// configuration of the server for good.
func exchangeConfigured(t *testing.T, p *process, tg *conformance.Target, authFile string) {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{Issuer: issuer, Subject: "carol", Audience: jwt.ClaimStrings{"arcp"},
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(20 * time.Second))}).SignedString([]byte(strings.TrimSpace(issuerSecret)))
	if err != nil {
		t.Fatal(err)
	}
	expiring, _ := openDialog(t, tg, "signed_jwt", token)
	owner, session := openDialog(t, tg, "bearer", crashToken)
	observer, _ := openDialog(t, tg, "bearer", observerToken)
	observer.send(arcp.Subscribe, fmt.Sprintf(`{"filter":{"session_id":[%q]}}`, session))
	observer.await(arcp.SubscribeAccepted)
	writeAuthFile(t, authFile, "")
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	observer.await(arcp.SubscribeClosed)
	expiring.await(arcp.SessionRefresh)
	for _, d := range []*dialog{expiring, owner, observer} {
		_ = d.conn.Abort() // the test is over
	}
}
