package client

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// outbox collects encoded frames for the writer, which sends everything that
// has come since it last looked and flushes when nothing is left.
//
// Acknowledgements are state, not messages: only the newest is written, and
// asking for one never waits.
//
// It outlives the connection: what is not taken is written to the next one, and
// rewind puts before it what was taken and not answered.
type outbox struct {
	limit int
	keeps bool          // there may be a next connection
	ready chan struct{} // capacity 1: there is something to write, or it is closed

	mu      sync.Mutex
	buf     []byte
	ends    []int         // where each frame of buf ends
	ack     uint64        // 0: none to write
	acked   uint64        // the highest taken
	room    chan struct{} // someone waits for room; closed when there is some
	asked   map[arcp.MessageID]question
	puts    uint64 // questions so far
	batches uint64 // taken so far
	closed  bool
}

// question is a frame that must be answered.
type question struct {
	env   arcp.Envelope
	put   uint64 // its place among the questions
	batch uint64 // it is taken with
	frame int    // its place in the batch
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, ready: make(chan struct{}, 1), asked: make(map[arcp.MessageID]question)}
}

// put adds a frame, after waiting for room. A frame is taken whole when there is
// any room, so that one larger than the limit passes. One that is asked is kept
// until it is answered.
func (o *outbox) put(ctx context.Context, env *arcp.Envelope, asked bool) error {
	for {
		room, err := o.tryPut(env, asked)
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

// tryPut adds a frame, or returns what will be closed when there is room.
func (o *outbox) tryPut(env *arcp.Envelope, asked bool) (room <-chan struct{}, err error) {
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
	if asked && o.keeps {
		o.puts++
		o.asked[env.ID] = question{*env, o.puts, o.batches, len(o.ends)}
	}
	o.add(env)
	return nil, nil
}

// putAnyway adds a frame whether there is room or not: for who must not wait and
// has few.
func (o *outbox) putAnyway(env *arcp.Envelope) {
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

// answered says that a question need not be asked again, or, because nobody waits
// for the answer any more, not at all.
func (o *outbox) answered(id arcp.MessageID) {
	if !o.keeps {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	q, ok := o.asked[id]
	delete(o.asked, id)
	if ok && q.batch == o.batches {
		o.withdraw(q.frame)
	}
}

// withdraw takes a frame out of the buffer.
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
	for id, q := range o.asked {
		if q.batch == o.batches && q.frame > frame {
			q.frame--
			o.asked[id] = q
		}
	}
	o.makeRoom()
}

// rewind makes the next connection hear, before anything new, the questions that
// were taken for the one before and not answered, and the last acknowledgement.
func (o *outbox) rewind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	open := o.unanswered()
	buf, ends := o.buf, o.ends
	o.buf, o.ends = nil, nil
	for i, q := range open {
		o.add(&q.env)
		q.batch, q.frame = o.batches, i
		o.asked[q.env.ID] = q
	}
	shift := len(o.buf)
	o.buf = append(o.buf, buf...)
	for _, end := range ends {
		o.ends = append(o.ends, shift+end)
	}
	o.ack = max(o.ack, o.acked)
	o.signal()
}

// unanswered are the questions that were taken, in order. Those that were not
// move back by as many.
func (o *outbox) unanswered() (open []question) {
	for _, q := range o.asked {
		if q.batch < o.batches {
			open = append(open, q)
		}
	}
	for id, q := range o.asked {
		if q.batch == o.batches {
			q.frame += len(open)
			o.asked[id] = q
		}
	}
	slices.SortFunc(open, func(a, b question) int { return cmp.Compare(a.put, b.put) })
	return open
}

// putAck asks for an acknowledgement of everything up to seq.
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

// batch is what the writer took at once.
type batch struct {
	buf  []byte
	ends []int
	ack  uint64
}

// take moves everything into b, whose memory is used again.
func (o *outbox) take(b *batch) (ok bool) {
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

// close makes put fail and wakes the writer for the last time. Frames that were
// not taken are dropped.
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

// maxKept bounds the memory a writer keeps for its next batch.
const maxKept = 256 << 10

// run is the writer: it returns when the outbox is closed, stopc is, or the
// connection fails. ackFrame makes the frame of an acknowledgement.
func (o *outbox) run(conn transport.Conn, stopc <-chan struct{}, ackFrame func(seq uint64) *arcp.Envelope) error {
	var b batch
	var last uint64
	for {
		select {
		case <-o.ready:
		case <-stopc:
			o.signal() // what it was about is for the next writer
			return nil
		}
		for !o.isClosed() && o.take(&b) {
			if err := b.write(conn); err != nil {
				return err
			}
			if b.ack > last {
				last = b.ack
				if err := conn.Write(ackFrame(last).Append(b.buf[:0])); err != nil {
					return err
				}
			}
			if cap(b.buf) > maxKept {
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
