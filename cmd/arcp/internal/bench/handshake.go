package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
)

// handshake opens a session and drops the connection. It uses a plain socket, so that the row measures the
// runtime and not a client.
type handshake struct {
	addr    string
	request []byte // the HTTP request of the upgrade
	open    []byte // first frame of the dialect, as a WebSocket frame
	opened  string // type of its answer
}

func newHandshake(s *Server, d *dialect) (*handshake, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	request := "GET " + u.Path + " HTTP/1.1\r\nHost: " + u.Host + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	return &handshake{u.Host, []byte(request), clientFrame(d.openFrame(s)), d.opened}, nil
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

func (h *handshake) do(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", h.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // no TIME_WAIT: tens of thousands of connections would use up the ports
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // fails only on a closed connection
	}
	var buf [4096]byte
	answer, err := exchange(conn, h.request, buf[:], headerEnd)
	if err != nil || !bytes.HasPrefix(answer, switching) {
		return fmt.Errorf("upgrade: %w: %.100q", orRefused(err), answer)
	}
	answer, err = exchange(conn, h.open, buf[:], typeKey)
	if t := typeOf(answer); err != nil || string(t) != h.opened {
		return fmt.Errorf("open session: %w: %.200q", orRefused(err), answer)
	}
	return nil
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
