package transport

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// maxControl bounds the control frames that wait while a frame is being sent:
// one of each kind in both directions is four of 131 bytes. When there is no
// room the waiting ones are dropped for the new one, as only the latest ping
// needs its pong (RFC 6455 §5.5.3).
const maxControl = 4 * 131

// stuckAfter is how long a close frame waits for a write in progress. A peer that reads has
// taken 64 KiB in far less, even if the writer waits for a processor. A peer that does not
// read would not see the close frame.
const stuckAfter = closeTimeout / 2

var errStuck = errors.New("the peer does not read")

// sink takes bytes.
type sink interface {
	// send returns when all of p is taken, or an error when none of it was
	// for the time of the timeout, and whether it had to wait for the peer. One
	// goroutine at a time may call it.
	send(p []byte, timeout time.Duration) (waited bool, err error)
}

// outbox gathers frames, so that many of them cost one write(2).
//
// The goroutine that writes to the sink holds the turn from the first byte of a frame to its
// last. Control frames may come from any goroutine and never block: they wait for the end of
// the frame being sent, and the holder of the turn sends them before it releases the turn.
// Without a holder a goroutine is started for them. "No frame waits" and "the turn is free"
// change under mu together, so that no control frame is left behind.
type outbox struct {
	sink    sink
	timeout time.Duration
	took    func()        // called when the peer took bytes that had to wait for it; may be nil
	turn    chan struct{} // capacity 1; the goroutine whose token is in it has the turn

	mu      sync.Mutex
	buf     []byte // whole frames, in memory from the pool; nil when empty
	control []byte // whole control frames
	err     error  // why nothing more is taken
}

func (o *outbox) init(s sink, timeout time.Duration) {
	o.sink, o.timeout, o.turn = s, timeout, make(chan struct{}, 1)
}

// outFrame is the part of a frame that is not gathered yet: header, body and trailer. The body
// is masked unless noMask is set.
type outFrame struct {
	head    [ws.MaxHeaderSize]byte
	headPos int
	headLen int
	body    []byte
	tail    string
	mask    [4]byte
	masked  int // bytes of the body, so far
}

func (f *outFrame) size() int { return f.headLen - f.headPos + len(f.body) + len(f.tail) }

// fill moves the part of f that fits into p's capacity to p.
func (f *outFrame) fill(p []byte) []byte {
	n := min(f.headLen-f.headPos, cap(p)-len(p))
	p = append(p, f.head[f.headPos:f.headPos+n]...)
	f.headPos += n

	n = min(len(f.body), cap(p)-len(p))
	start := len(p)
	p, f.body = append(p, f.body[:n]...), f.body[n:]
	if f.mask != noMask {
		ws.Cipher(p[start:], f.mask, f.masked)
		f.masked += n
	}

	n = min(len(f.tail), cap(p)-len(p))
	p, f.tail = append(p, f.tail[:n]...), f.tail[n:]
	return p
}

// put gathers f. Only if f does not fit are bytes sent.
func (o *outbox) put(f outFrame) error {
	o.mu.Lock()
	if o.err == nil && len(o.buf)+f.size() <= BufferSize {
		o.gatherLocked(f)
		o.mu.Unlock()
		return nil
	}
	err := o.err
	o.mu.Unlock()
	if err != nil {
		return err
	}
	return o.overflow(f)
}

func (o *outbox) gatherLocked(f outFrame) {
	if o.buf == nil {
		o.buf = getBuffer()[:0]
	}
	o.buf = f.fill(o.buf)
}

// overflow sends the gathered bytes, then gathers f if it fits now. A larger f is sent through
// the buffer to its last byte.
func (o *outbox) overflow(f outFrame) error {
	o.turn <- struct{}{}
	defer o.release()
	if err := o.sendGathered(); err != nil {
		return err
	}
	if f.size() <= BufferSize {
		return o.gather(f)
	}
	for p := getBuffer()[:0]; ; p = p[:0] {
		p = f.fill(p)
		if err := o.sendNow(p); err != nil {
			return err
		}
		if f.size() == 0 {
			putBuffer(p)
			return nil
		}
	}
}

