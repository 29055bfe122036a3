//go:build unix

package transport

import (
	"io"
	"syscall"
	"time"
)

// newSource returns a source that reads f, with the poller if possible.
func newSource(f io.Reader) source {
	if p, ok := f.(polled); ok && p.SetReadDeadline(time.Time{}) == nil {
		in := &polledReader{}
		if in.init(p) == nil {
			return in
		}
	}
	return newBlockingReader(f)
}

// newSink returns a sink that writes f, with the poller if possible.
func newSink(f io.Writer) sink {
	if p, ok := f.(polled); ok && p.SetWriteDeadline(time.Time{}) == nil {
		out := &polledWriter{}
		if out.init(p) == nil {
			return out
		}
	}
	return newTimeoutWriter(f)
}

// fileReads reports whether the other end of a socket or pipe is open for reading.
func fileReads(out io.Closer) bool {
	f, ok := out.(syscall.Conn)
	return ok && peerReads(f)
}
