package transport

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// maxControl bounds the control frames that wait during a write, in bytes: four frames of 131 bytes. A new
// frame without room replaces the waiting frames, because only the latest ping needs an answer (RFC 6455
// §5.5.3).
const maxControl = 4 * 131

// stuckAfter is the time that a close frame waits for a write in progress. A peer that reads receives 64 KiB
// much faster, even on a busy machine. A peer that does not read would not receive the close frame.
const stuckAfter = closeTimeout / 2

var errStuck = errors.New("the peer does not read")

// sink is the sending part of a wire.
type sink interface {
	// send sends p. It fails when the peer receives no byte for the timeout. waited reports
	// whether send was blocked by the peer. Calls must not overlap.
	send(p []byte, timeout time.Duration) (waited bool, err error)
}

// trySink is a sink that can send without waiting. It does not read the bytes after a send has returned.
type trySink interface {
	// trySend sends as many bytes of p as it can at once, and returns their number. Calls must not
	// overlap with each other and with send.
	trySend(p []byte) (n int, err error)
}

// outbox collects frames and sends many with one write(2).
//
// The goroutine that writes to the sink has the turn from the first byte of a frame to its last.
// Control frames may come from any goroutine and never block. They wait for the end of the current
// frame, and the goroutine with the turn sends them before it releases the turn. If no goroutine
// has the turn, a new goroutine sends them. "No frame waits" and "the turn is free" change together
// under mu, so no control frame is forgotten.
type outbox struct {
	sink        sink
	timeout     time.Duration
	onUnblocked func()        // called after a write that was blocked by the peer; may be nil
	turn        chan struct{} // buffered 1: full while a goroutine has the turn

	mu      sync.Mutex
	buf     []byte // whole frames, in memory from the pool; nil when empty
	control []byte // whole control frames
	err     error  // error of all further calls

	// rest are the bytes, in buffer, that tryFlush could not send. They precede all other bytes. Only the
	// goroutine with the turn changes them.
	rest, buffer []byte
}

func (o *outbox) init(s sink, timeout time.Duration) {
	o.sink, o.timeout, o.turn = s, timeout, make(chan struct{}, 1)
}

// outFrame is the rest of a frame to send: header, start and rest of the payload, and trailer. The payload is
// masked unless mask is noMask.
type outFrame struct {
	head    [ws.MaxHeaderSize]byte
	headPos int
	headLen int
	start   []byte
	body    []byte
	tail    string
	mask    [4]byte
	masked  int // number of masked bytes
}

func (f *outFrame) size() int {
	return f.headLen - f.headPos + len(f.start) + len(f.body) + len(f.tail)
}

// fill moves as many bytes of f to p as fit into its capacity.
func (f *outFrame) fill(p []byte) []byte {
	n := min(f.headLen-f.headPos, cap(p)-len(p))
	p = append(p, f.head[f.headPos:f.headPos+n]...)
	f.headPos += n

	p = f.fillPayload(p, &f.start)
	p = f.fillPayload(p, &f.body)

	n = min(len(f.tail), cap(p)-len(p))
	p, f.tail = append(p, f.tail[:n]...), f.tail[n:]
	return p
}

// fillPayload is fill for a part of the payload.
func (f *outFrame) fillPayload(p []byte, part *[]byte) []byte {
	n := min(len(*part), cap(p)-len(p))
	at := len(p)
	p, *part = append(p, (*part)[:n]...), (*part)[n:]
	if f.mask != noMask {
		ws.Cipher(p[at:], f.mask, f.masked)
		f.masked += n
	}
	return p
}

