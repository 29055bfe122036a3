package transport

import (
	"io"
	"os"
	"sync"
	"time"
)

// abandonAfter is the time that the end of a connection waits for a blocked call on a closed file.
const abandonAfter = 100 * time.Millisecond

// closeOnce is a channel that may be closed repeatedly.
type closeOnce struct {
	once sync.Once
	stop chan struct{}
}

func newCloseOnce() closeOnce { return closeOnce{stop: make(chan struct{})} }

func (c *closeOnce) interrupt() { c.once.Do(func() { close(c.stop) }) }

// blockingReader is a source over a reader without deadlines. A goroutine reads; the first receive
// starts it.
type blockingReader struct {
	closeOnce
	r        io.Reader
	start    sync.Once
	chunks   chan []byte
	released chan struct{} // gets a value when the chunk in use is released
	donec    chan struct{} // closed when the goroutine has ended
	err      error         // reason of the end; read only after donec is closed
	inUse    bool          // receive has returned a chunk that is not released
}

func newBlockingReader(r io.Reader) *blockingReader {
	return &blockingReader{
		closeOnce: newCloseOnce(),
		r:         r,
		chunks:    make(chan []byte),
		released:  make(chan struct{}),
		donec:     make(chan struct{}),
	}
}

func (br *blockingReader) receive() ([]byte, error) {
	br.start.Do(func() { go br.run() })
	select {
	case b := <-br.chunks:
		br.inUse = true
		return b, nil
	case <-br.stop:
		return nil, os.ErrClosed
	case <-br.donec:
		return nil, br.err
	}
}

func (br *blockingReader) release() {
	if !br.inUse {
		return
	}
	br.inUse = false
	select {
	case br.released <- struct{}{}:
	case <-br.donec:
	}
}

func (br *blockingReader) run() {
	defer close(br.donec)
	for b := make([]byte, BufferSize); br.err == nil; {
		var n int
		if n, br.err = br.r.Read(b); n > 0 && !br.handOver(b[:n]) {
			return
		}
	}
}

// handOver passes b to receive and waits for release.
func (br *blockingReader) handOver(b []byte) bool {
	select {
	case br.chunks <- b:
	case <-br.stop:
		return false
	}
	select {
	case <-br.released:
		return true
	case <-br.stop:
		return false
	}
}

// join waits for the goroutine, if it was started.
func (br *blockingReader) join() {
	br.start.Do(func() { close(br.donec) })
	waitOrAbandon(br.donec)
}

func waitOrAbandon(done <-chan struct{}) {
	t := time.NewTimer(abandonAfter)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// timeoutChunk is the size of one write of a timeoutWriter, in bytes: a quarter of the capacity of a
// pipe, so progress is visible.
const timeoutChunk = 16 << 10

// timeoutWriter is a sink over a writer without deadlines. A goroutine performs each Write, and is
// abandoned after the timeout.
type timeoutWriter struct {
	closeOnce
	w    io.Writer
	done chan struct{} // closed at the end of the last Write; nil before the first
}

func newTimeoutWriter(w io.Writer) *timeoutWriter {
	return &timeoutWriter{closeOnce: newCloseOnce(), w: w}
}

func (tw *timeoutWriter) send(p []byte, timeout time.Duration) (waited bool, err error) {
	for len(p) > 0 {
		n := min(len(p), timeoutChunk)
		w := beginWrite(tw.w)
		if err := tw.write(p[:n], timeout); err != nil {
			return waited, err
		}
		waited = waited || w.waited()
		p = p[n:]
	}
	return waited, nil
}

func (tw *timeoutWriter) write(p []byte, timeout time.Duration) error {
	done := make(chan struct{})
	tw.done = done
	var failed error
	go func() {
		defer close(done)
		_, failed = tw.w.Write(p)
	}()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-done:
		return failed
	case <-t.C:
		return os.ErrDeadlineExceeded
	case <-tw.stop:
		return os.ErrClosed
	}
}

// join waits for the last Write.
func (tw *timeoutWriter) join() {
	if tw.done != nil {
		waitOrAbandon(tw.done)
	}
}
