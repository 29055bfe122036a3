package transport

import (
	"io"
	"os"
	"syscall"
	"time"
)

// Stdio returns a connection of one frame a line to a process at the other end
// of in and out, as a rule os.Stdin and os.Stdout. It owns both.
//
// Where files have no deadlines, as the standard ones mostly do not, reading
// and writing happen in goroutines that the connection waits for. A Read or
// Write of the operating system that is not ended even by closing the file is
// left behind, which is for the end of a process.
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

// newSource reads f by the poller if it can.
func newSource(f io.Reader) source {
	if p, ok := f.(polled); ok && p.SetReadDeadline(time.Time{}) == nil {
		in := &polledReader{}
		if in.init(p) == nil {
			return in
		}
	}
	return newPump(f)
}

// newSink writes f by the poller if it can.
func newSink(f io.Writer) sink {
	if p, ok := f.(polled); ok && p.SetWriteDeadline(time.Time{}) == nil {
		out := &polledWriter{}
		if out.init(p) == nil {
			return out
		}
	}
	return newPatientSink(f)
}

// reads is about the file that is written: the other one has ended.
func (w *fileWire) reads() bool {
	f, ok := w.out.(syscall.Conn)
	return ok && peerReads(f)
}

// linger has nothing to wait for: closing a file takes nothing from its reader.
func (w *fileWire) linger() {}

func (w *fileWire) kill() {
	w.interrupt()
	if s, ok := w.sink.(*timeoutWriter); ok {
		s.interrupt()
	}
	_ = w.in.Close() // the process ends: the error has no reader
	_ = w.out.Close()
}

func (w *fileWire) join() {
	if p, ok := w.source.(*pump); ok {
		p.join()
	}
	if s, ok := w.sink.(*timeoutWriter); ok {
		s.join()
	}
}
