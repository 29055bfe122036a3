package transport

import (
	"crypto/tls"
	"io"
	"net"
	"time"
)

// past is a deadline that ends blocked calls.
var past = time.Unix(1, 0)

// halfCloser is a connection that can end sending alone.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// drain ends sending and reads until the peer has ended, or conn is closed.
func drain(conn halfCloser) {
	if conn.CloseWrite() != nil || conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, conn) // any end is fine
}

// blindWrite detects whether a write was blocked by the peer, for writers that do not report it.
type blindWrite struct {
	full  bool // the file was not writable at the start
	began time.Time
}

func beginWrite(f any) blindWrite { return blindWrite{wasFull(f), time.Now()} }

// waited reports whether the finished write was probably blocked. Neither condition suffices alone: the
// remaining room may be enough, and a busy machine is slow.
func (w blindWrite) waited() bool { return w.full && time.Since(w.began) > promptly }

// promptly is longer than any write that is not blocked.
const promptly = 20 * time.Millisecond

// plainRead is the size of one read of a plainSocket, in bytes. An idle plainSocket has this memory, unlike a
// socket.
const plainRead = 2 << 10

// plainWrite is the size of one write of a plainSocket, in bytes: a TLS record.
const plainWrite = 16 << 10

// plainSocket is a wire over a TLS connection. On Windows it is the wire over every connection.
type plainSocket struct {
	conn halfCloser
	p    []byte
}

func (s *plainSocket) receive() ([]byte, error) {
	if s.p == nil {
		s.p = make([]byte, plainRead)
	}
	n, err := s.conn.Read(s.p)
	if n > 0 {
		return s.p[:n], nil
	}
	return nil, err
}

func (s *plainSocket) release() {}

func (s *plainSocket) interrupt() { _ = s.conn.SetReadDeadline(past) } // fails only if closed

func (s *plainSocket) send(p []byte, timeout time.Duration) (waited bool, err error) {
	for len(p) > 0 {
		n := min(len(p), plainWrite)
		if err := s.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return waited, err
		}
		w := beginWrite(s.underlying())
		if _, err := s.conn.Write(p[:n]); err != nil {
			return waited, err
		}
		waited = waited || w.waited()
		p = p[n:]
	}
	return waited, nil
}

// underlying returns the connection below TLS.
func (s *plainSocket) underlying() net.Conn {
	if t, ok := s.conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return s.conn
}

func (s *plainSocket) awaitPeerClose() { drain(s.conn) }

// kill closes the connection below TLS. Close of TLS would try for seconds to send a close message to a peer
// that does not read.
func (s *plainSocket) kill() {
	_ = s.underlying().Close()
}

func (s *plainSocket) join() {}
