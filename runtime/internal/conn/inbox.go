package conn

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Bounds of the frames that are read ahead of the loop; one frame is always accepted.
const (
	inboxLen   = 64
	inboxBytes = 256 << 10
)

// inbox is the one queue into the loop of a connection. The reader puts frames and
// acknowledgements, any goroutine posts messages, and the loop takes them.
//
// The number and size of frames are bounded: the reader waits for room, and so does the
// client. Many frames are handed over at a time: a handover for each frame would cost as much
// as decoding it. Acknowledgements are coalesced, because a client may acknowledge each event
// and only the last acknowledgement counts. Messages pass the frames, which may have to wait
// for them; each is caused by an operation that is bounded itself.
//
// An answer that has its place among the events of the session does not come this way but
// through eventlog.Cursor, which orders answers and events.
type inbox struct {
	wake       func()                         // of the loop
	ackSession atomic.Pointer[arcp.SessionID] // nil: acknowledgements are frames like others

	mu       sync.Mutex
	space    sync.Cond // with mu: frames were taken
	frames   []inbound
	bytes    int // of frames
	acks     acks
	messages []message
	closed   bool

	// The loop's own.
	taken []inbound // frames that were taken and are not handled
	next  int       // in taken
}

// inbound is a result of reading from the transport.
type inbound struct {
	env  *arcp.Envelope
	bad  *arcp.EncodingError
	err  error // end of the connection
	size int
}

// acks are coalesced acknowledgements.
type acks struct {
	seq   uint64 // the highest
	n     int    // frames
	bytes int
}

// message is something that the loop has to do, other than to handle a frame.
type message interface{ handle(c *conn, now time.Time) }

func (b *inbox) init(wake func()) {
	b.wake = wake
	b.space.L = &b.mu
}

// readFrames puts the frames of a connection, and its acknowledgements, until it ends.
func (b *inbox) readFrames(tc transport.Conn) {
	for {
		frame, err := tc.Read()
		if err == nil && b.putAck(frame) {
			continue
		}
		in := inbound{err: err, size: len(frame)}
		if err == nil {
			in.env, in.bad = decode(frame)
		}
		if err != nil && !halfClosed(tc, err) {
			b.post(readerEnded{})
		}
		if !b.put(in) || err != nil {
			return
		}
	}
}

// decode decodes a frame; one of the results is nil.
func decode(frame []byte) (*arcp.Envelope, *arcp.EncodingError) {
	env, err := arcp.Decode(frame)
	if err == nil {
		return &env, nil
	}
	if bad, ok := errors.AsType[*arcp.EncodingError](err); ok {
		return nil, bad
	}
	return nil, &arcp.EncodingError{Reason: arcp.ReasonNotJSON, Message: err.Error()}
}

// post queues a message. It reports false if the inbox is closed.
func (b *inbox) post(m message) bool {
	b.mu.Lock()
	ok := !b.closed
	if ok {
		b.messages = append(b.messages, m)
	}
	b.mu.Unlock()
	b.wake()
	return ok
}

// complete makes the loop call f. It reports false if the loop has ended.
func (b *inbox) complete(f func(now time.Time)) bool { return b.post(completion(f)) }

// put queues a frame, and waits until there is room. It reports false if the inbox is closed.
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

// maxAckFrame is longer than any acknowledgement in its usual form.
const maxAckFrame = 512

// putAck queues a frame if it is an acknowledgement in its usual form.
func (b *inbox) putAck(frame []byte) bool {
	id := b.ackSession.Load()
	if id == nil || len(frame) > maxAckFrame {
		return false
	}
	seq, ok := arcp.ReadAck(frame, *id)
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

// takeFrame returns the next frame.
func (b *inbox) takeFrame() (in inbound, ok bool) {
	if b.next == len(b.taken) && !b.refill() {
		return inbound{}, false
	}
	in, b.taken[b.next] = b.taken[b.next], inbound{}
	b.next++
	return in, true
}

// untake makes the frame that was taken last the next one again.
func (b *inbox) untake(in inbound) {
	b.next--
	b.taken[b.next] = in
}

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

// takeMessages returns the messages and acknowledgements since the last call.
func (b *inbox) takeMessages() (list []message, acked acks) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, acked = b.messages, b.acks
	b.messages, b.acks = nil, acks{}
	return list, acked
}

// untakeAcks queues acknowledgements again that cannot be handled yet.
func (b *inbox) untakeAcks(a acks) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acks = acks{max(a.seq, b.acks.seq), a.n + b.acks.n, a.bytes + b.acks.bytes}
}

// isClosed reports whether the loop has taken its last turn.
func (b *inbox) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// close drops the frames, and refuses frames and messages from now on. Messages that were
// posted can still be taken.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.frames, b.taken, b.next = nil, nil, 0
	b.space.Broadcast()
}
