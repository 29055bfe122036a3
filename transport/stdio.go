package transport

import (
	"io"
)

// Stdio returns a connection over in and out, usually os.Stdin and os.Stdout, with one frame on each line.
// The connection owns both.
//
// For files without deadlines, which the standard files usually are, goroutines read and write. Close and
// Abort wait for them. A system call that does not end when its file is closed is abandoned: use such a
// connection only until the process ends.
func Stdio(in io.ReadCloser, out io.WriteCloser, l Limits) Conn {
	w := &fileWire{in: in, out: out, source: newSource(in), sink: newSink(out)}
	return newStreamConn(w, lines{}, l, Info{Kind: "stdio", PeerUID: ownUID(), Local: true})
}

// fileWire is a wire over two files.
type fileWire struct {
	source
	sink
	in, out io.Closer
}

// reads examines the output file, because the input has ended.
func (w *fileWire) reads() bool { return fileReads(w.out) }

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
