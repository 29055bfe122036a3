//go:build linux

package transport_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rawClient is a WebSocket client that sends only the frames of the test. Its mask is zero.
type rawClient struct {
	testing.TB
	fd int
}

// newRawClient opens a bare socket, which has no memory in this process, and
// shakes hands.
func newRawClient(t testing.TB, url string) rawClient {
	t.Helper()
	c := rawClient{t, rawConnect(t, strings.TrimPrefix(url, "ws://"))}
	c.write("GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	answer := make([]byte, 4096)
	n, err := fdReader(c.fd).Read(answer) // it comes in one piece, and nothing after it
	if err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 101 ") {
		t.Fatalf("the handshake was answered %q, %v", answer[:n], err)
	}
	return c
}

func rawConnect(t testing.TB, addr string) int {
	t.Helper()
	tcp, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(os.NewSyscallError("socket", err))
	}
	patience := syscall.NsecToTimeval(int64(30 * time.Second))
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &patience); err != nil {
		t.Fatal(err)
	}
	err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(tcp.IP.To4())})
	if err != nil {
		t.Fatal(os.NewSyscallError("connect", err))
	}
	return fd
}

func (c rawClient) close() { _ = syscall.Close(c.fd) }

func (c rawClient) write(s string) {
	c.Helper()
	for p := []byte(s); len(p) > 0; {
		n, err := syscall.Write(c.fd, p)
		if err != nil {
			c.Fatal(os.NewSyscallError("write", err))
		}
		p = p[n:]
	}
}

// read reads n bytes.
func (c rawClient) read(n int) string {
	c.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(fdReader(c.fd), p); err != nil {
		c.Fatalf("read: %v", err)
	}
	return string(p)
}

type fdReader int

func (fd fdReader) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// frame is a frame with its first byte.
func (c rawClient) frame(first byte, payload string) string {
	p := []byte{first}
	switch n := len(payload); {
	case n <= 125:
		p = append(p, 0x80|byte(n))
	case n <= 0xffff:
		p = binary.BigEndian.AppendUint16(append(p, 0x80|126), uint16(n))
	default:
		p = binary.BigEndian.AppendUint64(append(p, 0x80|127), uint64(n))
	}
	return string(append(p, 0, 0, 0, 0)) + payload
}

// readFrame returns the first byte and the payload of a frame, which must not
// be masked.
func (c rawClient) readFrame() (byte, string) {
	c.Helper()
	head := c.read(2)
	n := uint64(head[1])
	switch n {
	case 126:
		n = uint64(binary.BigEndian.Uint16([]byte(c.read(2))))
	case 127:
		n = binary.BigEndian.Uint64([]byte(c.read(8)))
	}
	if n > 1<<30 {
		c.Fatalf("a frame begins with % x", head)
	}
	return head[0], c.read(int(n))
}

// wantFrame reads a frame and compares.
func (c rawClient) wantFrame(first byte, payload string) {
	c.Helper()
	if f, p := c.readFrame(); f != first || p != payload {
		c.Errorf("got frame %#x %.50q (%d bytes), want %#x %.50q", f, p, len(p), first, payload)
	}
}

// wantEOF reads until the server has ended; nothing may come before.
func (c rawClient) wantEOF() {
	c.Helper()
	p := make([]byte, 100)
	if n, err := fdReader(c.fd).Read(p); err != io.EOF {
		c.Errorf("read = %q, %v, want the end", p[:n], err)
	}
}

// upgradeRequest asks for a WebSocket.
func upgradeRequest(t testing.TB, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http"+strings.TrimPrefix(url, "ws"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Upgrade":               {"websocket"},
		"Connection":            {"Upgrade"},
		"Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key":     {"AAAAAAAAAAAAAAAAAAAAAA=="},
	}
	return r
}
