//go:build unix

package transport

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// polled is a file that the Go poller watches: a socket or a pipe.
type polled interface {
	syscall.Conn
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

// polledReader reads a polled file. It gets a buffer only when the file is readable, so an idle connection
// has no buffer.
type polledReader struct {
	file polled
	raw  syscall.RawConn
	try  func(fd uintptr) bool // the method value tryRead, allocated once

	p    []byte // the last received bytes
	into []byte // memory of the caller for the next bytes; nil: a buffer
	err  error
}

func (pr *polledReader) init(f polled) (err error) {
	pr.file, pr.try = f, pr.tryRead
	pr.raw, err = f.SyscallConn()
	return err
}

func (pr *polledReader) receive() ([]byte, error) {
	if err := pr.raw.Read(pr.try); err != nil {
		return nil, err
	}
	if len(pr.p) > 0 {
		return pr.p, nil
	}
	pr.release()
	if pr.err != nil {
		return nil, os.NewSyscallError("read", pr.err)
	}
	return nil, io.EOF
}

// receiveInto implements intoSource.
func (pr *polledReader) receiveInto(p []byte) (n int, err error) {
	pr.into = p
	err = pr.raw.Read(pr.try)
	n, pr.into, pr.p = len(pr.p), nil, nil
	switch {
	case err != nil:
		return 0, err
	case n > 0:
		return n, nil
	case pr.err != nil:
		return 0, os.NewSyscallError("read", pr.err)
	}
	return 0, io.EOF
}

// tryRead returns false when nothing can be read yet.
func (pr *polledReader) tryRead(fd uintptr) bool {
	if pr.into != nil {
		n, err := retry(syscall.Read, fd, pr.into)
		pr.p, pr.err = pr.into[:max(n, 0)], err
		return err != syscall.EAGAIN
	}
	b := getBuffer()
	n, err := retry(syscall.Read, fd, b[:])
	if err == syscall.EAGAIN {
		putBuffer(b[:])
		return false
	}
	pr.p, pr.err = b[:max(n, 0)], err
	return true
}

func (pr *polledReader) release() {
	putBuffer(pr.p)
	pr.p = nil
}

func (pr *polledReader) interrupt() { _ = pr.file.SetReadDeadline(past) } // fails only if closed

// polledWriter writes a polled file. A write that the kernel accepts at once needs no timer.
type polledWriter struct {
	file polled
	raw  syscall.RawConn
	try  func(fd uintptr) bool // the method value tryWrite, allocated once

	p    []byte // bytes to write
	wait bool   // wait until the file is writable
	n    int    // number of bytes written
	err  error
}

func (out *polledWriter) init(f polled) (err error) {
	out.file, out.try = f, out.tryWrite
	out.raw, err = f.SyscallConn()
	return err
}

// send renews the deadline after each partial write.
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

// trySend sends as many bytes of p as the kernel accepts at once, and returns their number.
func (out *polledWriter) trySend(p []byte) (n int, err error) {
	out.wait = false
	if err = out.write(p, 0); err == syscall.EAGAIN {
		err = nil
	}
	return out.n, err
}

// write performs one write(2) and sets n.
func (out *polledWriter) write(p []byte, timeout time.Duration) error {
	out.p, out.n, out.err = p, 0, nil
	if out.wait {
		if err := out.file.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		defer func() { _ = out.file.SetWriteDeadline(time.Time{}) }() // the next blocked write sets another deadline
	}
	err := out.raw.Write(out.try)
	out.p = nil
	if err != nil {
		return err
	}
	return out.err
}

// tryWrite returns false when nothing can be written yet and write should wait.
func (out *polledWriter) tryWrite(fd uintptr) bool {
	n, err := retry(syscall.Write, fd, out.p)
	if err == syscall.EAGAIN && out.wait {
		return false
	}
	out.n, out.err = max(n, 0), err
	return true
}

// retry repeats a system call that a signal interrupted.
func retry(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(int(fd), p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// socket is a wire over a TCP or Unix connection.
type socket struct {
	polledReader
	polledWriter
	conn halfCloser
}

// netWire returns a wire over conn.
func netWire(conn net.Conn) (wire, error) {
	h, ok := conn.(halfCloser)
	if !ok {
		return nil, fmt.Errorf("a %T has no CloseWrite", conn)
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

// endsWithoutMessage reports whether w is a wire over a TCP or Unix connection without TLS.
func endsWithoutMessage(w wire) bool {
	_, ok := w.(*socket)
	return ok
}

func (s *socket) reads() bool     { return peerReads(s.polledReader.file) }
func (s *socket) awaitPeerClose() { drain(s.conn) }
func (s *socket) kill()           { _ = s.conn.Close() }
func (s *socket) join()           {}

// peerReads reports whether the other end of a socket or pipe is open for reading.
func peerReads(f syscall.Conn) bool {
	events, ok := poll(f)
	return ok && events&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) == 0
}

// wasFull reports whether f was not writable. It returns true for a file that does not say it: a write that takes
// long then counts as blocked by the peer.
func wasFull(f any) bool {
	c, ok := f.(syscall.Conn)
	if !ok {
		return true
	}
	events, ok := poll(c)
	return ok && events == 0
}

// poll returns the current events of f.
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
