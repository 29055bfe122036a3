package main

import (
	"io"

	"github.com/arcpd/arcpd/transport"
)

// serveStdio serves one session on standard input and output.
func (s *server) serveStdio(limits transport.Limits) {
	defer close(s.stdioFinished)
	s.serveConn(transport.Stdio(readCloser(s.app.stdin), writeCloser(s.app.stdout), limits))
}

func readCloser(r io.Reader) io.ReadCloser {
	if rc, ok := r.(io.ReadCloser); ok {
		return rc
	}
	return io.NopCloser(r)
}

func writeCloser(w io.Writer) io.WriteCloser {
	if wc, ok := w.(io.WriteCloser); ok {
		return wc
	}
	return nopWriteCloser{w}
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
