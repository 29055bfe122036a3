//go:build linux

package transport_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/transport"
)

const (
	key     = "AAAAAAAAAAAAAAAAAAAAAA=="
	upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + "\r\n"
	plain   = "GET / HTTP/1.1\r\nHost: localhost\r\n" + upgrade
	hello   = "\x81\x85\x00\x00\x00\x00hello" // a frame
)

// answered is the answer that a client received.
type answered struct{ Status, Upgrade, Accept, Protocol, Read string }

// sendPieces sends pieces one after the other, each when the one before had time to arrive. It
// returns the answer to the last request, and the bytes that the server reads after an
// upgrade.
func sendPieces(t *testing.T, s *wsServer, requests int, pieces ...string) (a answered) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.Split(strings.TrimPrefix(s.url, "ws://"), "/")[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		for _, p := range pieces {
			_, _ = io.WriteString(conn, p) // it may be answered already
		}
	}()
	br := bufio.NewReader(conn)
	for range requests {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return answered{Status: "none"}
		}
		a = answered{Status: resp.Status, Upgrade: resp.Header.Get("Upgrade"),
			Accept: resp.Header.Get("Sec-WebSocket-Accept"), Protocol: resp.Header.Get("Sec-WebSocket-Protocol")}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			c := <-s.conns
			defer c.Abort()
			if strings.HasSuffix(pieces[len(pieces)-1], hello) {
				f, err := c.Read()
				if err != nil {
					t.Error(err)
				}
				a.Read = string(f)
			}
			return a
		}
		_, _ = io.Copy(io.Discard, resp.Body) // of a test
	}
	return a
}

