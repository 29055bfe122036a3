package conn

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/transport"
)

// Bounds of the frames that wait for the loop. One frame is always accepted.
const (
	inboxLen   = 64
	inboxBytes = 256 << 10
)

// inbox is the queue into the loop of a connection. The reader puts frames and acknowledgements,
// any goroutine posts actions, and the loop takes them.
//
// The number and size of frames are bounded: the reader waits for room. The loop takes all frames
// at once, because a handover for each frame would cost as much as its decoding. Acknowledgements
// are coalesced: a client may acknowledge each event, and only the last acknowledgement counts.
// The loop takes actions before frames. Their number is not bounded here: each action follows from
// an operation that has a bound of its own.
//
// An answer that is ordered among the events of the session does not pass the inbox. It goes
// through eventlog.Cursor.
type inbox struct {
	wake       func()                         // wakes the loop
	ackSession atomic.Pointer[arcp.SessionID] // nil: acknowledgements are not coalesced
	sidecar    atomic.Bool                    // the session has negotiated binary frames, and the connection has them

	mu      sync.Mutex
	space   sync.Cond // uses mu; signals that frames were taken
	frames  []inbound
	bytes   int // of frames
	acks    acks
	actions []loopAction
	closed  bool

	// Only the loop accesses these fields.
	taken []inbound // frames that the loop has taken
	next  int       // index in taken of the first frame that is not handled
}

// inbound is a result of reading from the transport: env, bad, refused, fault or err is set.
type inbound struct {
	env     *arcp.Envelope
	bad     *arcp.EncodingError // the frame cannot be decoded
	refused *draft.Refusal      // the codec does not accept the frame
	fault   *sidecarFault       // of a binary frame, or of the message that announces it
	err     error               // the reader has ended
	size    int
	codec   *draft.ServerCodec // with the first frame of a connection in the draft dialect
}

// acks are coalesced acknowledgements.
type acks struct {
	seq   uint64 // the highest
	n     int    // number of frames
	bytes int
}

func (b *inbox) init(wake func()) {
	b.wake = wake
	b.space.L = &b.mu
}

// readFrames puts the frames and acknowledgements of a connection until the connection ends. Only
// the reader calls it.
func (b *inbox) readFrames(tc transport.Conn) {
	var d decoder
	pairs := newSidecarReader(tc)
	owner, _ := tc.(transport.FrameOwner)
	for {
		frame, err := tc.Read()
		binary := err == nil && pairs.isBinary()
		if binary || pairs.held != nil {
			if in, ok := pairs.resolve(frame, binary, err); ok && !b.put(in) {
				return
			}
		}
		if binary {
			continue
		}
		if err == nil && b.putAck(&d, frame) {
			continue
		}
		in := inbound{err: err, size: len(frame)}
		if err == nil {
			d.decode(&in, frame, owner != nil && len(frame) > transport.BufferSize && owner.FrameOwned())
		}
		if b.sidecar.Load() && pairs.hold(in) {
			continue
		}
		if err != nil && !halfClosed(tc, err) {
			b.post(readerEnded{})
		}
		if !b.put(in) || err != nil {
			return
		}
	}
}

// post queues an action. It reports false if the inbox is closed.
func (b *inbox) post(a loopAction) bool {
	b.mu.Lock()
	ok := !b.closed
	if ok {
		b.actions = append(b.actions, a)
	}
	b.mu.Unlock()
	b.wake()
	return ok
}

// runOnLoop makes the loop call f. It reports false if the loop has ended.
func (b *inbox) runOnLoop(f func(now time.Time)) bool { return b.post(loopFunc(f)) }

// put queues a frame. It waits for room, and reports false if the inbox is closed.
func (b *inbox) put(in inbound) bool {
	b.mu.Lock()
	for !b.closed && (len(b.frames) >= inboxLen || b.bytes >= inboxBytes) {
		b.space.Wait()
	}
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.frames = append(b.frames, in)
	b.bytes += in.size
	first := len(b.frames) == 1
	b.mu.Unlock()
	if first {
		b.wake()
	}
	return true
}

// maxAckFrame bounds the bytes of a frame that arcp.ReadAck is tried on.
const maxAckFrame = 512

// putAck queues a frame if it is a plain acknowledgement, and reports whether it is.
func (b *inbox) putAck(d *decoder, frame []byte) bool {
	id := b.ackSession.Load()
	if id == nil || len(frame) > maxAckFrame {
		return false
	}
	seq, ok := d.frames.ReadAck(frame, *id)
	if !ok {
		return false
	}
	b.mu.Lock()
	b.acks.seq = max(b.acks.seq, seq)
	b.acks.n++
	b.acks.bytes += len(frame)
	first := b.acks.n == 1
	b.mu.Unlock()
	if first {
		b.wake()
	}
	return true
}

// takeFrame removes and returns the next frame.
func (b *inbox) takeFrame() (in inbound, ok bool) {
	if b.next == len(b.taken) && !b.refill() {
		return inbound{}, false
	}
	in, b.taken[b.next] = b.taken[b.next], inbound{}
	b.next++
	return in, true
}

// putBack undoes the last takeFrame.
func (b *inbox) putBack(in inbound) {
	b.next--
	b.taken[b.next] = in
}

// refill takes all queued frames. It reports false if there are none.
func (b *inbox) refill() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken, b.frames, b.next, b.bytes = b.frames, b.taken[:0], 0, 0
	b.space.Signal()
	return len(b.taken) > 0
}

// hasFrames reports whether takeFrame would return a frame.
func (b *inbox) hasFrames() bool {
	if b.next < len(b.taken) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.frames) > 0
}

// takeActions removes and returns the actions and acknowledgements.
func (b *inbox) takeActions() (list []loopAction, acked acks) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, acked = b.actions, b.acks
	b.actions, b.acks = nil, acks{}
	return list, acked
}

// putBackAcks queues acknowledgements again that cannot be handled yet.
func (b *inbox) putBackAcks(a acks) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acks = acks{max(a.seq, b.acks.seq), a.n + b.acks.n, a.bytes + b.acks.bytes}
}

// isClosed reports whether the inbox is closed.
func (b *inbox) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// close drops the frames and refuses new frames and actions. The queued actions can still be
// taken.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.frames, b.taken, b.next = nil, nil, 0
	b.space.Broadcast()
}
