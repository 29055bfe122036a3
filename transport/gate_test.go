package transport

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"testing"
)

func limitOf(err error) string {
	if e, ok := errors.AsType[*GateError](err); ok {
		return e.Limit
	}
	return ""
}

func TestGateRefusesAboveItsLimits(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limits  GateLimits
		entered []string
		next    string
		want    string // the limit that refuses next
	}{
		{"none", GateLimits{}, []string{"192.0.2.1", "192.0.2.1"}, "192.0.2.1", ""},
		{"off", GateLimits{-1, -1, -1}, []string{"192.0.2.1"}, "192.0.2.1", ""},
		{"all", GateLimits{Open: 2}, []string{"", "::1"}, "127.0.0.1", "connections"},
		{"unauthenticated", GateLimits{Unauthenticated: 1}, []string{"127.0.0.1"}, "192.0.2.1", "unauthenticated"},
		{"address", GateLimits{PerAddress: 1}, []string{"192.0.2.1"}, "192.0.2.1", "unauthenticated_per_address"},
		{"another address", GateLimits{PerAddress: 1}, []string{"192.0.2.1"}, "192.0.2.2", ""},
		{"mapped address", GateLimits{PerAddress: 1}, []string{"192.0.2.1"}, "::ffff:192.0.2.1", "unauthenticated_per_address"},
		{"network", GateLimits{PerAddress: 1}, []string{"2001:db8:0:1::1"}, "2001:db8:0:1:ffff::2", "unauthenticated_per_address"},
		{"another network", GateLimits{PerAddress: 1}, []string{"2001:db8:0:1::1"}, "2001:db8:0:2::1", ""},
		{"zone", GateLimits{PerAddress: 1}, []string{"fe80::1%eth0"}, "fe80::2%eth1", "unauthenticated_per_address"},
		{"loopback", GateLimits{PerAddress: 1}, []string{"127.0.0.1", "127.0.0.1", "::1"}, "::1", ""},
		{"no network", GateLimits{PerAddress: 1}, []string{"", ""}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewGate(tt.limits, nil)
			var passes []*Pass
			for _, a := range tt.entered {
				p, err := g.Enter(a)
				if err != nil {
					t.Fatalf("Enter(%q): %v", a, err)
				}
				passes = append(passes, p)
			}
			if _, err := g.Enter(tt.next); limitOf(err) != tt.want {
				t.Fatalf("Enter(%q): %v; want it refused by %q", tt.next, err, tt.want)
			}
			if tt.want == "" {
				return
			}
			if tt.want != "connections" {
				passes[0].Authenticated()
				if _, err := g.Enter(tt.next); err != nil {
					t.Errorf("Enter after the peer has authenticated: %v", err)
				}
			}
			for range 2 {
				passes[0].Leave()
			}
			g.SetLimits(GateLimits{Open: len(passes)})
			if _, err := g.Enter(tt.next); tt.want == "connections" && err != nil {
				t.Errorf("Enter after the connection has ended: %v", err)
			}
			if _, err := g.Enter(tt.next); limitOf(err) != "connections" {
				t.Errorf("Enter after two calls of Leave and one of Enter: %v; want them to count once", err)
			}
		})
	}
}

// A client behind a proxy is counted once its address is known.
func TestGateCountsTheForwardedAddress(t *testing.T) {
	g := NewGate(GateLimits{PerAddress: 1}, nil)
	var passes [3]*Pass
	for i := range passes {
		p, err := g.Enter("")
		if err != nil {
			t.Fatal(err)
		}
		passes[i] = p
	}
	if err := passes[0].From("192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	if err := passes[1].From("192.0.2.1"); limitOf(err) != "unauthenticated_per_address" {
		t.Errorf("the second of an address: %v; want it refused", err)
	}
	if err := passes[0].From("192.0.2.1"); err != nil {
		t.Errorf("the address again: %v", err)
	}
	passes[0].Leave()
	if err := passes[2].From("192.0.2.1"); err != nil {
		t.Errorf("the second after the first has left: %v", err)
	}
}

// A connection is counted from Accept to Close. One over the limit is told so.
func TestGateCountsFromAcceptToClose(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	g := NewGate(GateLimits{Open: 1}, func(e *GateError) { refused = append(refused, e.Limit) })
	ln := g.Listener(inner)
	defer ln.Close()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	first, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if passOf(first) == nil {
		t.Error("an accepted connection has no pass")
	}
	over := dial()
	accepted := make(chan net.Conn)
	go func() {
		conn, _ := ln.Accept() // nil: the test has failed
		accepted <- conn
	}()
	resp, err := http.ReadResponse(bufio.NewReader(over), nil)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the connection over the limit gets %v, %v; want status 503", resp, err)
	}
	if err := first.Close(); err != nil {
		t.Errorf("Close of the first connection: %v", err)
	}
	dial()
	if conn := <-accepted; conn == nil {
		t.Error("no connection is accepted after the first has ended")
	}
	if len(refused) != 1 || refused[0] != "connections" {
		t.Errorf("refused: %q, want the one", refused)
	}
}
