package transport

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Pipe returns the two ends of a connection in memory. Each direction holds
// up to BufferSize bytes that were flushed and not yet read, like a socket.
//
// It blocks in channel operations only, so that it can be used in a bubble of
// testing/synctest.
func Pipe(l Limits) (a, b Conn) {
	ab, ba := newHalf(), newHalf()
	info := Info{Kind: "pipe", PeerUID: os.Getuid(), Local: true}
	a = newStreamConn(&pipeWire{in: ba, out: ab}, prefixed{}, l, info)
	b = newStreamConn(&pipeWire{in: ab, out: ba}, prefixed{}, l, info)
	return a, b
}

// pipeDirection is one direction of a pipe: one writer, one reader.
type pipeDirection struct {
	readable chan struct{} // has one place: there is something new for the reader
	writable chan struct{} // has one place: there is something new for the writer

	mu          sync.Mutex
	buf         []byte // under way, in memory from the pool; nil when empty
	interrupted bool   // the reader shall return
	ended       bool   // nothing will follow buf
	dead        bool   // the reading end is closed
}

func newHalf() *pipeDirection {
	return &pipeDirection{readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

// ring wakes the goroutine that waits, or the next one that will.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// put appends as many bytes as there is room for.
func (h *pipeDirection) put(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead || h.ended {
		return 0, io.ErrClosedPipe
	}
	n := min(len(p), BufferSize-len(h.buf))
	if n == 0 {
		return 0, nil
	}
	if h.buf == nil {
		h.buf = getBuffer()[:0]
	}
	h.buf = append(h.buf, p[:n]...)
	ring(h.readable)
	return n, nil
}

// take hands over all there is, maybe nothing.
func (h *pipeDirection) take() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.interrupted {
		return nil, net.ErrClosed
	}
	if len(h.buf) == 0 && h.ended {
		return nil, io.EOF
	}
	p := h.buf
	h.buf = nil
	ring(h.writable)
	return p, nil
}

// change sets one of the conditions and wakes both sides.
func (h *pipeDirection) change(condition *bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*condition = true
	ring(h.readable)
	ring(h.writable)
}

// pipeWire is a wire over the two halves.
type pipeWire struct {
	in, out *pipeDirection
	lent    []byte // the frame that Read returned last
}

func (w *pipeWire) receive() ([]byte, error) {
	for {
		p, err := w.in.take()
		if len(p) > 0 || err != nil {
			w.lent = p
			return p, err
		}
		<-w.in.readable
	}
}

func (w *pipeWire) release() {
	putBuffer(w.lent)
	w.lent = nil
}

func (w *pipeWire) interrupt() { w.in.change(&w.in.interrupted) }

func (w *pipeWire) send(p []byte, timeout time.Duration) (waited bool, err error) {
	for until := time.Now().Add(timeout); ; waited = true {
		n, err := w.out.put(p)
		if p = p[n:]; len(p) == 0 || err != nil {
			return waited, err
		}
		if n > 0 {
			until = time.Now().Add(timeout)
		}
		if err := w.waitWritable(until); err != nil {
			return true, err
		}
	}
}

func (w *pipeWire) waitWritable(until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-w.out.writable:
		return nil
	case <-t.C:
		return os.ErrDeadlineExceeded
	}
}

// linger returns at once: the peer reads the bytes under way.
func (w *pipeWire) linger() {}

func (w *pipeWire) kill() {
	w.interrupt()
	w.in.change(&w.in.dead)
	w.out.change(&w.out.ended)
}

func (w *pipeWire) join() {}

// prefixed puts the length before each frame. A length with the high bit set begins a
// farewell: a code and a reason.
type prefixed struct{}

const (
	prefixSize  = 4
	farewellBit = 1 << 31
)

func (prefixed) wrap(frame []byte) (outFrame, error) {
	f := outFrame{body: frame, headLen: prefixSize}
	binary.BigEndian.PutUint32(f.head[:], uint32(len(frame)))
	return f, nil
}

func (prefixed) end(head, p []byte) int {
	var prefix [prefixSize]byte
	n := copy(prefix[:], head)
	n += copy(prefix[n:], p)
	if n < prefixSize {
		return -1
	}
	total := prefixSize + int(binary.BigEndian.Uint32(prefix[:])&^farewellBit)
	if total > len(head)+len(p) {
		return -1
	}
	return total - len(head)
}

func (prefixed) unwrap(raw []byte) ([]byte, bool, error) {
	body := raw[prefixSize:]
	if raw[0]&(farewellBit>>24) == 0 {
		return body, true, nil
	}
	return nil, false, &Error{
		Code:   CloseCode(binary.BigEndian.Uint16(body)),
		Reason: string(body[2:]),
		Remote: true,
	}
}

func (prefixed) overhead() int { return prefixSize }

func (prefixed) farewell(code CloseCode, reason string) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(farewellBit|2+len(reason)))
	p = binary.BigEndian.AppendUint16(p, uint16(code))
	return append(p, reason...)
}

func (prefixed) eof(bool) error { return io.EOF }
