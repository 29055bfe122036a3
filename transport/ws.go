//lint:file-ignore SA1019 the library was asked for; it is confined to this file so that its renamed continuation is one import away

package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"nhooyr.io/websocket"
)

// Subprotocols are the names of the protocol that a client may offer, the best
// first. None has to be offered.
var Subprotocols = []string{"arcp.v1", "arcp"}

// Upgrader makes WebSocket connections out of HTTP requests.
type Upgrader struct {
	Limits Limits

	// AllowHosts lists names the server is known by, as host, host:port, or *
	// for all, besides loopback names and the addresses it listens on.
	AllowHosts []string

	// AllowOrigins lists web origins whose pages may connect, as
	// scheme://host:port, host, host:port, or * for all, besides pages of the
	// host itself. Clients without an Origin are no pages and may connect.
	AllowOrigins []string

	// Refused is told of each request that does not pass the lists; nil: nobody is.
	Refused func(RefusedUpgrade)

	// Go runs a function on a goroutine other than the caller's; nil: a fresh one.
	Go func(func())
}

// RefusedUpgrade is a request that was answered with an error.
type RefusedUpgrade struct {
	Status     int    // of HTTP
	RemoteAddr string // without a port
	Reason     error  // names the host or the origin, of at most 200 bytes
}

// Handler answers requests that do not pass the lists, or ask for no
// WebSocket, with one line, and calls serve with the others' connection in a
// goroutine of its own: the handler returns at once, so that a connection does
// not hold the buffers of net/http. Serve owns the connection.
func (u *Upgrader) Handler(serve func(Conn)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkHost(r.Host, localAddr(r), u.AllowHosts); err != nil {
			u.refuse(w, r, http.StatusMisdirectedRequest, err)
			return
		}
		if err := checkOrigin(r.Header.Get("Origin"), r.Host, u.AllowOrigins); err != nil {
			u.refuse(w, r, http.StatusForbidden, err)
			return
		}
		if c, err := u.upgrade(w, r); err == nil { // else it is answered
			u.run(func() { serve(c) })
		}
	})
}

func (u *Upgrader) refuse(w http.ResponseWriter, r *http.Request, status int, why error) {
	if u.Refused != nil {
		u.Refused(RefusedUpgrade{Status: status, RemoteAddr: remoteHost(r.RemoteAddr), Reason: why})
	}
	http.Error(w, why.Error(), status)
}

func (u *Upgrader) run(f func()) {
	if u.Go != nil {
		u.Go(f)
		return
	}
	go f()
}

func (u *Upgrader) upgrade(w http.ResponseWriter, r *http.Request) (Conn, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "a WebSocket handshake is expected here", http.StatusUpgradeRequired)
		return nil, http.ErrNotSupported
	}
	c := &wsConn{}
	h := &hijacker{ResponseWriter: w, conn: c}
	if err := c.accept(h, r); err != nil {
		return nil, err
	}
	c.dropLibrary()
	c.start(h.wire, u.Limits, Info{RemoteAddr: remoteHost(r.RemoteAddr), PeerCerts: peerCerts(r.TLS), Pass: h.pass})
	return c, nil
}

func remoteHost(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	return host
}

func peerCerts(s *tls.ConnectionState) (certs []*x509.Certificate) {
	if s == nil {
		return nil
	}
	return s.PeerCertificates
}

// accept has the library answer a handshake.
func (c *wsConn) accept(w http.ResponseWriter, r *http.Request) (err error) {
	c.ws, err = websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       Subprotocols,
		InsecureSkipVerify: true, // checkOrigin did it
		CompressionMode:    websocket.CompressionDisabled,
	})
	return err
}

// hijacker takes the connection out of net/http.
type hijacker struct {
	http.ResponseWriter
	conn *wsConn
	wire wire
	pass *Pass
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ := brw.Reader.Peek(brw.Reader.Buffered()) // cannot fail
	h.conn.rest, h.pass = slices.Clone(early), passOf(conn)
	if b, ok := conn.(*begun); ok {
		h.conn.rest, conn = append(h.conn.rest, b.rest...), b.Conn
	}
	if h.wire, err = netWire(conn); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	s, brw := h.conn.stream()
	return s, brw, nil
}

// DialOptions says how to connect. The zero value will do.
type DialOptions struct {
	Header       http.Header // of the handshake
	TLS          *tls.Config // for wss; nil is the default
	Subprotocols []string    // offered; none is fine
	Limits       Limits
}

// Dial connects to a ws:// or wss:// URL. The context bounds the handshake
// only.
func Dial(ctx context.Context, url string, o DialOptions) (Conn, error) {
	c := &wsConn{client: true}
	h := &handshake{tls: o.TLS, body: &wsStream{c: c}}
	ws, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: h},
		HTTPHeader:   o.Header,
		Subprotocols: o.Subprotocols,
	})
	if err != nil {
		if h.wire != nil {
			h.wire.kill()
		}
		return nil, fmt.Errorf("dial %s: %w%s", url, err, answerText(resp))
	}
	c.ws, c.rest = ws, h.early
	c.start(h.wire, o.Limits, h.info)
	return c, nil
}

