package conformance

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/arcpd/arcpd/transport"
)

// socket is a WebSocket client that can send binary frames, invalid UTF-8 and frames above the size
// limit. It implements transport.Conn, so a check can open a session on it. Received messages are
// bounded by SetReadLimit.
type socket struct {
	conn  net.Conn
	in    *bufio.Reader
	limit int64

	binary bool // the message that Read returned last is binary

	writing sync.Mutex
	out     *bufio.Writer
}

// Opcodes of RFC 6455 §5.2.
const (
	opContinuation = 0x0

	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xA
)

// dialSocket connects and performs the WebSocket handshake (RFC 6455 §4.1). config is for wss://; nil: the
// default configuration.
func dialSocket(ctx context.Context, rawURL string, config *tls.Config) (*socket, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	conn, err := dialHost(ctx, u, config)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // the timeout of the check bounds the connection too
	}
	s := &socket{conn: conn, in: bufio.NewReader(conn), out: bufio.NewWriter(conn)}
	if err := s.upgrade(u); err != nil {
		_ = conn.Close() // the error of the upgrade is more useful
		return nil, err
	}
	return s, nil
}

func dialHost(ctx context.Context, u *url.URL, config *tls.Config) (net.Conn, error) {
	port := u.Port()
	switch u.Scheme {
	case "wss":
		if port == "" {
			port = "443"
		}
		d := tls.Dialer{Config: config}
		return d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	case "ws":
		if port == "" {
			port = "80"
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	}
	return nil, fmt.Errorf("scheme %q is neither ws nor wss", u.Scheme)
}

func (s *socket) upgrade(u *url.URL) error {
	_, err := fmt.Fprintf(s.out, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", u.RequestURI(), u.Host, "YXJjcCBjb25mb3JtYW5jZQ==")
	if err == nil {
		err = s.out.Flush()
	}
	if err != nil {
		return err
	}
	resp, err := http.ReadResponse(s.in, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("upgrade refused: %s", resp.Status)
	}
	return nil
}

// send writes one masked frame and flushes it.
func (s *socket) send(opcode byte, body []byte) error {
	head := []byte{0x80 | opcode}
	switch n := len(body); {
	case n < 126:
		head = append(head, 0x80|byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 0x80|126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 0x80|127), uint64(n))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:]) // never fails
	masked := make([]byte, len(body))
	for i, b := range body {
		masked[i] = b ^ mask[i&3]
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, part := range [][]byte{head, mask[:], masked} {
		if _, err := s.out.Write(part); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// receive reads one frame. Frames of a server are not masked.
func (s *socket) receive() (opcode byte, fin bool, body []byte, err error) {
	var head [2]byte
	if _, err = io.ReadFull(s.in, head[:]); err != nil {
		return 0, false, nil, err
	}
	n, err := s.length(head[1] & 0x7F)
	if err == nil && s.limit > 0 && n > uint64(s.limit) {
		err = errors.New("frame is over the read limit")
	}
	if err != nil {
		return 0, false, nil, err
	}
	body = make([]byte, n)
	_, err = io.ReadFull(s.in, body)
	return head[0] & 0x0F, head[0]&0x80 != 0, body, err
}

func (s *socket) length(short byte) (uint64, error) {
	var ext [8]byte
	switch short {
	case 126:
		_, err := io.ReadFull(s.in, ext[:2])
		return uint64(binary.BigEndian.Uint16(ext[:2])), err
	case 127:
		_, err := io.ReadFull(s.in, ext[:])
		return binary.BigEndian.Uint64(ext[:]), err
	}
	return uint64(short), nil
}

// Read implements transport.Conn.
func (s *socket) Read() ([]byte, error) {
	var message []byte
	for {
		opcode, fin, body, err := s.receive()
		switch {
		case err != nil:
			return nil, &transport.Error{Code: transport.CloseAbnormal, Err: err}
		case opcode == opClose:
			return nil, closeError(body)
		case opcode == opPing:
			_ = s.send(opPong, body) // the next read reports the reason
		case opcode == opPong:
		default:
			if opcode != opContinuation {
				s.binary = opcode == opBinary
			}
			message = append(message, body...)
			if fin {
				return message, nil
			}
		}
	}
}

func closeError(body []byte) error {
	if len(body) < 2 {
		return &transport.Error{Code: transport.CloseNoStatus, Remote: true}
	}
	return &transport.Error{Code: transport.CloseCode(binary.BigEndian.Uint16(body)), Reason: string(body[2:]), Remote: true}
}

// WriteBinary implements proxy.BinaryWriter.
func (s *socket) WriteBinary(data []byte) error { return s.send(opBinary, data) }

// Binary implements proxy.BinaryReader.
func (s *socket) Binary() bool { return s.binary }

// Write implements transport.Conn. The frame may be any bytes.
func (s *socket) Write(frame []byte) error { return s.send(opText, frame) }

// Flush implements transport.Conn. Write has no buffer.
func (s *socket) Flush() error { return nil }

// Close implements transport.Conn.
func (s *socket) Close(code transport.CloseCode, reason string) error {
	err := s.send(opClose, append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...))
	return errors.Join(err, s.conn.Close())
}

// Abort implements transport.Conn.
func (s *socket) Abort() error { return s.conn.Close() }

// SetReadLimit implements transport.Conn.
func (s *socket) SetReadLimit(n int64) { s.limit = n }

// Ping implements transport.Conn.
func (s *socket) Ping() error { return s.send(opPing, nil) }

// LastSeen implements transport.Conn. It always returns the zero time.
func (s *socket) LastSeen() time.Time { return time.Time{} }

// Info implements transport.Conn.
func (s *socket) Info() transport.Info { return transport.Info{Kind: "websocket", PeerUID: -1} }
