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

	mu       sync.Mutex
	buf      []byte
	ends     []int         // end of each frame in buf
	ack      uint64        // acknowledgement to write; 0: none
	acked    uint64        // highest acknowledgement in a batch
	room     chan struct{} // not nil while put waits; closed when the buffer has room
	pending  map[arcp.MessageID]request
	requests uint64 // number of requests so far
	batches  uint64 // number of batches so far
	closed   bool
}

// request is a frame that is sent until it is answered.
type request struct {
	env   arcp.Envelope
	order uint64 // order of the requests
	batch uint64 // number of the batch with the frame
	frame int    // index of the frame in the batch
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, ready: make(chan struct{}, 1), pending: make(map[arcp.MessageID]request)}
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
	if isRequest && o.resends {
		o.requests++
		o.pending[env.ID] = request{*env, o.requests, o.batches, len(o.ends)}
	}
	o.add(env)
	return nil, nil
}

// putNow adds a frame even to a full buffer, for callers that must not wait and send few frames.
func (o *outbox) putNow(env *arcp.Envelope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.add(env)
	}
}

func (o *outbox) add(env *arcp.Envelope) {
	o.buf = env.Append(o.buf)
	o.ends = append(o.ends, len(o.buf))
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
	q, ok := o.pending[id]
	delete(o.pending, id)
	if ok && q.batch == o.batches {
		o.withdraw(q.frame)
	}
}

// withdraw removes a frame from the buffer.
func (o *outbox) withdraw(frame int) {
	start := 0
	if frame > 0 {
		start = o.ends[frame-1]
	}
	size := o.ends[frame] - start
	o.buf = slices.Delete(o.buf, start, start+size)
	o.ends = slices.Delete(o.ends, frame, frame+1)
	for i := range o.ends[frame:] {
		o.ends[frame+i] -= size
	}
	for id, q := range o.pending {
		if q.batch == o.batches && q.frame > frame {
			q.frame--
			o.pending[id] = q
		}
	}
	o.makeRoom()
}

// requeue puts the written and unanswered requests in front of the buffer, and repeats the last
// acknowledgement.
func (o *outbox) requeue() {
	o.mu.Lock()
	defer o.mu.Unlock()
	open := o.unanswered()
	buf, ends := o.buf, o.ends
	o.buf, o.ends = nil, nil
	for i, q := range open {
		o.add(&q.env)
		q.batch, q.frame = o.batches, i
		o.pending[q.env.ID] = q
	}
	shift := len(o.buf)
	o.buf = append(o.buf, buf...)
	for _, end := range ends {
		o.ends = append(o.ends, shift+end)
	}
	o.ack = max(o.ack, o.acked)
	o.signal()
}

// unanswered returns the written and unanswered requests in order. It adds their number to the frame
// indexes of the requests in the buffer.
func (o *outbox) unanswered() (open []request) {
	for _, q := range o.pending {
		if q.batch < o.batches {
			open = append(open, q)
		}
	}
	for id, q := range o.pending {
		if q.batch == o.batches {
			q.frame += len(open)
			o.pending[id] = q
		}
	}
	slices.SortFunc(open, func(a, b request) int { return cmp.Compare(a.order, b.order) })
	return open
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
	buf  []byte
	ends []int
	ack  uint64
}

// swap moves the buffer into b, and reuses the memory of b as the buffer. It reports whether b has
// content.
func (o *outbox) swap(b *batch) (ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf, b.buf = b.buf[:0], o.buf
	o.ends, b.ends = b.ends[:0], o.ends
	b.ack, o.ack = o.ack, 0
	o.acked = max(o.acked, b.ack)
	o.batches++
	o.makeRoom()
	return len(b.ends) > 0 || b.ack != 0
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
	for _, end := range b.ends {
		if err := conn.Write(b.buf[start:end]); err != nil {
			return err
		}
		start = end
	}
	return nil
}
