package transport

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Pipe returns the two ends of a connection in memory. Like a socket, each direction buffers up to
// BufferSize bytes.
//
// It blocks only on channels, so it can be used in a testing/synctest bubble.
func Pipe(l Limits) (a, b Conn) {
	ab, ba := newPipeDirection(), newPipeDirection()
	info := Info{Kind: "pipe", PeerUID: ownUID(), Local: true}
	a = newStreamConn(&pipeWire{in: ba, out: ab}, prefixed{}, l, info)
	b = newStreamConn(&pipeWire{in: ab, out: ba}, prefixed{}, l, info)
	return a, b
}

// pipeDirection is one direction of a pipe, with one writer and one reader.
type pipeDirection struct {
	readable chan struct{} // buffered 1: state changed for the reader
	writable chan struct{} // buffered 1: state changed for the writer

	mu          sync.Mutex
	buf         []byte // sent and not received, in memory from the pool; nil when empty
	interrupted bool   // the reader must return
	ended       bool   // the writer has ended
	dead        bool   // the reader is closed
}

func newPipeDirection() *pipeDirection {
	return &pipeDirection{readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

// signal wakes the goroutine that waits, or the next one.
func signal(changed chan struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// put appends as many bytes as the buffer has room for.
func (pd *pipeDirection) put(p []byte) (int, error) {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.dead || pd.ended {
		return 0, io.ErrClosedPipe
	}
	n := min(len(p), BufferSize-len(pd.buf))
	if n == 0 {
		return 0, nil
	}
	if pd.buf == nil {
		pd.buf = getBuffer()[:0]
	}
	pd.buf = append(pd.buf, p[:n]...)
	signal(pd.readable)
	return n, nil
}

// receive removes and returns all buffered bytes.
func (pd *pipeDirection) receive() ([]byte, error) {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.interrupted {
		return nil, net.ErrClosed
	}
	if len(pd.buf) == 0 && pd.ended {
		return nil, io.EOF
	}
	p := pd.buf
	pd.buf = nil
	signal(pd.writable)
	return p, nil
}

// change sets one condition and wakes both sides.
func (pd *pipeDirection) change(condition *bool) {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	*condition = true
	signal(pd.readable)
	signal(pd.writable)
}

// pipeWire is a wire over two pipe directions.
type pipeWire struct {
	in, out *pipeDirection
	inUse   []byte // bytes returned by the last receive
}

func (w *pipeWire) receive() ([]byte, error) {
	for {
		p, err := w.in.receive()
		if len(p) > 0 || err != nil {
			w.inUse = p
			return p, err
		}
		<-w.in.readable
	}
}

func (w *pipeWire) release() {
	putBuffer(w.inUse)
	w.inUse = nil
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

// awaitPeerClose returns at once: the peer still receives the buffered bytes.
func (w *pipeWire) awaitPeerClose() {}

func (w *pipeWire) kill() {
	w.interrupt()
	w.in.change(&w.in.dead)
	w.out.change(&w.out.ended)
}

func (w *pipeWire) join() {}

// prefixed is the framing with a length before each frame. A length with the high bit set precedes a close
// frame: a code and a reason.
type prefixed struct{}

const (
	prefixSize = 4
	closeBit   = 1 << 31
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
	total := prefixSize + int(binary.BigEndian.Uint32(prefix[:])&^closeBit)
	if total > len(head)+len(p) {
		return -1
	}
	return total - len(head)
}

func (prefixed) unwrap(raw []byte) ([]byte, bool, error) {
	body := raw[prefixSize:]
	if raw[0]&(closeBit>>24) == 0 {
		return body, true, nil
	}
	return nil, false, &Error{
		Code:   CloseCode(binary.BigEndian.Uint16(body)),
		Reason: string(body[2:]),
		Remote: true,
	}
}

func (prefixed) overhead() int { return prefixSize }

func (prefixed) closeFrame(code CloseCode, reason string) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(closeBit|2+len(reason)))
	p = binary.BigEndian.AppendUint16(p, uint16(code))
	return append(p, reason...)
}

func (prefixed) eof(bool) error { return io.EOF }
