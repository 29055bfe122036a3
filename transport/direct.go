package transport

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/net/http/httpguts"
)

// Direct answers valid WebSocket handshakes on a listener without an http.Server, whose goroutines and
// buffers are a third of the cost of a new connection. serve is called on a new goroutine and owns the
// connection, as with Handler.
//
// Accept of the returned listener returns the connections with any other request, for an http.Server with
// Handler: another path, an unusual header, a host or an origin that is not allowed. The connections must be
// without TLS. Closing the listener closes the connections that have sent nothing.
func (u *Upgrader) Direct(ln net.Listener, path string, serve func(Conn)) net.Listener {
	d := &direct{Listener: ln, up: u, path: path, serve: serve, timeout: requestTimeout, others: make(chan accepted),
		done: make(chan struct{}), silent: make(map[net.Conn]struct{})}
	go d.run()
	return d
}

// requestTimeout bounds the time until the first bytes of a client.
var requestTimeout = 10 * time.Second

// direct is the listener returned by Direct.
type direct struct {
	net.Listener
	up      *Upgrader
	path    string
	serve   func(Conn)
	timeout time.Duration // requestTimeout
	others  chan accepted
	done    chan struct{} // closed with the listener

	mu     sync.Mutex
	closed bool
	silent map[net.Conn]struct{} // connections without received bytes
}

type accepted struct {
	conn net.Conn
	err  error
}

// run accepts connections until the listener ends. The next call of Accept returns a temporary error.
func (d *direct) run() {
	for {
		conn, err := d.Listener.Accept()
		if err == nil {
			d.up.run(func() {
				if c := d.upgrade(conn); c != nil {
					d.serve(c) // outside of upgrade: the stack stays small for the lifetime of the connection
				}
			})
			continue
		}
		select {
		case d.others <- accepted{err: err}:
		case <-d.done:
			return
		}
	}
}

// Accept returns a connection with another request than a plain handshake.
func (d *direct) Accept() (net.Conn, error) {
	select {
	case a := <-d.others:
		return a.conn, a.err
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *direct) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		close(d.done)
		for conn := range d.silent {
			_ = conn.Close() // nothing was received on it
		}
	}
	return d.Listener.Close()
}

// upgrade answers a handshake, or passes the connection to Accept and returns nil.
func (d *direct) upgrade(conn net.Conn) Conn {
	w, err := netWire(conn)
	if err != nil {
		_ = conn.Close() // the connection is unusable
		return nil
	}
	p, err := d.receiveRequest(conn, w)
	if err != nil {
		_ = conn.Close() // no request was received
		return nil
	}
	response, n := d.handshake(conn, p)
	if n == 0 {
		b := &prefixedConn{conn, slices.Clone(p)}
		w.release()
		select {
		case d.others <- accepted{conn: b}:
		case <-d.done:
			_ = conn.Close() // the listener is closed: no server answers
		}
		return nil
	}
	if _, err := conn.Write(response); err != nil {
		_ = conn.Close() // the client has disconnected
		return nil
	}
	c := newServerConn()
	c.start(w, d.up.Limits, Info{RemoteAddr: remoteHost(conn.RemoteAddr().String()), Pass: passOf(conn)})
	if c.rest = p[n:]; len(c.rest) == 0 {
		w.release()
	}
	return c
}

// receiveRequest waits for the first bytes.
func (d *direct) receiveRequest(conn net.Conn, w wire) ([]byte, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, net.ErrClosed
	}
	d.silent[conn] = struct{}{}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.silent, conn)
		d.mu.Unlock()
	}()
	deadline := time.Now().Add(d.timeout)
	if err := conn.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	p, err := w.receive()
	if err != nil {
		return nil, err
	}
	return p, conn.SetReadDeadline(time.Time{})
}

