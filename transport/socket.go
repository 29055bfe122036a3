package transport

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// past is a deadline that ends blocked calls.
var past = time.Unix(1, 0)

// polled is a file that the runtime's poller watches: a socket or a pipe.
type polled interface {
	syscall.Conn
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

// polledReader reads a polled file. It waits for readability and only then borrows a
// buffer, so that an idle connection holds none.
type polledReader struct {
	file polled
	raw  syscall.RawConn
	try  func(fd uintptr) bool // tryRead, bound once

	p   []byte // the bytes received last
	err error
}

func (in *polledReader) init(f polled) (err error) {
	in.file, in.try = f, in.tryRead
	in.raw, err = f.SyscallConn()
	return err
}

func (in *polledReader) receive() ([]byte, error) {
	if err := in.raw.Read(in.try); err != nil {
		return nil, err
	}
	if len(in.p) > 0 {
		return in.p, nil
	}
	in.release()
	if in.err != nil {
		return nil, os.NewSyscallError("read", in.err)
	}
	return nil, io.EOF
}

// tryRead reports false when there is nothing to read yet.
func (in *polledReader) tryRead(fd uintptr) bool {
	b := getBuffer()
	n, err := retry(syscall.Read, fd, b[:])
	if err == syscall.EAGAIN {
		putBuffer(b[:])
		return false
	}
	in.p, in.err = b[:max(n, 0)], err
	return true
}

func (in *polledReader) release() {
	putBuffer(in.p)
	in.p = nil
}

func (in *polledReader) interrupt() { _ = in.file.SetReadDeadline(past) } // fails only if closed

// polledWriter writes a polled file. Bytes that the kernel accepts at once cost no timer.
type polledWriter struct {
	file polled
	raw  syscall.RawConn
	try  func(fd uintptr) bool // tryWrite, bound once

	p    []byte // to be written
	wait bool   // until some of it is
	n    int    // written
	err  error
}

func (out *polledWriter) init(f polled) (err error) {
	out.file, out.try = f, out.tryWrite
	out.raw, err = f.SyscallConn()
	return err
}

// send renews the deadline whenever the kernel took some bytes.
func (out *polledWriter) send(p []byte, timeout time.Duration) (waited bool, err error) {
	out.wait = false
	for len(p) > 0 {
		if err := out.write(p, timeout); err == syscall.EAGAIN {
			out.wait = true
		} else if err != nil {
			return out.wait, err
		}
		p = p[out.n:]
	}
	return out.wait, nil
}

// write is one write(2). It sets n.
func (out *polledWriter) write(p []byte, timeout time.Duration) error {
	out.p, out.n, out.err = p, 0, nil
	if out.wait {
		if err := out.file.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		defer func() { _ = out.file.SetWriteDeadline(time.Time{}) }() // the next write that waits sets another
	}
	err := out.raw.Write(out.try)
	out.p = nil
	if err != nil {
		return err
	}
	return out.err
}

// tryWrite reports false when nothing can be written yet and it should be
// waited for.
func (out *polledWriter) tryWrite(fd uintptr) bool {
	n, err := retry(syscall.Write, fd, out.p)
	if err == syscall.EAGAIN && out.wait {
		return false
	}
	out.n, out.err = max(n, 0), err
	return true
}

// retry calls a system call again when a signal interrupted it.
func retry(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(int(fd), p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

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

// socket is a wire over a TCP or Unix connection.
type socket struct {
	polledReader
	polledWriter
	conn halfCloser
}

// netWire puts a wire on top of conn.
func netWire(conn net.Conn) (wire, error) {
	h, ok := conn.(halfCloser)
	if !ok {
		return nil, fmt.Errorf("a %T cannot end sending alone", conn)
	}
	f, ok := conn.(polled)
	if !ok {
		return &plainSocket{conn: h}, nil
	}
	s := &socket{conn: h}
	if err := s.polledReader.init(f); err != nil {
		return nil, err
	}
	return s, s.polledWriter.init(f)
}

func (s *socket) reads() bool { return peerReads(s.polledReader.file) }
func (s *socket) linger()     { drain(s.conn) }
func (s *socket) kill()       { _ = s.conn.Close() }
func (s *socket) join()       {}

// peerReads asks the kernel whether a process has the other end of a socket or pipe open for
// reading.
func peerReads(f syscall.Conn) bool {
	events, ok := poll(f)
	return ok && events&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) == 0
}

// blindWrite is a write that does not tell whether it has waited for the peer.
type blindWrite struct {
	full  bool // there was little room
	began time.Time
}

func aboutToWrite(f any) blindWrite {
	c, ok := f.(syscall.Conn)
	if !ok {
		return blindWrite{}
	}
	events, ok := poll(c)
	return blindWrite{ok && events == 0, time.Now()}
}

// waited reports whether the write, which has ended, probably had to wait. Neither sign is
// enough alone: little room may have sufficed, and a busy machine is slow.
func (w blindWrite) waited() bool { return w.full && time.Since(w.began) > promptly }

// promptly is longer than a write takes that does not wait for the peer.
const promptly = 20 * time.Millisecond

// poll returns the events that are possible on f now.
func poll(f syscall.Conn) (events int16, ok bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		for {
			_, err := unix.Poll(p, 0)
			if err != unix.EINTR {
				events, ok = p[0].Revents, err == nil
				return
			}
		}
	})
	return events, err == nil && ok
}

// plainRead is the size of one read of a plainSocket, in bytes. Unlike a socket, a plainSocket
// holds this memory while idle.
const plainRead = 2 << 10

// plainWrite is a TLS record: progress is seen by records.
const plainWrite = 16 << 10

// plainSocket is a wire over a connection that is not the operating system's:
// TLS.
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
		w := aboutToWrite(s.below())
		if _, err := s.conn.Write(p[:n]); err != nil {
			return waited, err
		}
		waited = waited || w.waited()
		p = p[n:]
	}
	return waited, nil
}

// below is the connection that TLS is on.
func (s *plainSocket) below() net.Conn {
	if t, ok := s.conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return s.conn
}

func (s *plainSocket) linger() { drain(s.conn) }

// kill goes below TLS, whose Close would try for seconds to say goodbye to a
// peer that does not read.
func (s *plainSocket) kill() {
	_ = s.below().Close()
}

func (s *plainSocket) join() {}
