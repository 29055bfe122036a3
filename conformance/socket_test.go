package conformance

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/transport"
)

// echoServer sends every frame back and closes as its own side of the wire
// asks for.
func echoServer(t *testing.T) string {
	up := &transport.Upgrader{}
	web := httptest.NewServer(up.Handler(func(c transport.Conn) {
		for {
			frame, err := c.Read()
			if err != nil {
				_ = c.Close(transport.CloseNotText, "no") // the client may have gone
				return
			}
			if c.Write(frame) != nil || c.Flush() != nil {
				return
			}
		}
	}))
	t.Cleanup(web.Close)
	return "ws" + strings.TrimPrefix(web.URL, "http")
}

func dialTest(t *testing.T, url string) *socket {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s, err := dialSocket(ctx, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Abort() }) // closed before, in some tests
	return s
}

func TestSocketFrames(t *testing.T) {
	s := dialTest(t, echoServer(t))
	for _, n := range []int{0, 1, 125, 126, 65535, 65536, 300_000} {
		sent := strings.Repeat("x", n)
		if err := s.Write([]byte(sent)); err != nil {
			t.Fatal(err)
		}
		got, err := s.Read()
		if err != nil || string(got) != sent {
			t.Fatalf("a frame of %d bytes comes back as %d bytes, %v", n, len(got), err)
		}
	}
}

func TestSocketClose(t *testing.T) {
	s := dialTest(t, echoServer(t))
	if err := s.send(opBinary, []byte{1}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Read()
	closed, ok := err.(*transport.Error)
	if !ok || closed.Code != transport.CloseNotText || !closed.Remote {
		t.Errorf("the server's close is read as %v, want 1003 from the peer", err)
	}
}

func TestSocketLimit(t *testing.T) {
	s := dialTest(t, echoServer(t))
	s.SetReadLimit(10)
	if err := s.Write([]byte("more than ten bytes")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(); err == nil {
		t.Error("a frame over the limit is not read")
	}
}

func TestSocketRefused(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	for _, url := range []string{"ws" + strings.TrimPrefix(web.URL, "http"), "http://127.0.0.1:1/", "ws://127.0.0.1:1/", "::"} {
		if s, err := dialSocket(t.Context(), url, nil); err == nil {
			t.Errorf("%s is no WebSocket server, got %v", url, s)
		}
	}
}
