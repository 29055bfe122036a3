package client

import (
	"context"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// outbox collects encoded frames for the writer, which sends everything that
// has come since it last looked and flushes when nothing is left.
//
// Acknowledgements are state, not messages: only the newest is written, and
// asking for one never waits.
type outbox struct {
	limit int
	ready chan struct{} // capacity 1: there is something to write, or it is closed

	mu     sync.Mutex
	buf    []byte
	ends   []int         // where each frame of buf ends
	ack    uint64        // 0: none to write
	room   chan struct{} // someone waits for room; closed when there is some
	closed bool
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, ready: make(chan struct{}, 1)}
}

// put adds a frame, after waiting for room. A frame is taken whole when there is
// any room, so that one larger than the limit passes.
func (o *outbox) put(ctx context.Context, env *arcp.Envelope) error {
	for {
		room, err := o.tryPut(env)
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
func (o *outbox) tryPut(env *arcp.Envelope) (room <-chan struct{}, err error) {
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
	o.buf = env.Append(o.buf)
	o.ends = append(o.ends, len(o.buf))
	o.signal()
	return nil, nil
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

// run is the writer: it returns when the outbox is closed or the connection
// fails. ackFrame makes the frame of an acknowledgement.
func (o *outbox) run(conn transport.Conn, ackFrame func(seq uint64) *arcp.Envelope) error {
	var b batch
	var last uint64
	for range o.ready {
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
	return nil
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
