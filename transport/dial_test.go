//go:build linux

package transport_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/transport"
)

func TestDialSendsHeadersAndSubprotocols(t *testing.T) {
	headers := make(chan http.Header, 1)
	s := newWSServer(t, func(h http.Handler) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			headers <- r.Header
			h.ServeHTTP(w, r)
		}))
	})
	client, err := transport.Dial(t.Context(), s.url+"/any/path?q=1", transport.DialOptions{
		Header:       http.Header{"Authorization": {"Bearer x"}},
		Subprotocols: transport.Subprotocols,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := <-s.conns
	defer client.Abort()
	defer server.Abort()
	h := <-headers
	if got := h.Get("Authorization"); got != "Bearer x" {
		t.Errorf("Authorization = %q", got)
	}
	if got := h.Get("Sec-WebSocket-Protocol"); got != "arcp.v1,arcp" {
		t.Errorf("Sec-WebSocket-Protocol = %q", got)
	}
	for _, c := range []transport.Conn{client, server} {
		if got := c.Info().RemoteAddr; got != "127.0.0.1" {
			t.Errorf("RemoteAddr = %q", got)
		}
	}
}

func TestDialTLSShowsCertificate(t *testing.T) {
	s := newWSServer(t, httptest.NewTLSServer)
	server, client := s.dial(t, transport.Limits{})
	defer server.Abort()
	defer client.Abort()
	if got := len(client.Info().PeerCerts); got == 0 {
		t.Error("the client does not see the server's certificate")
	}
	if got := len(server.Info().PeerCerts); got != 0 {
		t.Errorf("the server sees %d certificates of a client that has none", got)
	}
}

func TestRefusedDialHasTheReason(t *testing.T) {
	s := newWSServer(t, httptest.NewServer)
	s.AllowOrigins = []string{"https://app.example"}
	tls := newWSServer(t, httptest.NewTLSServer)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hello")) }))
	defer plain.Close()
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Sec-WebSocket-Accept", "no")
		w.WriteHeader(http.StatusSwitchingProtocols)
	}))
	defer liar.Close()
	for _, test := range []struct {
		name, url, want string
		header          http.Header
	}{
		{"origin", s.url, `403: origin "https://evil.example" is not allowed here`, http.Header{"Origin": {"https://evil.example"}}},
		{"no WebSocket", "ws" + strings.TrimPrefix(plain.URL, "http"), "200: hello", nil},
		{"wrong accept", "ws" + strings.TrimPrefix(liar.URL, "http"), "Sec-WebSocket-Accept", nil},
		{"scheme", "ftp://localhost", "ftp", nil},
		{"bad URL", "ws://%", "%", nil},
		{"unknown authority", tls.url, "certificate", nil},
		{"nobody there", "ws://127.0.0.1:1", "refused", nil},
	} {
		c, err := transport.Dial(t.Context(), test.url, transport.DialOptions{Header: test.header})
		if err == nil {
			c.Abort()
		}
		if err == nil || !strings.HasPrefix(err.Error(), "dial "+test.url) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Dial() = %v, want … %s", test.name, err, test.want)
		}
	}
}

// A server that accepts and says nothing holds a dial no longer than its
// context.
func TestDialEndsWithContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			c.Read(make([]byte, 1))
			cancel()
			c.Read(make([]byte, 4096))
			<-ctx.Done()
		}
	}()
	if _, err := transport.Dial(ctx, "ws://"+l.Addr().String(), transport.DialOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial() = %v, want context.Canceled", err)
	}
}

// The context of a dial is over when the connection is made.
func TestConnectionOutlivesDialContext(t *testing.T) {
	s := newWSServer(t, httptest.NewServer)
	ctx, cancel := context.WithCancel(t.Context())
	client, err := transport.Dial(ctx, s.url, transport.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := <-s.conns
	defer server.Abort()
	defer client.Abort()
	cancel()
	if err := errors.Join(client.Write([]byte("{}")), client.Flush()); err != nil {
		t.Fatal(err)
	}
	wantRead(t, server, "{}")
}