// handshake returns the response to the handshake at the start of p, and the length of the handshake. The
// length is 0 if the handshake is incomplete or Handler must answer it.
func (d *direct) handshake(conn net.Conn, p []byte) (answer []byte, n int) {
	end := []byte("\r\n\r\n")
	head, _, whole := bytes.Cut(p, end)
	if !whole {
		return nil, 0
	}
	n = len(head) + len(end)
	in := bytes.NewReader(p[:n])
	br := requestReaders.Get().(*bufio.Reader)
	defer func() {
		br.Reset(nil) // p belongs to the connection
		requestReaders.Put(br)
	}()
	br.Reset(in)
	r, err := http.ReadRequest(br)
	switch {
	case err != nil || br.Buffered() > 0 || in.Len() > 0 || !wellFormed(r):
		return nil, 0 // an http.Server answers with the reason
	case !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") || !httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket"):
		return nil, 0 // ws also finds the token beside invalid characters
	case r.RequestURI != d.path || r.ContentLength != 0 || r.TransferEncoding != nil || r.Header["Expect"] != nil || r.Header["Trailer"] != nil:
		return nil, 0
	case len(r.Header["Origin"]) > 1 || len(r.Header["Sec-Websocket-Key"]) > 1 || len(r.Header["Sec-Websocket-Protocol"]) > 1 || !isKey(r.Header.Get("Sec-Websocket-Key")):
		return nil, 0
	case checkHost(r.Host, conn.LocalAddr(), d.up.AllowHosts) != nil || checkOrigin(r.Header.Get("Origin"), r.Host, d.up.AllowOrigins) != nil:
		return nil, 0
	}
	protocol := chooseProtocol(r.Header.Get("Sec-WebSocket-Protocol"))
	h := new(responseRecorder)
	if _, _, _, err := (ws.HTTPUpgrader{Protocol: func(p string) bool { return p == protocol }}).Upgrade(r, h); err != nil {
		return nil, 0
	}
	return h.Bytes(), n
}

// wellFormed reports whether the headers pass the checks of an http.Server that http.ReadRequest omits.
func wellFormed(r *http.Request) bool {
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, invalidValue) {
			return false
		}
	}
	return httpguts.ValidHostHeader(r.Host)
}

func invalidValue(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }

// isKey reports whether key is 16 bytes in base64 (RFC 6455 §4.2.1).
func isKey(key string) bool {
	const size = 24 // length of 16 bytes in base64
	var raw [size]byte
	n, err := base64.StdEncoding.Decode(raw[:], []byte(key[:min(len(key), size)]))
	return err == nil && n == 16 && len(key) == size
}

// requestReaders has free readers of requests.
var requestReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 1<<10) }}

// responseRecorder is the http.ResponseWriter of a handshake. It records the response.
type responseRecorder struct {
	http.ResponseWriter // nil: only Hijack is used
	bytes.Buffer
}

// Write implements io.Writer.
func (rr *responseRecorder) Write(p []byte) (int, error) { return rr.Buffer.Write(p) }

// Hijack implements http.Hijacker.
func (rr *responseRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return stubConn{}, bufio.NewReadWriter(nil, bufio.NewWriterSize(&rr.Buffer, 256)), nil
}

// prefixedConn is a connection whose first bytes were read and are read again.
type prefixedConn struct {
	net.Conn
	rest []byte
}

// Read implements net.Conn.
func (pc *prefixedConn) Read(p []byte) (int, error) {
	if len(pc.rest) == 0 {
		return pc.Conn.Read(p)
	}
	n := copy(p, pc.rest)
	pc.rest = pc.rest[n:]
	return n, nil
}

// CloseWrite ends sending.
func (pc *prefixedConn) CloseWrite() error {
	if h, ok := pc.Conn.(halfCloser); ok {
		return h.CloseWrite()
	}
	return nil
}

// chooseProtocol returns the best known protocol of those that a client offers, in the spelling of the
// client, or "".
func chooseProtocol(offered string) string {
	for _, known := range Subprotocols {
		for o := range strings.SplitSeq(offered, ",") {
			if o = strings.TrimSpace(o); strings.EqualFold(o, known) {
				return o
			}
		}
	}
	return ""
}
