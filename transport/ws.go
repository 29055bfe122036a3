package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
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
}

// Handler answers requests that do not pass the lists, or ask for no
// WebSocket, with one line, and calls serve with the others' connection in a
// goroutine of its own: the handler returns at once, so that a connection does
// not hold the buffers of net/http. Serve owns the connection.
func (u *Upgrader) Handler(serve func(Conn)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkHost(r, u.AllowHosts); err != nil {
			http.Error(w, err.Error(), http.StatusMisdirectedRequest)
			return
		}
		if err := checkOrigin(r, u.AllowOrigins); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if c, err := u.upgrade(w, r); err == nil { // else it is answered
			go serve(c)
		}
	})
}

func (u *Upgrader) upgrade(w http.ResponseWriter, r *http.Request) (Conn, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "a WebSocket handshake is expected here", http.StatusUpgradeRequired)
		return nil, http.ErrNotSupported
	}
	h := &hijacker{ResponseWriter: w, conn: &wsConn{}}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols:       Subprotocols,
		InsecureSkipVerify: true, // checkOrigin did it
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	c := h.conn
	h.br.Reset(h.stream) // without what Accept put between
	c.start(ws, h.wire, u.Limits, Info{RemoteAddr: remoteHost(r.RemoteAddr), PeerCerts: peerCerts(r.TLS)})
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

// hijacker gives the library a connection with the smallest buffers: those
// that matter are below it.
type hijacker struct {
	http.ResponseWriter
	conn   *wsConn
	wire   wire
	stream *wsStream
	br     *bufio.Reader
}

// controlSize has room for any control frame of a server, so that each comes
// as one Write.
const controlSize = 128

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if h.wire, err = netWire(conn); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	early, _ := brw.Reader.Peek(brw.Reader.Buffered()) // cannot fail
	h.conn.rest = slices.Clone(early)
	h.stream = &wsStream{conn, h.conn}
	h.br = bufio.NewReaderSize(h.stream, 0) // as small as can be
	return h.stream, bufio.NewReadWriter(h.br, bufio.NewWriterSize(h.stream, controlSize)), nil
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
	h := &handshake{tls: o.TLS}
	c := &wsConn{client: true}
	h.body = func(conn net.Conn) io.ReadWriteCloser { return &wsStream{conn, c} }
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
	c.rest = h.early
	c.start(ws, h.wire, o.Limits, h.info)
	return c, nil
}

// wsConn is a Conn over WebSocket. The library below it reads frames and
// answers pings. Frames are written by this package: it needs no goroutine
// switches for them.
type wsConn struct {
	core
	ws     *websocket.Conn
	client bool

	cursor  frameCursor
	frame   []byte    // lent to the caller of Read
	ioErr   error     // of the wire
	refused CloseCode // what the library wanted to close with
}

func (c *wsConn) start(ws *websocket.Conn, w wire, l Limits, info Info) {
	info.Kind, info.PeerUID, info.Pings = "websocket", -1, true
	c.ws = ws
	c.init(wsWire{w, ws}, l, info)
	ws.SetReadLimit(c.limit.Load())
}

// SetReadLimit implements Conn.
func (c *wsConn) SetReadLimit(n int64) {
	c.limit.Store(n)
	c.ws.SetReadLimit(n)
}

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
	putBuffer(c.frame)
	c.frame = nil
	if c.failure != nil {
		return nil, c.failure
	}
	if err := c.next(); err != nil {
		return nil, c.fail(c.explain(err))
	}
	return c.frame, nil
}

// next reads the next message. It enters the library only when there are
// bytes, so that an idle connection waits on little stack.
func (c *wsConn) next() error {
	for {
		if err := c.await(); err != nil {
			return err
		}
		typ, r, err := c.ws.Reader(context.Background())
		if errors.Is(err, errIdle) {
			continue
		}
		if err != nil {
			return err
		}
		if typ != websocket.MessageText {
			return &Error{Code: CloseNotText, Reason: "a frame is binary"}
		}
		return c.message(r)
	}
}

func (c *wsConn) message(r io.Reader) error {
	c.frame = getBuffer()[:0]
	for {
		n, err := r.Read(c.frame[len(c.frame):cap(c.frame)])
		c.frame = c.frame[:len(c.frame)+n]
		if err == io.EOF {
			return c.check(c.frame)
		}
		if errors.Is(err, errIdle) {
			err = c.await()
		}
		if err != nil {
			return err
		}
		if len(c.frame) == cap(c.frame) {
			c.grow()
		}
	}
}

func (c *wsConn) grow() {
	p := make([]byte, len(c.frame), 2*cap(c.frame))
	copy(p, c.frame)
	putBuffer(c.frame)
	c.frame = p
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
	net.Conn // unused but for its addresses
	c        *wsConn
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
// library refuses or answers something, which are left to Close and
// peerClosed.
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
	ws *websocket.Conn
}

func (w wsWire) join() {
	_ = w.ws.CloseNow() // nothing is left that could fail
	w.wire.join()
}