// Direct answers give the same result as net/http and the library; all other requests reach
// them.
func TestDirectAnswersLikeNetHTTP(t *testing.T) {
	long := "X-Long: " + strings.Repeat("x", 6000) + "\r\n"
	for _, c := range []struct {
		why      string
		direct   bool
		requests int
		pieces   []string
	}{
		{"as it should be", true, 1, []string{plain + "\r\n"}},
		{"with a frame behind it", true, 1, []string{plain + "\r\n" + hello}},
		{"with protocols", true, 1, []string{plain + "Sec-WebSocket-Protocol: x, ARCP , arcp.v1\r\n\r\n"}},
		{"with unknown protocols", true, 1, []string{plain + "Sec-WebSocket-Protocol: x\r\n\r\n"}},
		{"with extensions", true, 1, []string{plain + "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"}},
		{"in other letters", true, 1,
			[]string{strings.NewReplacer("Upgrade", "uPGRADE", "websocket", "WebSocket", "Sec-", "sec-").Replace(plain) + "\r\n"}},
		{"with spaces", true, 1, []string{strings.ReplaceAll(plain, ": ", ": \t ") + "\r\n"}},
		{"with a token more", true, 1, []string{strings.Replace(plain, "Connection: Upgrade", "Connection: keep-alive, Upgrade", 1) + "\r\n"}},
		{"with an origin at home", true, 1, []string{plain + "Origin: http://localhost\r\n\r\n"}},
		{"with much more", true, 1, []string{plain + long + "\r\n" + hello}},
		{"in other tokens", false, 1, []string{strings.Replace(plain, "Connection: Upgrade", "Connection: x, upgrade ,y", 1) + "\r\n"}},
		{"from elsewhere", false, 1, []string{plain + "Origin: http://evil.example\r\n\r\n"}},
		{"by another name", false, 1, []string{strings.Replace(plain, "localhost", "evil.example", 1) + "\r\n"}},
		{"without a name", false, 1, []string{strings.Replace(plain, "Host: localhost\r\n", "", 1) + "\r\n"}},
		{"with two names", false, 1, []string{plain + "Host: localhost\r\n\r\n"}},
		{"without a key", false, 1, []string{strings.Replace(plain, "Sec-WebSocket-Key: "+key+"\r\n", "", 1) + "\r\n"}},
		{"with a key that is none", false, 1, []string{strings.Replace(plain, key, "AAAA", 1) + "\r\n"}},
		{"with two keys", false, 1, []string{plain + "Sec-WebSocket-Key: " + key + "\r\n\r\n"}},
		{"in another version", false, 1, []string{strings.Replace(plain, "13", "8", 1) + "\r\n"}},
		{"of HTTP/1.0", false, 1, []string{strings.Replace(plain, "HTTP/1.1", "HTTP/1.0", 1) + "\r\n"}},
		{"not GET", false, 1, []string{strings.Replace(plain, "GET", "POST", 1) + "\r\n"}},
		{"with a query", false, 1, []string{strings.Replace(plain, "GET /", "GET /?a=b", 1) + "\r\n"}},
		{"with a body", false, 1, []string{plain + "Content-Length: 3\r\n\r\nabc"}},
		{"in a line that goes on", false, 1, []string{plain + "X-A: b\r\n c\r\n\r\n"}},
		{"with what is no header", false, 1, []string{plain + "x\r\n\r\n"}},
		{"with a space in a name", false, 1, []string{plain + "X : y\r\n\r\n"}},
		{"with a character that cannot be", false, 1, []string{plain + "X: \x01\r\n\r\n"}},
		{"elsewhere", false, 1, []string{"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"}},
		{"later", false, 2, []string{"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n", plain + "\r\n" + hello}},
		{"too large", false, 1, []string{plain + strings.Repeat(long, 400) + "\r\n"}},
		{"not HTTP", false, 1, []string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"}},
	} {
		other := newWSServer(t, func(h http.Handler) *httptest.Server {
			mux := http.NewServeMux()
			mux.Handle("GET /{$}", h)
			mux.HandleFunc("GET /other", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here\n") })
			return httptest.NewServer(mux)
		})
		s, asked := newDirectServer(t, "/")
		got, want := sendPieces(t, s, c.requests, c.pieces...), sendPieces(t, other, c.requests, c.pieces...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: answered differently: (-others +direct)\n%s", c.why, diff)
		}
		if c.direct && (asked.Load() > 0 || !strings.HasPrefix(got.Status, "101")) {
			t.Errorf("%s: %+v, net/http was asked %d times", c.why, got, asked.Load())
		}
	}
}

// A handshake may come in pieces.
func TestDirectReadsHandshakeInPieces(t *testing.T) {
	s, _ := newDirectServer(t, "/")
	whole := plain + "\r\n" + hello
	var pieces []string
	for i := 0; i < len(whole)-len(hello); i += 40 {
		pieces = append(pieces, whole[i:min(i+40, len(whole)-len(hello))])
	}
	got := sendPieces(t, s, 1, append(pieces, hello)...)
	if want := (answered{"101 Switching Protocols", "websocket", got.Accept, "", "hello"}); got != want {
		t.Errorf("answered %+v", got)
	}
}

// Closing the listener ends connections that have sent nothing and those that Accept has not
// returned.
func TestClosedDirectEndsWaitingConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := new(transport.Upgrader).Direct(inner, "/", func(c transport.Conn) { c.Abort() })
	silent, other := dialed(t, inner), dialed(t, inner)
	if _, err := io.WriteString(other, "GET /other HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	first, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if line, err := bufio.NewReader(first).ReadString('\n'); err != nil || line != "GET /other HTTP/1.1\r\n" {
		t.Errorf("the server reads %q, %v, want the request again", line, err)
	}
	waits := dialed(t, inner)
	if _, err := io.WriteString(waits, "x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Errorf("Close of the listener: %v", err)
	}
	for _, conn := range []net.Conn{silent, waits} {
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes were read", n)
		}
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept = %v", err)
	}
	_ = ln.Close() // once more is fine
}

func dialed(t *testing.T, ln net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// failing is a listener whose first Accept fails.
type failing struct {
	net.Listener
	errs chan error
}

func (f failing) Accept() (net.Conn, error) {
	select {
	case err := <-f.errs:
		return nil, err
	default:
		return f.Listener.Accept()
	}
}

// Accept returns an error of the listener once; later connections are accepted.
func TestDirectReportsListenerErrors(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := failing{inner, make(chan error, 1)}
	f.errs <- errors.New("too many files")
	conns := make(chan transport.Conn, 1)
	ln := new(transport.Upgrader).Direct(f, "/", func(c transport.Conn) { conns <- c })
	defer ln.Close()
	if _, err := ln.Accept(); err == nil || err.Error() != "too many files" {
		t.Errorf("Accept = %v", err)
	}
	client, err := transport.Dial(t.Context(), "ws://"+inner.Addr().String()+"/", transport.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client.Abort()
	(<-conns).Abort()
}
