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

// Direct answers plain, valid WebSocket handshakes on a listener without an http.Server: the
// server's goroutines and buffers are a third of the cost of a new connection. serve is called
// on a goroutine of its own with the connection, which it owns, as by Handler.
//
// Any other request is returned by Accept with the bytes read so far, for an http.Server with
// the Handler to answer: another path, an unusual header, a name or an origin that is not
// allowed. The connections must be without TLS. Closing the listener ends the connections that
// have sent nothing.
func (u *Upgrader) Direct(ln net.Listener, path string, serve func(Conn)) net.Listener {
	d := &direct{Listener: ln, up: u, path: path, serve: serve, timeout: greetTimeout, others: make(chan accepted), done: make(chan struct{}), silent: make(map[net.Conn]struct{})}
	go d.run()
	return d
}

// greetTimeout is how long a client may take to ask for something.
var greetTimeout = 10 * time.Second

// direct is a listener.
type direct struct {
	net.Listener
	up      *Upgrader
	path    string
	serve   func(Conn)
	timeout time.Duration // greetTimeout
	others  chan accepted
	done    chan struct{} // closed with the listener

	mu     sync.Mutex
	closed bool
	silent map[net.Conn]struct{} // those that have not said anything
}

type accepted struct {
	conn net.Conn
	err  error
}

// run accepts connections until the listener ends. A temporary error is returned by the next
// call of Accept, which delays the one after it.
func (d *direct) run() {
	for {
		conn, err := d.Listener.Accept()
		if err == nil {
			d.up.run(func() {
				if c := d.greet(conn); c != nil {
					d.serve(c) // with nothing of the greeting left on the stack, for as long as the connection lasts
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

// Accept returns a connection that asks for something else.
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
			_ = conn.Close() // nothing was said on it
		}
	}
	return d.Listener.Close()
}

// greet answers a handshake, or passes the connection to Accept and returns nil.
func (d *direct) greet(conn net.Conn) Conn {
	w, err := netWire(conn)
	if err != nil {
		_ = conn.Close() // it cannot be used
		return nil
	}
	p, err := d.listen(conn, w)
	if err != nil {
		_ = conn.Close() // it has said nothing
		return nil
	}
	g, n := d.handshake(conn, p)
	if n == 0 {
		b := &begun{conn, slices.Clone(p)}
		w.release()
		select {
		case d.others <- accepted{conn: b}:
		case <-d.done:
			_ = conn.Close() // the listener is closed: the connection is answered by no server
		}
		return nil
	}
	if _, err := conn.Write(g); err != nil {
		_ = conn.Close() // it has gone
		return nil
	}
	c := newServerConn()
	c.start(w, d.up.Limits, Info{RemoteAddr: remoteHost(conn.RemoteAddr().String()), Pass: passOf(conn)})
	if c.rest = p[n:]; len(c.rest) == 0 {
		w.release()
	}
	return c
}

// listen waits for the first bytes.
func (d *direct) listen(conn net.Conn, w wire) ([]byte, error) {
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

// handshake returns the answer to the handshake that p begins with, and its length; 0: p does
// not begin with a whole one, or with one that has to be judged by the Handler.
func (d *direct) handshake(conn net.Conn, p []byte) (answer []byte, n int) {
	end := []byte("\r\n\r\n")
	head, _, whole := bytes.Cut(p, end)
	if !whole {
		return nil, 0
	}
	n = len(head) + len(end)
	in := bytes.NewReader(p[:n])
	br := heads.Get().(*bufio.Reader)
	defer func() {
		br.Reset(nil) // p is the connection's
		heads.Put(br)
	}()
	br.Reset(in)
	r, err := http.ReadRequest(br)
	switch {
	case err != nil || br.Buffered() > 0 || in.Len() > 0 || !wellFormed(r):
		return nil, 0 // an http.Server answers with the reason
	case r.RequestURI != d.path || r.ContentLength != 0 || r.TransferEncoding != nil || r.Header["Expect"] != nil || r.Header["Trailer"] != nil:
		return nil, 0
	case len(r.Header["Origin"]) > 1 || len(r.Header["Sec-Websocket-Key"]) > 1 || len(r.Header["Sec-Websocket-Protocol"]) > 1 || !isKey(r.Header.Get("Sec-Websocket-Key")):
		return nil, 0
	case checkHost(r.Host, conn.LocalAddr(), d.up.AllowHosts) != nil || checkOrigin(r.Header.Get("Origin"), r.Host, d.up.AllowOrigins) != nil:
		return nil, 0
	}
	protocol := choose(r.Header.Get("Sec-WebSocket-Protocol"))
	h := new(answering)
	if _, _, _, err := (ws.HTTPUpgrader{Protocol: func(p string) bool { return p == protocol }}).Upgrade(r, h); err != nil {
		return nil, 0
	}
	return h.Bytes(), n
}

// wellFormed reports whether a request passes the checks of an http.Server on headers that
// http.ReadRequest leaves out.
func wellFormed(r *http.Request) bool {
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, invalidValue) {
			return false
		}
	}
	return httpguts.ValidHostHeader(r.Host)
}

func invalidValue(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }

// isKey reports whether a key is 16 bytes in base64 (RFC 6455 §4.2.1).
func isKey(key string) bool {
	const size = 24 // of 16 bytes
	var raw [size]byte
	n, err := base64.StdEncoding.Decode(raw[:], []byte(key[:min(len(key), size)]))
	return err == nil && n == 16 && len(key) == size
}

// heads has the readers of handshakes.
var heads = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 1<<10) }}

// answering is the http.ResponseWriter of a handshake. It keeps the answer.
type answering struct {
	http.ResponseWriter // nil: the answer is written to the connection that Hijack returns
	bytes.Buffer
}

// Write implements io.Writer.
func (a *answering) Write(p []byte) (int, error) { return a.Buffer.Write(p) }

// Hijack implements http.Hijacker.
func (a *answering) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return handedOver{}, bufio.NewReadWriter(nil, bufio.NewWriterSize(&a.Buffer, 256)), nil
}

// begun is a connection of which something was read that is to be read again.
type begun struct {
	net.Conn
	rest []byte
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// CloseWrite ends sending.
func (b *begun) CloseWrite() error {
	if h, ok := b.Conn.(halfCloser); ok {
		return h.CloseWrite()
	}
	return nil
}

// choose is the best of the protocols that a client offers, as the client spells it;
// empty: none is known.
func choose(offered string) string {
	for _, known := range Subprotocols {
		for o := range strings.SplitSeq(offered, ",") {
			if o = strings.TrimSpace(o); strings.EqualFold(o, known) {
				return o
			}
		}
	}
	return ""
}
