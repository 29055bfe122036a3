package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"time"
)

const (
	dialers       = 32
	maxHandshakes = 50_000 // bounds the sessions that the runtime retains
)

// handshake opens a session and ends the connection. It uses a plain socket, so that the row measures the
// runtime and not a client.
type handshake struct {
	addr    string
	request []byte // the HTTP request of the upgrade

	// Frames are WebSocket frames of the dialect.
	openFrame, closeFrame []byte
	opened, closed        string // types of the answers
}

func newHandshake(s *Server, d *dialect) (*handshake, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	request := "GET " + u.Path + " HTTP/1.1\r\nHost: " + u.Host + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	return &handshake{
		addr: u.Host, request: []byte(request),
		openFrame: clientFrame(d.openFrame(s)), opened: d.opened,
		closeFrame: clientFrame(d.closeFrame()), closed: d.closed,
	}, nil
}

// clientFrame returns a WebSocket text frame (RFC 6455 §5.2). A mask of zeros does not change the payload.
func clientFrame(payload []byte) []byte {
	const text, masked, twoBytes = 0x81, 0x80, 126
	frame := binary.BigEndian.AppendUint16([]byte{text, masked | twoBytes}, uint16(len(payload)))
	return append(append(frame, 0, 0, 0, 0), payload...)
}

var (
	switching = []byte("HTTP/1.1 101 ")
	headerEnd = []byte("\r\n\r\n")
)

// drop opens a session and drops the connection.
func (h *handshake) drop(ctx context.Context) error {
	conn, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var buf [4096]byte
	_, err = h.openSession(conn, buf[:])
	return err
}

// close opens a session, closes it with session.close, and waits until the runtime has ended the connection.
func (h *handshake) close(ctx context.Context) error {
	conn, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var buf [4096]byte
	answer, err := h.openSession(conn, buf[:])
	if err != nil {
		return err
	}
	if _, err := conn.Write(h.closeFrame); err != nil {
		return err
	}
	frames := bufio.NewReader(io.MultiReader(bytes.NewReader(answer), conn))
	if err := awaitClose(frames, h.closed); err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	if _, err := conn.Write(normalClosure); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, frames)
	return err
}

func (h *handshake) dial(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", h.addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // no TIME_WAIT: tens of thousands of connections would use up the ports
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // fails only on a closed connection
	}
	return conn, nil
}

// openSession upgrades a connection, opens a session and returns the received bytes after the upgrade.
func (h *handshake) openSession(conn net.Conn, buf []byte) ([]byte, error) {
	answer, err := exchange(conn, h.request, buf, headerEnd)
	if err != nil || !bytes.HasPrefix(answer, switching) {
		return nil, fmt.Errorf("upgrade: %w: %.100q", orRefused(err), answer)
	}
	answer, err = exchange(conn, h.openFrame, buf, typeKey)
	if t := typeOf(answer); err != nil || string(t) != h.opened {
		return nil, fmt.Errorf("open session: %w: %.200q", orRefused(err), answer)
	}
	return answer, nil
}

const (
	closeOpcode = 8      // RFC 6455 §5.5.1
	typeWithin  = 1 << 9 // bytes of a frame that contain its type
)

// normalClosure is a close frame with the code 1000 and a mask of zeros.
var normalClosure = []byte{0x80 | closeOpcode, 0x80 | 2, 0, 0, 0, 0, 1000 >> 8, 1000 & 0xff}

// awaitClose reads frames up to the close frame. The error is a close frame before a frame of type closed.
func awaitClose(r *bufio.Reader, closed string) error {
	for answered := false; ; {
		opcode, typ, err := readFrame(r)
		switch {
		case err != nil:
			return err
		case opcode == closeOpcode && !answered:
			return fmt.Errorf("%w: the connection is closed before %s", errRefused, closed)
		case opcode == closeOpcode:
			return nil
		case typ == closed:
			answered = true
		}
	}
}

var errTooLarge = errors.New("frame of more than 64 KiB, or with a mask")

// readFrame reads a WebSocket frame of a server (RFC 6455 §5.2) and returns its opcode and the type of its envelope.
func readFrame(r *bufio.Reader) (opcode byte, typ string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, "", err
	}
	n := int(head[1])
	if n == 126 {
		var size [2]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return 0, "", err
		}
		n = int(binary.BigEndian.Uint16(size[:]))
	} else if n > 126 {
		return 0, "", errTooLarge
	}
	start, err := r.Peek(min(n, typeWithin))
	if err != nil {
		return 0, "", err
	}
	typ = string(typeOf(start))
	_, err = r.Discard(n)
	return head[0] & 0xf, typ, err
}

// exchange writes a request and reads until the answer contains must.
func exchange(conn net.Conn, request, buf, must []byte) ([]byte, error) {
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	for n := 0; n < len(buf); {
		m, err := conn.Read(buf[n:])
		n += m
		if err != nil || bytes.Contains(buf[:n], must) {
			return buf[:n], err
		}
	}
	return buf, nil
}

// orRefused returns err, or errRefused for nil.
func orRefused(err error) error {
	if err != nil {
		return err
	}
	return errRefused
}

func (r *run) handshakes() (float64, error) {
	h, err := newHandshake(r.server, r.dialect)
	if err != nil {
		return 0, err
	}
	return r.measureHandshakes(h.drop)
}

// closedHandshakes measures handshakes with the closing handshakes of the protocol and of the WebSocket.
func (r *run) closedHandshakes() (float64, error) {
	h, err := newHandshake(r.server, r.dialect)
	if err != nil {
		return 0, err
	}
	return r.measureHandshakes(h.close)
}

func (r *run) measureHandshakes(do func(context.Context) error) (float64, error) {
	until := time.Now().Add(r.opts.Duration)
	r.startCPU()
	began := time.Now()
	var n atomic.Int64
	err := inParallel(dialers, maxHandshakes, func(int) error {
		if time.Now().After(until) {
			return nil
		}
		n.Add(1)
		return do(r.ctx)
	})
	elapsed := time.Since(began)
	r.stopCPU(elapsed)
	return float64(n.Load()) / elapsed.Seconds(), err
}
