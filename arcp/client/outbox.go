package client

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// outbox buffers encoded frames for the writer. The writer flushes when the buffer is empty.
//
// Only the newest acknowledgement is written, and putAck never waits.
//
// The outbox outlives the connection. Frames in the buffer are written to the next connection, after the
// requests that were written and not answered.
type outbox struct {
	limit   int
	resends bool          // unanswered requests are sent again on the next connection
	ready   chan struct{} // buffered 1: the buffer or ack has changed, or the outbox is closed

	mu         sync.Mutex
	buf        []byte
	frames     []frame       // the frames in buf, one after the other
	ack        uint64        // acknowledgement to write; 0: none
	acked      uint64        // highest acknowledgement in a batch
	room       chan struct{} // not nil while put waits; closed when the buffer has room
	unanswered map[arcp.MessageID]*request
	requests   uint64 // number of requests so far
	closed     bool
}

// frame is an encoded frame in a buffer.
type frame struct {
	end     int      // of the frame in the buffer
	request *request // of which this is the frame; nil: the frame is sent once
}

// request is a frame that is sent on each connection until it is answered.
type request struct {
	env      arcp.Envelope
	number   uint64 // in the order of the requests
	buffered bool   // its frame is in the outbox; false: the writer has it, or has written it
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, ready: make(chan struct{}, 1), unanswered: make(map[arcp.MessageID]*request)}
}

// put adds a frame, and waits while the buffer is full. A buffer below the limit accepts a frame of any
// size. A request is retained until it is answered.
func (o *outbox) put(ctx context.Context, env *arcp.Envelope, isRequest bool) error {
	for {
		room, err := o.tryPut(env, isRequest)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryPut adds a frame. If the buffer is full it returns a channel that is closed when the buffer
// has room.
func (o *outbox) tryPut(env *arcp.Envelope, isRequest bool) (room <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, ErrClosed
	}
	if len(o.buf) >= o.limit {
		if o.room == nil {
			o.room = make(chan struct{})
		}
		return o.room, nil
	}
	var r *request
	if isRequest && o.resends {
		o.requests++
		r = &request{env: *env, number: o.requests}
		o.unanswered[env.ID] = r
	}
	o.add(env, r)
	return nil, nil
}

// putNow adds a frame even to a full buffer, for callers that must not wait and send few frames.
func (o *outbox) putNow(env *arcp.Envelope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.add(env, nil)
	}
}

// add adds a frame to the buffer, and the binary frame of the envelope. r is their request; nil: none.
func (o *outbox) add(env *arcp.Envelope, r *request) {
	o.buf = env.Append(o.buf)
	o.frames = append(o.frames, frame{len(o.buf), r})
	if env.Sidecar != nil {
		o.buf = env.AppendSidecar(o.buf)
		o.frames = append(o.frames, frame{len(o.buf), r})
	}
	if r != nil {
		r.buffered = true
	}
	o.signal()
}

// answered removes a request that was answered or given up. A request that is still in the buffer is not
// sent.
func (o *outbox) answered(id arcp.MessageID) {
	if !o.resends {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.unanswered[id]
	delete(o.unanswered, id)
	if r != nil && r.buffered {
		o.withdraw(r)
	}
}

// withdraw removes the frames of a request from the buffer.
func (o *outbox) withdraw(r *request) {
	i := slices.IndexFunc(o.frames, func(f frame) bool { return f.request == r })
	after := i + 1
	for after < len(o.frames) && o.frames[after].request == r {
		after++ // its binary frame
	}
	start, end := 0, o.frames[after-1].end
	if i > 0 {
		start = o.frames[i-1].end
	}
	o.buf = slices.Delete(o.buf, start, end)
	o.frames = slices.Delete(o.frames, i, after)
	for j := range o.frames[i:] {
		o.frames[i+j].end -= end - start
	}
	o.makeRoom()
}

// requeue puts the written and unanswered requests in front of the buffer, in their order, and repeats
// the last acknowledgement.
func (o *outbox) requeue() {
	o.mu.Lock()
	defer o.mu.Unlock()
	var written []*request
	for _, r := range o.unanswered {
		if !r.buffered {
			written = append(written, r)
		}
	}
	slices.SortFunc(written, func(a, b *request) int { return cmp.Compare(a.number, b.number) })
	buf, frames := o.buf, o.frames
	o.buf, o.frames = nil, nil
	for _, r := range written {
		o.add(&r.env, r)
	}
	base := len(o.buf)
	o.buf = append(o.buf, buf...)
	for _, f := range frames {
		o.frames = append(o.frames, frame{base + f.end, f.request})
	}
	o.ack = max(o.ack, o.acked)
	o.signal()
}

// putAck requests an acknowledgement of every event up to seq.
func (o *outbox) putAck(seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seq > o.ack {
		o.ack = seq
		o.signal()
	}
}

func (o *outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// batch is a content of the buffer that the writer writes.
type batch struct {
	buf    []byte
	frames []frame
	ack    uint64
}

// swap moves the buffer into b, and reuses the memory of b as the buffer. It reports whether b has
// content.
func (o *outbox) swap(b *batch) (ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf, b.buf = b.buf[:0], o.buf
	o.frames, b.frames = b.frames[:0], o.frames
	for i, f := range b.frames {
		if f.request != nil {
			f.request.buffered, b.frames[i].request = false, nil
		}
	}
	b.ack, o.ack = o.ack, 0
	o.acked = max(o.acked, b.ack)
	o.makeRoom()
	return len(b.frames) > 0 || b.ack != 0
}

// close makes put fail and ends the writer. Frames in the buffer are dropped.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.makeRoom()
	o.signal()
}

func (o *outbox) makeRoom() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

func (o *outbox) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

// maxRetained bounds the memory that a writer reuses for its next batch.
const maxRetained = 256 << 10

// run writes the frames until the outbox or stopc is closed or a write fails. ackFrame returns the frame
// of an acknowledgement.
func (o *outbox) run(conn transport.Conn, stopc <-chan struct{}, ackFrame func(seq uint64) *arcp.Envelope) error {
	var b batch
	var last uint64
	for {
		select {
		case <-o.ready:
		case <-stopc:
			o.signal() // wakes the next writer
			return nil
		}
		for !o.isClosed() && o.swap(&b) {
			if err := b.write(conn); err != nil {
				return err
			}
			if b.ack > last {
				last = b.ack
				if err := conn.Write(ackFrame(last).Append(b.buf[:0])); err != nil {
					return err
				}
			}
			if cap(b.buf) > maxRetained {
				b.buf = nil
			}
		}
		if o.isClosed() {
			return nil
		}
		if err := conn.Flush(); err != nil {
			return err
		}
	}
}

func (b *batch) write(conn transport.Conn) error {
	start := 0
	for _, f := range b.frames {
		if err := writeFrame(conn, b.buf[start:f.end]); err != nil {
			return err
		}
		start = f.end
	}
	return nil
}
