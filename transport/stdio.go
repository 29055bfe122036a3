package transport

import (
	"io"
	"os"
	"syscall"
	"time"
)

// Stdio returns a connection over in and out, usually os.Stdin and os.Stdout, with one frame on each line.
// The connection owns both.
//
// For files without deadlines, which the standard files usually are, goroutines read and write. Close and
// Abort wait for them. A system call that does not end when its file is closed is abandoned: use such a
// connection only until the process ends.
func Stdio(in io.ReadCloser, out io.WriteCloser, l Limits) Conn {
	w := &fileWire{in: in, out: out, source: newSource(in), sink: newSink(out)}
	return newStreamConn(w, lines{}, l, Info{Kind: "stdio", PeerUID: os.Getuid(), Local: true})
}

// fileWire is a wire over two files.
type fileWire struct {
	source
	sink
	in, out io.Closer
}

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

// reads examines the output file, because the input has ended.
func (w *fileWire) reads() bool {
	f, ok := w.out.(syscall.Conn)
	return ok && peerReads(f)
}

// awaitPeerClose does nothing: closing a file loses no written bytes.
func (w *fileWire) awaitPeerClose() {}

func (w *fileWire) kill() {
	w.interrupt()
	if s, ok := w.sink.(*timeoutWriter); ok {
		s.interrupt()
	}
	_ = w.in.Close() // the connection is over
	_ = w.out.Close()
}

func (w *fileWire) join() {
	if p, ok := w.source.(*blockingReader); ok {
		p.join()
	}
	if s, ok := w.sink.(*timeoutWriter); ok {
		s.join()
	}
}