// wsConn is a Conn over WebSocket.
//
// What has its common form is read and written here, without the switches
// between goroutines that the library needs: text messages in one frame, pings
// and pongs. All else that arrives is read by the library: farewells, messages
// in fragments, frames cut by the end of a read, and what is an error. The
// library reads no further than to the end of a frame, so that here and there
// go on from the same place.
type wsConn struct {
	core
	client bool

	// ws is the library's side. It costs a goroutine and 5 kB, so a server has
	// one only while the library has something to read.
	ws      *websocket.Conn
	cursor  frameCursor // of what the library reads
	ioErr   error       // of the wire
	refused CloseCode   // what the library wanted to close with
}

func (c *wsConn) start(w wire, l Limits, info Info) {
	info.Kind, info.PeerUID, info.Pings = "websocket", -1, true
	c.init(wsWire{w, c}, l, info)
}

// SetReadLimit implements Conn.
func (c *wsConn) SetReadLimit(n int64) { c.limit.Store(n) }

// Write implements Conn.
func (c *wsConn) Write(frame []byte) error {
	f := outFrame{body: frame}
	if c.client {
		f.key = maskKey()
	}
	f.headLen = len(appendHeader(f.head[:0], opText, len(frame), f.key))
	return c.out.put(f)
}

// Ping implements Conn.
func (c *wsConn) Ping() error {
	return c.out.putControl(controlFrame(opPing, nil, c.client))
}

// Close implements Conn.
func (c *wsConn) Close(code CloseCode, reason string) error {
	return c.close(code, controlFrame(opClose, closePayload(code, reason), c.client))
}

// Read implements Conn.
func (c *wsConn) Read() ([]byte, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.giveBack()
	if c.failure != nil {
		return nil, c.failure
	}
	if err := c.next(); err != nil {
		return nil, c.fail(c.explain(err))
	}
	return c.lent, nil
}

// next reads the next message into c.lent. It works only when there are
// bytes, so that an idle connection waits on little stack.
func (c *wsConn) next() error {
	for {
		if err := c.await(); err != nil {
			return err
		}
		if c.heartbeat() {
			continue
		}
		ok, err := c.text()
		if !ok {
			ok, err = c.other()
		}
		if err != nil {
			return err
		}
		if ok {
			return c.check(c.lent)
		}
	}
}

// header reports whether rest begins with a whole header as the peer should
// send it.
func (c *wsConn) header() bool {
	p := c.rest
	return len(p) >= 2 && (p[1]&maskBit == 0) == c.client && len(p) >= headerLen(p)
}

// heartbeat answers a ping and drops a pong, if that has arrived as a whole.
// The library would do the same on more stack, which idle connections keep.
func (c *wsConn) heartbeat() bool {
	p := c.rest
	if !c.header() || p[0] != opPing && p[0] != opPong || p[1]&^maskBit > maxControlPayload {
		return false
	}
	head := headerLen(p)
	end := head + int(payloadLen(p))
	if len(p) < end {
		return false
	}
	c.rest = p[end:]
	if p[0] == opPing {
		mask(p[head:end], c.key(p[:head]))
		_ = c.out.putControl(controlFrame(opPong, p[head:end], c.client)) // fails if nobody needs it
	}
	return true
}

// key is the mask key at the end of a header.
func (c *wsConn) key(head []byte) uint32 {
	if c.client {
		return 0
	}
	return binary.LittleEndian.Uint32(head[len(head)-4:])
}

// text reads a frame if it is a whole text message.
func (c *wsConn) text() (bool, error) {
	p := c.rest
	if !c.header() || p[0] != opText {
		return false, nil
	}
	head, n, limit := headerLen(p), payloadLen(p), c.limit.Load()
	if n > uint64(limit) {
		return true, tooBig(limit)
	}
	key := c.key(p[:head])
	c.rest = p[head:]
	err := c.payload(int(n))
	mask(c.lent, key)
	return true, err
}

// payload reads n bytes, without copying them if all have arrived.
func (c *wsConn) payload(n int) error {
	if n <= len(c.rest) {
		c.lent, c.rest = c.rest[:n:n], c.rest[n:]
		return nil
	}
	for len(c.lent) < n {
		if err := c.await(); err != nil {
			return err
		}
		part := c.rest[:min(n-len(c.lent), len(c.rest))]
		c.lent, c.rest = appendBuffer(c.lent, part), c.rest[len(part):]
	}
	return nil
}

// other has the library read. It reports false if there is no message yet.
func (c *wsConn) other() (bool, error) {
	if err := c.needLibrary(); err != nil {
		return false, err
	}
	c.ws.SetReadLimit(c.limit.Load())
	typ, r, err := c.ws.Reader(context.Background())
	if err != nil && !errors.Is(err, errIdle) {
		return false, err
	}
	defer c.dropLibrary()
	if err != nil {
		return false, nil
	}
	if typ != websocket.MessageText {
		return false, &Error{Code: CloseNotText, Reason: "a frame is binary"}
	}
	return true, c.message(r)
}