func (o *outbox) gather(f outFrame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	o.gatherLocked(f)
	return nil
}

// flush sends the gathered bytes.
func (o *outbox) flush() error {
	o.mu.Lock()
	err, empty := o.err, len(o.buf) == 0
	o.mu.Unlock()
	if err != nil || empty {
		return err
	}
	o.turn <- struct{}{}
	defer o.release()
	return o.sendGathered()
}

// sendGathered sends the frames and control frames there are. The caller has
// the turn.
func (o *outbox) sendGathered() error {
	o.mu.Lock()
	if o.err != nil {
		defer o.mu.Unlock()
		return o.err
	}
	p := o.takeLocked()
	o.mu.Unlock()

	err := o.sendNow(p)
	if err == nil {
		putBuffer(p)
	}
	return err
}

// takeLocked hands over the frames gathered and the control frames.
func (o *outbox) takeLocked() []byte {
	p := o.buf
	if len(p)+len(o.control) <= cap(p) {
		p = append(p, o.control...)
		o.control = nil
	}
	o.buf = nil
	return p
}

// sendNow sends p and returns why the outbox ended, if it did. Memory of a
// failed send is not used again: the sink may still be at it.
func (o *outbox) sendNow(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	waited, err := o.sink.send(p, o.timeout)
	if err != nil {
		return o.stop(&Error{Code: CloseAbnormal, Err: fmt.Errorf("write: %w", err)})
	}
	if o.took != nil && waited {
		o.took()
	}
	return nil
}

// release gives up the turn when no control frame is waiting.
func (o *outbox) release() {
	o.mu.Lock()
	for len(o.control) > 0 {
		p := o.control
		o.control = nil
		o.mu.Unlock()
		_ = o.sendNow(p) // kept in o.err for the next caller
		o.mu.Lock()
	}
	<-o.turn
	o.mu.Unlock()
}

// putControl sends a control frame soon, without blocking.
func (o *outbox) putControl(frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	o.controlLocked(frame)
	return nil
}

func (o *outbox) controlLocked(frame []byte) {
	if len(o.control)+len(frame) > maxControl {
		o.control = nil
	}
	o.control = append(o.control, frame...)
	select {
	case o.turn <- struct{}{}:
		go o.release()
	default:
	}
}

// answer sends a farewell as the last control frame, without blocking. Frames
// that were gathered are dropped. Other calls fail with why from now on.
func (o *outbox) answer(farewell []byte, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return
	}
	o.err = why
	o.dropLocked()
	o.controlLocked(farewell)
}

// finish sends the gathered bytes and then the close frame. Later calls of other methods fail
// with why. It does not wait for a write that is stuck.
func (o *outbox) finish(farewell []byte, why error) error {
	if !o.turnWithin(stuckAfter) {
		o.stop(why)
		return &Error{Code: CloseAbnormal, Err: errStuck}
	}
	defer o.release()
	o.mu.Lock()
	if o.err != nil {
		defer o.mu.Unlock()
		return o.err
	}
	o.err = why
	p := append(o.takeLocked(), o.control...)
	p, o.control = append(p, farewell...), nil
	o.mu.Unlock()
	if len(p) == 0 {
		return nil
	}
	_, err := o.sink.send(p, o.timeout)
	return err
}

func (o *outbox) turnWithin(d time.Duration) bool {
	select {
	case o.turn <- struct{}{}:
		return true
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case o.turn <- struct{}{}:
		return true
	case <-t.C:
		return false
	}
}

// stop lets all calls fail with why, unless they already fail with another
// reason, and returns the reason. It does not interrupt a send.
func (o *outbox) stop(why error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = why
	}
	o.dropLocked()
	return o.err
}

func (o *outbox) dropLocked() {
	putBuffer(o.buf)
	o.buf, o.control = nil, nil
}

// join returns when no goroutine is sending. The sink must be broken before, so that a sender
// fails.
func (o *outbox) join() {
	o.turn <- struct{}{}
	<-o.turn
}
