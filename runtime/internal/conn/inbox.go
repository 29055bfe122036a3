package conn

import (
	"sync"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of what is read ahead of the loop; one frame is always taken.
const (
	inboxLen   = 64
	inboxBytes = 256 << 10
)

// inbound is what the reader hands to the loop.
type inbound struct {
	env  *arcp.Envelope
	bad  *arcp.EncodingError
	err  error // the connection's end
	size int
}

// inbox carries what was read from the reader to the loop, many at a time: a
// handover for each frame would cost as much as decoding it.
type inbox struct {
	wake func() // the loop: there is something again

	mu     sync.Mutex
	space  sync.Cond
	ready  []inbound
	bytes  int
	closed bool

	taken []inbound // the loop's; what it has taken and not handled
	next  int       // in taken
}

func (b *inbox) init(wake func()) {
	b.wake = wake
	b.space.L = &b.mu
}

// put waits until there is room. It returns false when the inbox is closed.
func (b *inbox) put(in inbound) bool {
	b.mu.Lock()
	for !b.closed && (len(b.ready) >= inboxLen || b.bytes >= inboxBytes) {
		b.space.Wait()
	}
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.ready = append(b.ready, in)
	b.bytes += in.size
	first := len(b.ready) == 1
	b.mu.Unlock()
	if first {
		b.wake()
	}
	return true
}

// take returns the next frame, for the loop alone.
func (b *inbox) take() (in inbound, ok bool) {
	if b.next == len(b.taken) && !b.refill() {
		return inbound{}, false
	}
	in, b.taken[b.next] = b.taken[b.next], inbound{}
	b.next++
	return in, true
}

// giveBack makes the frame that was taken last the next one again.
func (b *inbox) giveBack(in inbound) {
	b.next--
	b.taken[b.next] = in
}

func (b *inbox) refill() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken, b.ready, b.next, b.bytes = b.ready, b.taken[:0], 0, 0
	b.space.Signal()
	return len(b.taken) > 0
}

// left reports whether take would return a frame that it has already been woken
// for.
func (b *inbox) left() bool {
	if b.next < len(b.taken) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ready) > 0
}

// close drops the frames, and makes put return false.
func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	b.ready, b.taken, b.next = nil, nil, 0
	b.space.Broadcast()
	b.mu.Unlock()
}

// ackInbox carries acknowledgements past the inbox: only the last one of many
// counts, and a client may acknowledge each event.
type ackInbox struct {
	session atomic.Pointer[arcp.SessionID] // nil: not accepted yet

	mu    sync.Mutex
	seq   uint64
	n     int // frames
	bytes int
}

// take reports whether the frame was an acknowledgement that needs no further
// look.
func (a *ackInbox) take(frame []byte, wake func()) bool {
	id := a.session.Load()
	if id == nil || len(frame) > maxAckFrame {
		return false
	}
	seq, ok := arcp.ReadAck(frame, *id)
	if !ok {
		return false
	}
	a.mu.Lock()
	a.seq = max(a.seq, seq)
	a.n++
	a.bytes += len(frame)
	first := a.n == 1
	a.mu.Unlock()
	if first {
		wake()
	}
	return true
}

func (a *ackInbox) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n > 0
}

// maxAckFrame is longer than any acknowledgement in its everyday form.
const maxAckFrame = 512

// receiveAcks handles what acknowledgements there are.
func (c *conn) receiveAcks() {
	a := &c.input.acks
	if !a.any() || !c.heard() {
		return
	}
	a.mu.Lock()
	seq, n, bytes := a.seq, a.n, a.bytes
	a.n, a.bytes = 0, 0
	a.mu.Unlock()
	c.srv.opts.Metrics.In(arcp.SessionAck, n, bytes)
	c.acknowledge(seq)
}
