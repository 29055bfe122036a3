package transport

import (
	"io"
	"os"
	"sync"
	"time"
)

// patience is how long the end of a connection waits for a call on a file that
// was closed under it. Files whose calls end by closing need no time for it.
const patience = 100 * time.Millisecond

// stopper is a signal that can be given more than once.
type stopper struct {
	once sync.Once
	stop chan struct{}
}

func newStopper() stopper { return stopper{stop: make(chan struct{})} }

func (s *stopper) interrupt() { s.once.Do(func() { close(s.stop) }) }

// pump is a source over a reader that has no deadlines. One goroutine reads,
// from the first receive on.
type pump struct {
	stopper
	r      io.Reader
	start  sync.Once
	chunks chan []byte
	used   chan struct{} // the chunk received last was used
	ended  chan struct{} // closed when the goroutine has ended
	err    error         // why; to be read after ended
	lent   bool
}

func newPump(r io.Reader) *pump {
	return &pump{
		stopper: newStopper(),
		r:       r,
		chunks:  make(chan []byte),
		used:    make(chan struct{}),
		ended:   make(chan struct{}),
	}
}

func (p *pump) receive() ([]byte, error) {
	p.start.Do(func() { go p.run() })
	select {
	case b := <-p.chunks:
		p.lent = true
		return b, nil
	case <-p.stop:
		return nil, os.ErrClosed
	case <-p.ended:
		return nil, p.err
	}
}

func (p *pump) release() {
	if !p.lent {
		return
	}
	p.lent = false
	select {
	case p.used <- struct{}{}:
	case <-p.ended:
	}
}

func (p *pump) run() {
	defer close(p.ended)
	for b := make([]byte, BufferSize); p.err == nil; {
		var n int
		if n, p.err = p.r.Read(b); n > 0 && !p.lend(b[:n]) {
			return
		}
	}
}

// lend hands b over and waits until it was used.
func (p *pump) lend(b []byte) bool {
	select {
	case p.chunks <- b:
	case <-p.stop:
		return false
	}
	select {
	case <-p.used:
		return true
	case <-p.stop:
		return false
	}
}

// join waits for the goroutine, if there ever was one.
func (p *pump) join() {
	p.start.Do(func() { close(p.ended) })
	waitPatiently(p.ended)
}

func waitPatiently(done <-chan struct{}) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// patientChunk is the size of one write of a patientSink, in bytes: a quarter of a pipe's
// capacity, so that progress is visible.
const patientChunk = 16 << 10

// timeoutWriter is a sink over a writer without deadlines. Each Write happens on a goroutine,
// which is abandoned when it exceeds the timeout.
type timeoutWriter struct {
	stopper
	w    io.Writer
	done chan struct{} // closed when the Write begun last has ended; nil before the first
}

func newPatientSink(w io.Writer) *timeoutWriter { return &timeoutWriter{stopper: newStopper(), w: w} }

func (s *timeoutWriter) send(p []byte, timeout time.Duration) (waited bool, err error) {
	for len(p) > 0 {
		n := min(len(p), patientChunk)
		w := aboutToWrite(s.w)
		if err := s.write(p[:n], timeout); err != nil {
			return waited, err
		}
		waited = waited || w.waited()
		p = p[n:]
	}
	return waited, nil
}

func (s *timeoutWriter) write(p []byte, timeout time.Duration) error {
	done := make(chan struct{})
	s.done = done
	var failed error
	go func() {
		defer close(done)
		_, failed = s.w.Write(p)
	}()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-done:
		return failed
	case <-t.C:
		return os.ErrDeadlineExceeded
	case <-s.stop:
		return os.ErrClosed
	}
}

// join waits for the last Write.
func (s *timeoutWriter) join() {
	if s.done != nil {
		waitPatiently(s.done)
	}
}
