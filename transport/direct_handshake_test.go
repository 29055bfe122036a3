package transport

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// plainHandshake is a handshake without the line that ends it.
const plainHandshake = "GET /arcp HTTP/1.1\r\n" +
	"Host: localhost:7777\r\n" +
	"Upgrade: websocket\r\n" +
	"Connection: Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"

// FuzzGreeting: a request answered as a handshake is a valid one for net/http and for the
// library of the Handler, with the same answer.
func FuzzGreeting(f *testing.F) {
	f.Add([]byte(plainHandshake + "\r\n"))
	f.Add([]byte(plainHandshake + "Origin: http://localhost:7777\r\nSec-WebSocket-Protocol: arcp, x\r\nCookie: a=b; c=d\r\n\r\n\x81\x00"))
	f.Add([]byte(plainHandshake + "X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n"))
	f.Add([]byte(plainHandshake + "Transfer-Encoding: chunked\r\n\r\n"))
	f.Add([]byte(plainHandshake + "X: y\n\nGET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(strings.Replace(plainHandshake, "Connection: Upgrade", "Connection: Upgrade\"", 1) + "\r\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		d := &direct{up: new(Upgrader), path: "/arcp"}
		said, n := d.handshake(near, p)
		if n == 0 {
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
		if r.URL.Path != "/arcp" || r.URL.RawQuery != "" || r.ContentLength != 0 {
			t.Errorf("answered %v with a body of %d", r.URL, r.ContentLength)
		}
		w := &hijackable{httptest.NewRecorder()}
		if err := answer(w, r); err != nil {
			t.Fatalf("refused by the library: %v", err)
		}
		got, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(said)), r)
		if err != nil || got.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("answered %q: %v", said, err)
		}
		for _, name := range []string{"Upgrade", "Connection", "Sec-WebSocket-Accept", "Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions"} {
			if got, want := got.Header.Values(name), w.Header().Values(name); len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
				t.Errorf("%s: answered %q, by the library %q", name, got, want)
			}
		}
	})
}

// hijackable is a recorder whose connection leads nowhere.
type hijackable struct{ *httptest.ResponseRecorder }

func (*hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return stubConn{}, bufio.NewReadWriter(bufio.NewReader(stubConn{}), bufio.NewWriter(io.Discard)), nil
}

// A client that says nothing is not waited for.
func TestSilentClientsDoNotBlockAccept(t *testing.T) {
	defer func(was time.Duration) { requestTimeout = was }(requestTimeout)
	requestTimeout = 50 * time.Millisecond
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

// BenchmarkGreeting measures the answer to a handshake without system calls.
func BenchmarkGreeting(b *testing.B) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	d := &direct{up: new(Upgrader), path: "/arcp"}
	p := []byte(plainHandshake + "\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, n := d.handshake(near, p); n != len(p) {
			b.Fatal("the handshake is not answered")
		}
	}
}
