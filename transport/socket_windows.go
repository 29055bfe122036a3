package transport

import (
	"fmt"
	"io"
	"net"
)

// netWire returns a wire over conn.
func netWire(conn net.Conn) (wire, error) {
	h, ok := conn.(halfCloser)
	if !ok {
		return nil, fmt.Errorf("a %T has no CloseWrite", conn)
	}
	return &plainSocket{conn: h}, nil
}

// endsWithoutMessage reports whether w is a wire over a TCP connection without TLS.
func endsWithoutMessage(w wire) bool {
	s, ok := w.(*plainSocket)
	return ok && s.underlying() == s.conn
}

// wasFull returns true: Windows does not say whether a file is writable. A write that takes long
// therefore counts as blocked by the peer.
func wasFull(any) bool { return true }

// newSource returns a source that reads f on a goroutine.
func newSource(f io.Reader) source { return newBlockingReader(f) }

// newSink returns a sink that writes f on a goroutine.
func newSink(f io.Writer) sink { return newTimeoutWriter(f) }

// fileReads returns false, because Windows does not say whether the peer reads. A client that ends its
// output counts as gone.
func fileReads(io.Closer) bool { return false }
