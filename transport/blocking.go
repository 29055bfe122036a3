package transport

import (
	"io"
	"os"
	"sync"
	"time"
)

// abandonAfter is the time that the end of a connection waits for a blocked call on a closed file.
const abandonAfter = 100 * time.Millisecond

// stopper is a signal that may be sent repeatedly.
type stopper struct {
	once sync.Once
	stop chan struct{}
}

func newStopper() stopper { return stopper{stop: make(chan struct{})} }

func (s *stopper) interrupt() { s.once.Do(func() { close(s.stop) }) }

// pump is a source over a reader without deadlines. The first receive starts a goroutine that reads.
type pump struct {
	stopper
	r      io.Reader
	start  sync.Once
	chunks chan []byte
	used   chan struct{} // the last chunk was released
	ended  chan struct{} // closed when the goroutine has ended
	err    error         // reason of the end; read only after ended is closed
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
		if n, p.err = p.r.Read(b); n > 0 && !p.pass(b[:n]) {
			return
		}
	}
}

// pass passes b to receive and waits for release.
func (p *pump) pass(b []byte) bool {
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

// join waits for the goroutine, if it was started.
func (p *pump) join() {
	p.start.Do(func() { close(p.ended) })
	waitOrAbandon(p.ended)
}

func waitOrAbandon(done <-chan struct{}) {
	t := time.NewTimer(abandonAfter)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// timeoutChunk is the size of one write of a timeoutWriter, in bytes: a quarter of the capacity of a pipe, so
// progress is visible.
const timeoutChunk = 16 << 10

// timeoutWriter is a sink over a writer without deadlines. A goroutine performs each Write, and is abandoned
// after the timeout.
type timeoutWriter struct {
	stopper
	w    io.Writer
	done chan struct{} // closed at the end of the last Write; nil before the first
}

func newTimeoutWriter(w io.Writer) *timeoutWriter { return &timeoutWriter{stopper: newStopper(), w: w} }

func (s *timeoutWriter) send(p []byte, timeout time.Duration) (waited bool, err error) {
	for len(p) > 0 {
		n := min(len(p), timeoutChunk)
		w := beginWrite(s.w)
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
		waitOrAbandon(s.done)
	}
}
