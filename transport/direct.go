package transport

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Direct has the handshakes on a listener that are plain and right answered without
// net/http, whose goroutine, buffers and map of headers are a third of what a new
// connection costs. serve is called with the connection, which it owns, on a
// goroutine of its own, as by Handler.
//
// Whatever else there is, another path, a header that would have to be judged, a
// name or an origin that is not allowed, is returned by Accept with all that was read
// of it: an http.Server with the Handler knows what to answer. The connections must
// be without TLS. Closing the listener ends those that have not said anything.
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

// run ends with the listener. An error that is not the last waits until somebody
// asks, who then waits before asking again.
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

// greet answers a client, or has somebody else do it: then it returns nil.
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
	g, n, ok := parseGreeting(p, d.path)
	if !ok || !d.welcome(conn, &g) {
		b := &begun{conn, slices.Clone(p)}
		w.release()
		select {
		case d.others <- accepted{conn: b}:
		case <-d.done:
			_ = conn.Close() // nobody answers any more
		}
		return nil
	}
	if _, err := conn.Write(g.answer()); err != nil {
		_ = conn.Close() // it has gone
		return nil
	}
	c := &wsConn{}
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
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	p, err := w.receive()
	if err != nil {
		return nil, err
	}
	return p, conn.SetDeadline(time.Time{})
}

func (d *direct) welcome(conn net.Conn, g *greeting) bool {
	return checkHost(g.host, conn.LocalAddr(), d.up.AllowHosts) == nil && checkOrigin(g.origin, g.host, d.up.AllowOrigins) == nil
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

// greeting is a handshake (RFC 6455 §4.2.1).
type greeting struct {
	host, origin string
	key          []byte
	protocol     string // of Subprotocols, as it was offered; empty: none
}

// keyLen is the length of a key: 16 bytes in base64.
const keyLen = 24

// answer accepts the handshake (RFC 6455 §4.2.2).
func (g *greeting) answer() []byte {
	const magic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	var buf [keyLen + len(magic)]byte
	sum := sha1.Sum(append(append(buf[:0], g.key...), magic...))
	p := make([]byte, 0, 256)
	p = append(p, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "...)
	p = base64.StdEncoding.AppendEncode(p, sum[:])
	if g.protocol != "" {
		p = append(append(p, "\r\nSec-WebSocket-Protocol: "...), g.protocol...)
	}
	return append(p, "\r\n\r\n"...)
}

// The headers that are looked at. Those in once may come once.
const (
	seenHost = 1 << iota
	seenOrigin
	seenUpgrade
	seenConnection
	seenVersion
	seenKey
	seenProtocol

	required = seenHost | seenUpgrade | seenConnection | seenVersion | seenKey
)

// parseGreeting reads a handshake for a path that needs no judgement, and returns
// its length. It is false for everything else: that may be right, too.
func parseGreeting(p []byte, path string) (g greeting, n int, ok bool) {
	end := bytes.Index(p, []byte("\r\n\r\n"))
	if end < 0 {
		return g, 0, false
	}
	line, headers, _ := bytes.Cut(p[:end+2], []byte("\r\n"))
	target, found := bytes.CutPrefix(line, []byte("GET "))
	target, http11 := bytes.CutSuffix(target, []byte(" HTTP/1.1"))
	if !found || !http11 || string(target) != path {
		return g, 0, false
	}
	seen := 0
	for len(headers) > 0 {
		line, headers, _ = bytes.Cut(headers, []byte("\r\n"))
		bit, plain := g.header(line)
		if !plain || seen&bit != 0 {
			return g, 0, false
		}
		seen |= bit
	}
	return g, end + 4, seen&required == required
}

// header takes a header. It is false for one that is not plain, or that says
// anything about a body.
func (g *greeting) header(line []byte) (seen int, plain bool) {
	name, value, found := bytes.Cut(line, []byte(":"))
	if !found || !isToken(name) || !isText(value) {
		return 0, false
	}
	value = bytes.Trim(value, " \t")
	is := func(name2 string) bool { return len(name) == len(name2) && bytes.EqualFold(name, []byte(name2)) }
	switch {
	case is("Host"):
		g.host = string(value)
		return seenHost, isHost(g.host)
	case is("Origin"):
		g.origin = string(value)
		return seenOrigin, true
	case is("Upgrade"):
		return seenUpgrade, bytes.EqualFold(value, []byte("websocket"))
	case is("Connection"):
		return seenConnection, bytes.EqualFold(value, []byte("upgrade")) || bytes.EqualFold(value, []byte("keep-alive, upgrade"))
	case is("Sec-WebSocket-Version"):
		return seenVersion, string(value) == "13"
	case is("Sec-WebSocket-Key"):
		var raw [keyLen]byte
		n, err := base64.StdEncoding.Strict().Decode(raw[:], value[:min(len(value), keyLen)])
		g.key = value
		return seenKey, err == nil && n == 16 && len(value) == keyLen
	case is("Sec-WebSocket-Protocol"):
		g.protocol = choose(string(value))
		return seenProtocol, true
	case is("Content-Length"), is("Transfer-Encoding"), is("Trailer"), is("Expect"):
		return 0, false
	}
	return 0, true
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

// isToken reports whether a name is one of letters, digits and dashes: others can
// be, too.
func isToken(name []byte) bool {
	for _, c := range name {
		if !isAlnum(c) && c != '-' {
			return false
		}
	}
	return len(name) > 0
}

// isText reports whether a value is of visible ASCII and space.
func isText(value []byte) bool {
	for _, c := range value {
		if (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}

// isHost reports whether a name is one as most are, with a port or without.
func isHost(host string) bool {
	for i := range len(host) {
		if c := host[i]; !isAlnum(c) && !strings.ContainsRune(".-_:[]", rune(c)) {
			return false
		}
	}
	return host != ""
}

func isAlnum(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }
