package transport

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// FuzzGreeting: what is taken for a handshake is one for net/http and the library.
func FuzzGreeting(f *testing.F) {
	const plain = "GET /arcp HTTP/1.1\r\nHost: localhost:7777\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	f.Add([]byte(plain + "\r\n"))
	f.Add([]byte(plain + "Origin: http://localhost:7777\r\nSec-WebSocket-Protocol: arcp, x\r\nCookie: a=b; c=d\r\n\r\n\x81\x00"))
	f.Add([]byte(plain + "X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		g, n, ok := parseGreeting(p, "/arcp")
		if !ok {
			return
		}
		in := bufio.NewReaderSize(bytes.NewReader(p), len(p)+16)
		r, err := http.ReadRequest(in)
		if err != nil {
			t.Fatalf("%q is no request: %v", p, err)
		}
		if rest := in.Buffered(); rest != len(p)-n {
			t.Errorf("%d bytes are left, %d for net/http", len(p)-n, rest)
		}
		if r.Host != g.host || r.Header.Get("Origin") != g.origin || r.URL.Path != "/arcp" || r.URL.RawQuery != "" || r.ContentLength != 0 {
			t.Errorf("%+v, for net/http %q from %q at %v", g, r.Host, r.Header.Get("Origin"), r.URL)
		}
		w := &played{stage: stage{conn: &wsConn{}, header: http.Header{}}}
		if err := new(wsConn).accept(w, r); err != nil {
			t.Fatalf("refused by the library: %v", err)
		}
		want := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + w.header.Get("Sec-WebSocket-Accept") + "\r\n"
		if protocol := w.header.Get("Sec-WebSocket-Protocol"); protocol != "" {
			want += "Sec-WebSocket-Protocol: " + protocol + "\r\n"
		}
		if got := string(g.answer()); got != want+"\r\n" {
			t.Errorf("answered %q, by the library %q", got, want)
		}
	})
}

// played is a stage that ends with the play.
type played struct{ stage }

func (p *played) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a, b := net.Pipe()
	_ = b.Close() // nobody is there
	return a, bufio.NewReadWriter(bufio.NewReader(a), bufio.NewWriter(io.Discard)), nil
}

// A client that says nothing is not waited for.
func TestSilentClients(t *testing.T) {
	defer func(was time.Duration) { greetTimeout = was }(greetTimeout)
	greetTimeout = 50 * time.Millisecond
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := new(Upgrader).Direct(inner, "/", func(c Conn) { c.Abort() })
	defer ln.Close()
	conn, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d bytes, %v; want the end", n, err)
	}
}