// message reads the fragments of a message.
func (c *wsConn) message(r io.Reader) error {
	for part := make([]byte, partSize); ; {
		n, err := r.Read(part)
		c.lent = appendBuffer(c.lent, part[:n])
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, errIdle) {
			err = c.await()
		}
		if err != nil {
			return err
		}
	}
}

// partSize is how much of a fragmented message is read at once.
const partSize = 4 << 10

// needLibrary starts a library connection. The library makes them in
// handshakes only, so one is played for it.
func (c *wsConn) needLibrary() error {
	if c.ws != nil {
		return nil
	}
	return c.accept(&stage{conn: c, header: http.Header{}}, playedRequest)
}

// dropLibrary ends the library connection of a server. It does not touch the
// wire, and has nothing to forget between two messages.
func (c *wsConn) dropLibrary() {
	if !c.client && c.ws != nil {
		_ = c.ws.CloseNow() // nothing is left that could fail
		c.ws = nil
	}
}

// playedRequest asks for an upgrade that has already happened.
var playedRequest = &http.Request{
	Method:     http.MethodGet,
	ProtoMajor: 1,
	ProtoMinor: 1,
	Header: http.Header{
		"Connection":            {"Upgrade"},
		"Upgrade":               {"websocket"},
		"Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key":     {"AAAAAAAAAAAAAAAAAAAAAA=="},
	},
}

// stage is the http.ResponseWriter of the play. The answer goes nowhere.
type stage struct {
	conn   *wsConn
	header http.Header
}

func (s *stage) Header() http.Header         { return s.header }
func (s *stage) WriteHeader(int)             {}
func (s *stage) Write(p []byte) (int, error) { return len(p), nil }

// Hijack implements http.Hijacker.
func (s *stage) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	stream, brw := s.conn.stream()
	return stream, brw, nil
}

// await is fill, and keeps the error.
func (c *wsConn) await() error {
	err := c.fill()
	if err != nil {
		c.ioErr = err
	}
	return err
}

// explain finds the reason behind an error of the library.
func (c *wsConn) explain(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		return c.peerClosed(CloseCode(e.Code), e.Reason)
	}
	switch {
	case c.ioErr != nil:
		return c.ioErr
	case c.refused == CloseTooBig:
		return tooBig(c.limit.Load())
	default:
		return &Error{Code: CloseProtocol, Err: err}
	}
}

// peerClosed answers with the same code (RFC 6455 §5.5.1).
func (c *wsConn) peerClosed(code CloseCode, reason string) error {
	err := &Error{Code: code, Reason: reason, Remote: true}
	c.gone.Store(true)
	c.out.answer(controlFrame(opClose, closePayload(code, ""), c.client), err)
	return err
}

// errIdle makes the library return between frames when nothing more has
// arrived. It goes on from there when it is called again.
var errIdle = errors.New("no bytes yet")

// wsStream is the connection as the library sees it.
type wsStream struct {
	net.Conn // nil: the library reads, writes and closes
	c        *wsConn
}

// controlSize has room for any control frame of a server, so that each comes
// as one Write.
const controlSize = 128

// stream returns the connection for the library with the smallest buffers:
// those that matter are below it.
func (c *wsConn) stream() (net.Conn, *bufio.ReadWriter) {
	s := &wsStream{c: c}
	return s, bufio.NewReadWriter(bufio.NewReaderSize(s, 0), bufio.NewWriterSize(s, controlSize))
}

// Read never goes beyond the end of a frame, so that the library holds no
// bytes between frames, and never returns io.EOF, which the library would take
// for the end of a message.
func (s *wsStream) Read(p []byte) (int, error) {
	c := s.c
	if len(c.rest) == 0 {
		if c.cursor.atStart() {
			return 0, errIdle
		}
		if err := c.await(); err == io.EOF {
			return 0, io.ErrUnexpectedEOF
		} else if err != nil {
			return 0, err
		}
	}
	n := c.cursor.advance(c.rest[:min(len(p), len(c.rest))])
	copy(p, c.rest[:n])
	c.rest = c.rest[n:]
	return n, nil
}

// Write takes whole control frames: pongs, and the farewells with which the
// library refuses or answers something. Those are left to Close and peerClosed.
func (s *wsStream) Write(p []byte) (int, error) {
	if p[0] == opClose {
		s.c.refused = closeCode(p)
		return len(p), nil
	}
	if err := s.c.out.putControl(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close does nothing: the connection ends when its owner says so.
func (s *wsStream) Close() error { return nil }

// wsWire ends the library together with the wire.
type wsWire struct {
	wire
	c *wsConn
}

func (w wsWire) join() {
	if w.c.ws != nil {
		_ = w.c.ws.CloseNow() // nothing is left that could fail
	}
	w.wire.join()
}
