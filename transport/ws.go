//lint:file-ignore SA1019 the library was asked for; it is confined to this file so that its renamed continuation is one import away

package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
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

	// Refused is called for each request that the lists refuse; nil: no call.
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
	c := newServerConn()
	h := &hijacker{ResponseWriter: w, conn: c}
	if err := answer(h, r); err != nil {
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

// answer answers a handshake. An error is answered, too.
func answer(w http.ResponseWriter, r *http.Request) error {
	upgraded, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       Subprotocols,
		InsecureSkipVerify: true, // checkOrigin did it
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err == nil {
		_ = upgraded.CloseNow() // only the handshake was for the library: it has nothing that could fail
	}
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
	stub := handedOver{}
	return stub, bufio.NewReadWriter(bufio.NewReaderSize(stub, 0), bufio.NewWriterSize(stub, 0)), nil
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
	h := &handshake{tls: o.TLS, body: handedOver{}}
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
	_ = upgraded.CloseNow() // only the handshake was for the library: it has nothing that could fail
	c := &wsConn{side: ws.StateClientSide}
	c.rest = h.early
	c.start(h.wire, o.Limits, h.info)
	return c, nil
}

// handedOver is the empty part that the handshake library keeps of an upgraded connection. A
// wsConn reads and writes the connection.
type handedOver struct{ net.Conn }

// Read implements net.Conn.
func (handedOver) Read([]byte) (int, error) { return 0, net.ErrClosed }

// Write implements net.Conn.
func (handedOver) Write(p []byte) (int, error) { return len(p), nil }

// Close implements net.Conn.
func (handedOver) Close() error { return nil }

// SetDeadline implements net.Conn.
func (handedOver) SetDeadline(time.Time) error { return nil }

// wsConn is a Conn over WebSocket. Frames are read by the functions of package ws from the
// bytes that have arrived: an idle connection holds no buffer and waits on little stack.
type wsConn struct {
	core
	side ws.State // of the connection; it never changes

	// Of the reader.
	head       [ws.MaxHeaderSize]byte // room for a header while it is read
	fragmented bool                   // a message continues in another frame
}

func newServerConn() *wsConn { return &wsConn{side: ws.StateServerSide} }

func (c *wsConn) start(w wire, l Limits, info Info) {
	info.Kind, info.PeerUID, info.Pings = "websocket", -1, true
	c.init(w, l, info)
}

// SetReadLimit implements Conn.
func (c *wsConn) SetReadLimit(n int64) { c.limit.Store(n) }

// Write implements Conn.
func (c *wsConn) Write(frame []byte) error {
	f := outFrame{body: frame}
	if c.side.ClientSide() {
		f.mask = newMask()
	}
	f.headLen = len(textHeader(f.head[:0], len(frame), f.mask))
	return c.out.put(f)
}

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
	c.giveBack()
	if c.failure != nil {
		return nil, c.failure
	}
	if err := c.next(); err != nil {
		return nil, c.fail(err)
	}
	return c.lent, nil
}

// next reads the next message into c.lent. It works only when there are
// bytes, so that an idle connection waits on little stack.
func (c *wsConn) next() error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		whole, err := c.frame()
		if err != nil {
			return err
		}
		if whole {
			return c.check(c.lent)
		}
	}
}

// frame reads a frame, and reports whether it completes the message in c.lent.
func (c *wsConn) frame() (whole bool, err error) {
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
	case h.OpCode == ws.OpBinary:
		return false, &Error{Code: CloseNotText, Reason: "a frame is binary"}
	}
	if limit := c.limit.Load(); h.Length > limit-int64(len(c.lent)) {
		return false, tooBig(limit)
	}
	if err := c.payload(h); err != nil {
		return false, err
	}
	c.fragmented = !h.Fin
	return h.Fin, nil
}

func invalid(err error) error { return &Error{Code: CloseProtocol, Err: err} }

// payload reads the payload of a text frame, or of a further fragment, behind the bytes in
// c.lent. A message in one frame is not copied if all of it has arrived.
func (c *wsConn) payload(h ws.Header) error {
	n := int(h.Length)
	if h.Fin && !c.fragmented && n <= len(c.rest) {
		c.lent, c.rest = c.rest[:n:n], c.rest[n:]
		unmask(c.lent, h, 0)
		return nil
	}
	for done := 0; done < n; {
		if err := c.fill(); err != nil {
			return err
		}
		part := c.rest[:min(n-done, len(c.rest))]
		unmask(part, h, done)
		c.lent, c.rest = appendBuffer(c.lent, part), c.rest[len(part):]
		done += len(part)
	}
	return nil
}

// unmask removes the mask from a part of a payload that begins at an offset.
func unmask(part []byte, h ws.Header, offset int) {
	if h.Masked {
		ws.Cipher(part, h.Mask, offset)
	}
}

// answer reads the payload of a control frame and performs it.
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
		return c.peerClosed(p)
	}
	return nil
}

// peerClosed answers a close frame with the same code (RFC 6455 §5.5.1).
func (c *wsConn) peerClosed(payload []byte) error {
	status, reason := ws.ParseCloseFrameData(payload)
	code := CloseCode(status)
	switch {
	case len(payload) == 0:
		code = CloseNoStatus
	case status.IsNotUsed() || status.IsProtocolReserved() || status == ws.StatusNoMeaningYet || !utf8.ValidString(reason):
		return invalid(fmt.Errorf("a close frame with code %d", status))
	}
	err := &Error{Code: code, Reason: reason, Remote: true}
	c.gone.Store(true)
	c.out.answer(c.control(ws.OpClose, closePayload(code, "")), err)
	return err
}

// received is the bytes that have arrived, as an io.Reader.
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
