//lint:file-ignore SA1019 the library is a requirement; only this file imports it, so that its successor can replace it easily

package transport

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
	"nhooyr.io/websocket"
)

// Subprotocols are the WebSocket subprotocols that a client may offer, the preferred first. A client need
// not offer any.
var Subprotocols = []string{"arcp.v1", "arcp"}

// Upgrader upgrades HTTP requests to WebSocket connections. It must not be changed after use.
type Upgrader struct {
	Limits Limits

	// AllowHosts lists allowed Host headers: host, host:port, or * for all. Loopback names and
	// the address of the connection are always allowed.
	AllowHosts []string

	// AllowOrigins lists allowed web origins: scheme://host:port, host, host:port, or * for
	// all. The origin of the host itself and requests without Origin are always allowed.
	AllowOrigins []string

	// Refused is called for each request that is refused by the lists or by NotFound, and for each invalid
	// handshake. May be nil.
	Refused func(RefusedUpgrade)

	// Go runs a function on another goroutine; nil: a go statement.
	Go func(func())
}

// RefusedUpgrade is a refused request.
type RefusedUpgrade struct {
	Check      string // the check that failed: one of the constants
	Status     int    // HTTP status
	RemoteAddr string // without a port
	Reason     error  // includes at most 200 bytes of the host or origin
}

// Checks of a request, RefusedUpgrade.Check.
const (
	CheckHost      = "host"      // AllowHosts
	CheckOrigin    = "origin"    // AllowOrigins
	CheckPath      = "path"      // NotFound
	CheckHandshake = "handshake" // the headers of the WebSocket handshake
)

// Handler returns a handler that upgrades requests and calls serve on a new goroutine. serve owns the
// connection. The handler returns at once, which frees the buffers of net/http. It answers other requests
// with an error of one line.
func (u *Upgrader) Handler(serve func(Conn)) http.Handler {
	return u.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := u.upgrade(w, r); err == nil { // upgrade has answered an error
			u.run(func() { serve(c) })
		}
	}))
}