// put appends f to the buffer. It sends bytes only if f does not fit.
func (o *outbox) put(f outFrame) error {
	o.mu.Lock()
	if o.err == nil && len(o.buf)+f.size() <= BufferSize {
		o.appendLocked(f)
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

func (o *outbox) appendLocked(f outFrame) {
	if o.buf == nil {
		o.buf = getBuffer()[:0]
	}
	o.buf = f.fill(o.buf)
}

// overflow sends the buffer, and appends f if it fits then. A larger f is sent completely, in parts.
func (o *outbox) overflow(f outFrame) error {
	o.turn <- struct{}{}
	defer o.release()
	if err := o.sendBuffered(); err != nil {
		return err
	}
	if f.size() <= BufferSize {
		return o.append(f)
	}
	for p := getBuffer()[:0]; ; p = p[:0] {
		p = f.fill(p)
		if err := o.sendNow(p); err != nil {
			return err
		}
		if err := o.sendBody(&f); err != nil {
			return err
		}
		if f.size() == 0 {
			putBuffer(p)
			return nil
		}
	}
}

// sendBody sends the rest of a body that is not masked without copying it. Only a trySink never reads the
// bytes of a send that has returned. The caller has the turn.
func (o *outbox) sendBody(f *outFrame) error {
	if _, ok := o.sink.(trySink); !ok || f.mask != noMask || len(f.start) > 0 {
		return nil
	}
	p := f.body
	f.body = nil
	return o.sendNow(p)
}

func (o *outbox) append(f outFrame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	o.appendLocked(f)
	return nil
}

// flush sends the buffer.
func (o *outbox) flush() error {
	o.mu.Lock()
	err, empty := o.err, len(o.buf)+len(o.rest) == 0
	o.mu.Unlock()
	if err != nil || empty {
		return err
	}
	o.turn <- struct{}{}
	defer o.release()
	return o.sendBuffered()
}

// tryFlush sends the buffer and the control frames without waiting. It reports false if flush has to send
// them, or their rest.
func (o *outbox) tryFlush() (sent bool, err error) {
	t, ok := o.sink.(trySink)
	if !ok || !o.tryTurn() {
		return false, nil
	}
	defer o.yield()
	o.mu.Lock()
	if o.err != nil || len(o.rest) > 0 {
		defer o.mu.Unlock()
		return false, o.err
	}
	p := o.swapLocked()
	o.mu.Unlock()
	if len(p) == 0 {
		return true, nil
	}
	n, err := t.trySend(p)
	if err != nil {
		return false, o.fail(err)
	}
	if n == len(p) {
		putBuffer(p)
		return true, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest, o.buffer = p[n:], p
	return false, nil
}

func (o *outbox) tryTurn() bool {
	select {
	case o.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// yield gives up the turn without blocking. If control frames wait, a new goroutine gets the turn and sends
// them.
func (o *outbox) yield() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.control) > 0 {
		go o.release()
		return
	}
	<-o.turn
}

// sendRest sends the rest of tryFlush. The caller has the turn.
func (o *outbox) sendRest() error {
	if len(o.rest) == 0 {
		return nil
	}
	if err := o.sendNow(o.rest); err != nil {
		return err
	}
	putBuffer(o.buffer)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest, o.buffer = nil, nil
	return nil
}

// sendBuffered sends the rest, the buffer and the control frames. The caller has the turn.
func (o *outbox) sendBuffered() error {
	if err := o.sendRest(); err != nil {
		return err
	}
	o.mu.Lock()
	if o.err != nil {
		defer o.mu.Unlock()
		return o.err
	}
	p := o.swapLocked()
	o.mu.Unlock()

	err := o.sendNow(p)
	if err == nil {
		putBuffer(p)
	}
	return err
}

// swapLocked empties the buffer and returns its frames and the control frames.
func (o *outbox) swapLocked() []byte {
	p := o.buf
	if len(p)+len(o.control) <= cap(p) {
		p = append(p, o.control...)
		o.control = nil
	}
	o.buf = nil
	return p
}

// sendNow sends p. After an error the outbox has ended, and p is not reused because the sink may still read
// it.
func (o *outbox) sendNow(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	waited, err := o.sink.send(p, o.timeout)
	if err != nil {
		return o.fail(err)
	}
	if o.onUnblocked != nil && waited {
		o.onUnblocked()
	}
	return nil
}

// fail ends the outbox because of an error of the sink, and returns the error in effect.
func (o *outbox) fail(err error) error {
	return o.stop(&Error{Code: CloseAbnormal, Err: fmt.Errorf("write: %w", err)})
}

// release sends the waiting control frames and gives up the turn.
func (o *outbox) release() {
	o.mu.Lock()
	for len(o.control) > 0 {
		p := o.control
		o.control = nil
		o.mu.Unlock()
		if o.sendRest() == nil {
			_ = o.sendNow(p) // the next caller gets o.err
		}
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
	if o.tryTurn() {
		go o.release()
	}
}

// answer sends a close frame as the last frame, without blocking. The buffer is dropped. All further calls
// fail with err.
func (o *outbox) answer(closeFrame []byte, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return
	}
	o.err = err
	o.dropLocked()
	o.controlLocked(closeFrame)
}

// finish sends the buffer and the close frame. Further calls of other methods fail with reason. It does not
// wait for a blocked write.
func (o *outbox) finish(closeFrame []byte, reason error) error {
	if !o.turnWithin(stuckAfter) {
		o.stop(reason)
		return &Error{Code: CloseAbnormal, Err: errStuck}
	}
	defer o.release()
	o.mu.Lock()
	err := o.err
	o.mu.Unlock()
	if err == nil {
		err = o.sendRest()
	}
	if err != nil {
		return err
	}
	o.mu.Lock()
	if o.err != nil {
		defer o.mu.Unlock()
		return o.err
	}
	o.err = reason
	p := append(o.swapLocked(), o.control...)
	p, o.control = append(p, closeFrame...), nil
	o.mu.Unlock()
	if len(p) == 0 {
		return nil
	}
	if _, err = o.sink.send(p, o.timeout); err == nil {
		putBuffer(p)
	}
	return err
}

func (o *outbox) turnWithin(d time.Duration) bool {
	if o.tryTurn() {
		return true
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

// stop makes all calls fail with reason, unless they already fail with another reason. It returns the reason
// in effect. It does not interrupt a send.
func (o *outbox) stop(reason error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = reason
	}
	o.dropLocked()
	return o.err
}

func (o *outbox) dropLocked() {
	putBuffer(o.buf)
	o.buf, o.control = nil, nil
}

// join waits until no goroutine is sending. The sink must be ended before, so that a blocked send fails.
func (o *outbox) join() {
	o.turn <- struct{}{}
	<-o.turn
}