// Guard returns a handler that passes requests to next if AllowHosts and AllowOrigins allow them, and refuses others.
func (u *Upgrader) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkHost(r.Host, localAddr(r), u.AllowHosts); err != nil {
			u.refuse(w, r, CheckHost, http.StatusMisdirectedRequest, err)
			return
		}
		if err := checkOrigin(r.Header.Get("Origin"), r.Host, u.AllowOrigins); err != nil {
			u.refuse(w, r, CheckOrigin, http.StatusForbidden, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (u *Upgrader) refuse(w http.ResponseWriter, r *http.Request, check string, status int, reason error) {
	u.report(r, check, status, reason)
	http.Error(w, reason.Error(), status)
}

func (u *Upgrader) report(r *http.Request, check string, status int, reason error) {
	if u.Refused != nil {
		u.Refused(RefusedUpgrade{Check: check, Status: status, RemoteAddr: remoteHost(r.RemoteAddr), Reason: reason})
	}
}

// NotFound answers a request to a path that nothing serves with 404. It reports a WebSocket handshake to Refused.
func (u *Upgrader) NotFound(w http.ResponseWriter, r *http.Request) {
	if isUpgrade(r) {
		u.refuse(w, r, CheckPath, http.StatusNotFound, errNoPath)
		return
	}
	http.NotFound(w, r)
}

// errNoPath does not include the path, which may have a secret.
var errNoPath = errors.New("no WebSocket is served at this path")

func isUpgrade(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

func (u *Upgrader) run(f func()) {
	if u.Go != nil {
		u.Go(f)
		return
	}
	go f()
}

func (u *Upgrader) upgrade(w http.ResponseWriter, r *http.Request) (Conn, error) {
	if !isUpgrade(r) {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "a WebSocket handshake is expected here", http.StatusUpgradeRequired)
		return nil, http.ErrNotSupported
	}
	c := newServerConn()
	h := &hijacker{ResponseWriter: w, conn: c}
	if err := answer(h, r); err != nil {
		u.report(r, CheckHandshake, cmp.Or(h.status, http.StatusBadRequest), err)
		return nil, err
	}
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

// answer answers a handshake, also after an error.
func answer(w http.ResponseWriter, r *http.Request) error {
	upgraded, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       Subprotocols,
		InsecureSkipVerify: true, // checked by checkOrigin
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err == nil {
		_ = upgraded.CloseNow() // the library only performs the handshake: it has a stub connection
	}
	return err
}

// hijacker takes the connection from net/http.
type hijacker struct {
	http.ResponseWriter
	conn   *wsConn
	wire   wire
	pass   *Pass
	status int // of the answer
}

// WriteHeader implements http.ResponseWriter.
func (h *hijacker) WriteHeader(status int) {
	h.status = status
	h.ResponseWriter.WriteHeader(status)
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ := brw.Reader.Peek(brw.Reader.Buffered()) // cannot fail
	h.conn.rest, h.pass = slices.Clone(early), passOf(conn)
	if b, ok := conn.(*prefixedConn); ok {
		h.conn.rest, conn = append(h.conn.rest, b.rest...), b.Conn
	}
	if h.wire, err = netWire(conn); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	stub := stubConn{}
	return stub, bufio.NewReadWriter(bufio.NewReaderSize(stub, 0), bufio.NewWriterSize(stub, 0)), nil
}

// DialOptions are the options of Dial. The zero value is valid.
type DialOptions struct {
	Header       http.Header // headers of the handshake
	TLS          *tls.Config // for wss://; nil: the default configuration
	Subprotocols []string    // offered subprotocols; may be empty
	Limits       Limits
}

// Dial connects to a ws:// or wss:// URL. ctx bounds only the handshake.
func Dial(ctx context.Context, url string, o DialOptions) (Conn, error) {
	h := &handshake{tls: o.TLS, body: stubConn{}}
	upgraded, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{
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
	_ = upgraded.CloseNow() // the library only performs the handshake: it has a stub connection
	c := &wsConn{side: ws.StateClientSide}
	c.rest = h.early
	c.start(h.wire, o.Limits, h.info)
	return c, nil
}

// stubConn replaces the upgraded connection in the handshake library. A wsConn uses the connection itself.
type stubConn struct{ net.Conn }

// Read implements net.Conn.
func (stubConn) Read([]byte) (int, error) { return 0, net.ErrClosed }

// Write implements net.Conn.
func (stubConn) Write(p []byte) (int, error) { return len(p), nil }

// Close implements net.Conn.
func (stubConn) Close() error { return nil }

// SetDeadline implements net.Conn.
func (stubConn) SetDeadline(time.Time) error { return nil }

// wsConn is a Conn over WebSocket. Package ws decodes frames from the received bytes. An idle connection has
// no buffer and a small stack.
type wsConn struct {
	core
	side ws.State // client or server; never changes

	// Owned by Read.
	head       [ws.MaxHeaderSize]byte // buffer for a header
	fragmented bool                   // the next frame continues the message
	binary     bool                   // the message is binary; after Read: the returned frame

	acceptsBinary atomic.Bool // Read returns binary frames
}

func newServerConn() *wsConn { return &wsConn{side: ws.StateServerSide} }

func (c *wsConn) start(w wire, l Limits, info Info) {
	info.Kind, info.PeerUID, info.Pings = "websocket", -1, true
	c.init(w, l, info)
	c.answers = endsWithoutMessage(w) // the end of TLS is a message too, which awaitPeerClose sends
}

// SetReadLimit implements Conn.
func (c *wsConn) SetReadLimit(n int64) { c.limit.Store(n) }

// Write implements Conn.
func (c *wsConn) Write(frame []byte) error { return c.write(ws.OpText, outFrame{body: frame}) }

// WriteBinary implements BinaryConn.
func (c *wsConn) WriteBinary(frame []byte) error { return c.write(ws.OpBinary, outFrame{body: frame}) }

// WriteContent implements BinaryConn.
func (c *wsConn) WriteContent(head, content []byte) error {
	return c.write(ws.OpBinary, outFrame{start: head, body: content})
}

func (c *wsConn) write(op ws.OpCode, f outFrame) error {
	if c.side.ClientSide() {
		f.mask = newMask()
	}
	f.headLen = len(dataHeader(f.head[:0], op, f.size(), f.mask))
	return c.out.put(f)
}

// AcceptBinary implements BinaryConn.
func (c *wsConn) AcceptBinary() { c.acceptsBinary.Store(true) }

// Binary implements BinaryConn.
func (c *wsConn) Binary() bool { return c.binary }

// Ping implements Conn.
func (c *wsConn) Ping() error { return c.out.putControl(c.control(ws.OpPing, nil)) }

// Close implements Conn.
func (c *wsConn) Close(code CloseCode, reason string) error {
	return c.close(code, c.control(ws.OpClose, closePayload(code, reason)))
}

func (c *wsConn) control(op ws.OpCode, payload []byte) []byte {
	return controlFrame(op, payload, c.side.ClientSide())
}

// Read implements Conn.
func (c *wsConn) Read() ([]byte, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.releaseFrame()
	if c.failure != nil {
		return nil, c.failure
	}
	for {
		if err := c.next(); err != nil {
			return nil, c.fail(err)
		}
		if c.closed.Load() == nil {
			return c.frameBuffer, nil
		}
		c.releaseFrame() // only the answer to the close frame counts
	}
}

// next reads the next message into c.frameBuffer. It waits in fill, where the stack of an idle
// connection is small.
func (c *wsConn) next() error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		complete, err := c.frame()
		if err != nil {
			return err
		}
		switch {
		case complete && c.binary:
			return nil // payload has checked the size
		case complete:
			return c.check(c.frameBuffer)
		}
	}
}

// frame reads a frame and reports whether it completes the message in c.frameBuffer.
func (c *wsConn) frame() (complete bool, err error) {
	h, err := ws.ReadHeaderBuffer((*received)(c), c.head[:])
	if errors.Is(err, ws.ErrHeaderLengthMSB) || errors.Is(err, ws.ErrHeaderLengthUnexpected) {
		return false, invalid(err)
	}
	if err != nil {
		return false, err
	}
	state := c.side
	if c.fragmented {
		state = state.Set(ws.StateFragmented)
	}
	if err := ws.CheckHeader(h, state); err != nil {
		return false, invalid(err)
	}
	switch {
	case h.OpCode.IsControl():
		return false, c.answer(h)
	case h.OpCode == ws.OpBinary && !c.acceptsBinary.Load():
		return false, &Error{Code: CloseNotText, Reason: "a frame is binary"}
	case !c.fragmented:
		c.binary = h.OpCode == ws.OpBinary
	}
	if limit := c.limit.Load(); h.Length > limit-int64(len(c.frameBuffer)) {
		return false, tooBig(limit)
	}
	if err := c.payload(h); err != nil {
		return false, err
	}
	c.fragmented = !h.Fin
	return h.Fin, nil
}

func invalid(err error) error { return &Error{Code: CloseProtocol, Err: err} }

// payload appends the payload of a text or binary frame or a continuation to c.frameBuffer. A message that was
// received completely in one frame is not copied.
func (c *wsConn) payload(h ws.Header) error {
	n := int(h.Length)
	if h.Fin && !c.fragmented && n <= len(c.rest) {
		c.frameBuffer, c.rest = c.rest[:n:n], c.rest[n:]
		unmask(c.frameBuffer, h, 0)
		return nil
	}
	for done := 0; done < n; {
		part, err := c.appendReceived(n - done)
		if err != nil {
			return err
		}
		unmask(part, h, done)
		done += len(part)
	}
	return nil
}

// FrameOwned implements FrameOwner. Memory above BufferSize is used again only if its owner releases it.
func (c *wsConn) FrameOwned() bool {
	c.reading.Lock()
	defer c.reading.Unlock()
	return cap(c.frameBuffer) > BufferSize
}

// unmask unmasks the part of a payload at offset.
func unmask(part []byte, h ws.Header, offset int) {
	if h.Masked {
		ws.Cipher(part, h.Mask, offset)
	}
}

// answer reads and handles a control frame.
func (c *wsConn) answer(h ws.Header) error {
	var buf [ws.MaxControlFramePayloadSize]byte
	p := buf[:h.Length]
	for n := 0; n < len(p); {
		if err := c.fill(); err != nil {
			return err
		}
		part := copy(p[n:], c.rest)
		n, c.rest = n+part, c.rest[part:]
	}
	unmask(p, h, 0)
	switch h.OpCode {
	case ws.OpPing:
		_ = c.out.putControl(c.control(ws.OpPong, p)) // fails only if the connection ends
	case ws.OpClose:
		return c.closedByPeer(p)
	}
	return nil
}

// closedByPeer answers a close frame with the same code (RFC 6455 §5.5.1).
func (c *wsConn) closedByPeer(payload []byte) error {
	status, reason := ws.ParseCloseFrameData(payload)
	code := CloseCode(status)
	switch {
	case len(payload) == 0:
		code = CloseNoStatus
	case status.IsNotUsed() || status.IsProtocolReserved() || status == ws.StatusNoMeaningYet || !utf8.ValidString(reason):
		return invalid(fmt.Errorf("a close frame with code %d", status))
	}
	err := &Error{Code: code, Reason: reason, Remote: true}
	c.peerClosed.Store(true)
	c.out.answer(c.control(ws.OpClose, closePayload(code, "")), err)
	return err
}

// received is an io.Reader over the received bytes.
type received wsConn

// Read implements io.Reader.
func (r *received) Read(p []byte) (int, error) {
	c := (*wsConn)(r)
	if err := c.fill(); err != nil {
		return 0, err
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
