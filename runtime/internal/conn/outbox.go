package conn

import (
	"context"
	"sync"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/transport"
)

// Bounds of the bytes that wait for the peer of a connection.
const (
	outboxSoft = 64 << 10 // above it, no event is pulled
	outboxHard = 4 << 20  // with the bytes in flight; above it, no frame of the client is handled

	// maxDirect is the size up to which the loop sends a batch itself: the events of a short job.
	// More bytes are sent by the writer, and the loop collects more events meanwhile.
	maxDirect = 2 << 10
)

// batch has encoded frames, one after the other.
type batch struct {
	data     []byte
	ends     []int          // end of each frame in data
	contents []frameContent // in the order of their frames
	last     uint64         // event_seq of the last event; 0: there is none
}

// frameContent is the content of a binary frame, of which data has only the header: it is not copied.
type frameContent struct {
	frame   int // index in ends
	content []byte
}

// size returns the number of bytes of the frames.
func (b *batch) size() int {
	n := len(b.data)
	for i := range b.contents {
		n += len(b.contents[i].content)
	}
	return n
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) recycle() {
	if cap(b.data) > 2*outboxSoft {
		return // a rare large frame would keep its memory
	}
	clear(b.contents)
	b.data, b.ends, b.contents, b.last = b.data[:0], b.ends[:0], b.contents[:0], 0
	batchPool.Put(b)
}

// outbox passes batches to the writer, a goroutine that exists while there is something to write.
// Only the loop publishes. The writer ends under the lock of publish, so that no batch stays
// without a writer. If the client waits for nothing but a small batch, the loop sends it itself:
// that saves a switch of goroutines, and the kernel takes it at once.
type outbox struct {
	conn transport.Conn
	try  transport.TryFlusher // conn; nil: it cannot send without waiting
	bin  transport.BinaryConn // conn; nil: it has no binary frames
	pool *pool.Pool
	wake func()           // wakes the loop: there is room, or the writer has failed
	sent func(seq uint64) // called with the event_seq of the last written event

	mu       sync.Mutex
	ready    *batch // next batch of the writer; nil: none
	writing  bool
	inFlight int // bytes that the writer is writing
	expected int // bytes announced by expect and not published
	err      error
	idle     sync.Cond // uses mu; signals that writing is false, or that the context of a drain has ended
}

func newOutbox(conn transport.Conn, p *pool.Pool, wake func(), sent func(seq uint64)) *outbox {
	o := &outbox{conn: conn, pool: p, wake: wake, sent: sent}
	o.idle.L = &o.mu
	o.try, _ = conn.(transport.TryFlusher)
	o.bin, _ = conn.(transport.BinaryConn)
	return o
}

// size returns the bytes that wait for the writer, and the error of the writer.
func (o *outbox) size() (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ready != nil {
		n = o.ready.size()
	}
	return n, o.err
}

// queued returns the bytes that are not written, including expected ones.
func (o *outbox) queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.inFlight + o.expected
	if o.ready != nil {
		n += o.ready.size()
	}
	return n
}

// expect announces n bytes that will be published.
func (o *outbox) expect(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expected += n
}

// publish sends a batch, or passes it to the writer; nil: none. The caller must not use it afterwards.
// expected is the number of expected bytes that are in the batch, or are dropped. awaited reports
// that the client waits for nothing but this batch.
func (o *outbox) publish(b *batch, expected int, awaited bool) {
	o.mu.Lock()
	o.expected -= expected
	if b == nil {
		o.mu.Unlock()
		return
	}
	idle := !o.writing && o.err == nil // only publish starts a writer
	o.mu.Unlock()
	if awaited && idle && o.try != nil && b.size() <= maxDirect {
		o.sendDirect(b)
	} else {
		o.pass(b)
	}
}

// sendDirect sends a batch on the loop. If the kernel does not accept all bytes, the writer sends the rest.
func (o *outbox) sendDirect(b *batch) {
	sent, err := false, o.appendFrames(b)
	if err == nil {
		sent, err = o.try.TryFlush()
	}
	if err == nil && !sent {
		o.mu.Lock()
		o.writing, o.inFlight = true, b.size()
		o.mu.Unlock()
		o.pool.Run(func() {
			o.written(b, o.conn.Flush())
			o.wake()
			o.write()
		})
		return
	}
	if o.written(b, err); err != nil {
		o.wake() // the next turn ends the connection
	}
}

// pass passes a batch to the writer.
func (o *outbox) pass(b *batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		b.recycle()
		return
	}
	if o.ready == nil {
		o.ready = b
	} else {
		o.ready.append(b)
		b.recycle()
	}
	if !o.writing {
		o.writing = true
		o.pool.Run(o.write)
	}
}

func (b *batch) append(g *batch) {
	b.last = max(b.last, g.last)
	base, frames := len(b.data), len(b.ends)
	b.data = append(b.data, g.data...)
	for _, c := range g.contents {
		b.contents = append(b.contents, frameContent{frames + c.frame, c.content})
	}
	for _, end := range g.ends {
		b.ends = append(b.ends, base+end)
	}
}

// write is the writer. It writes batches until there is none.
func (o *outbox) write() {
	for {
		o.mu.Lock()
		b := o.ready
		o.ready = nil
		if b == nil || o.err != nil {
			o.writing = false
			o.idle.Broadcast()
			o.mu.Unlock()
			return
		}
		o.inFlight = b.size()
		o.mu.Unlock()
		o.written(b, o.send(b))
		o.wake()
	}
}

// written records that a batch was written, or why it was not.
func (o *outbox) written(b *batch, err error) {
	if err == nil && b.last != 0 {
		o.sent(b.last)
	}
	b.recycle()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inFlight = 0; err != nil {
		o.err = err
	}
}

func (o *outbox) send(b *batch) error {
	if err := o.appendFrames(b); err != nil {
		return err
	}
	return o.conn.Flush()
}

// appendFrames appends the frames of a batch to the send buffer of the connection.
func (o *outbox) appendFrames(b *batch) error {
	start, contents := 0, b.contents
	for i, end := range b.ends {
		var content []byte
		if len(contents) > 0 && contents[0].frame == i {
			content, contents = contents[0].content, contents[1:]
		}
		if err := o.writeFrame(b.data[start:end], content); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// drain returns when everything is written, the writer has failed, or ctx has ended. It reports false
// if the writer still writes.
func (o *outbox) drain(ctx context.Context) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.writing {
		return true
	}
	defer context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.idle.Broadcast()
	})()
	for o.writing && ctx.Err() == nil {
		o.idle.Wait()
	}
	return !o.writing
}

// drainWithin is drain with a timeout.
func (o *outbox) drainWithin(d time.Duration) bool {
	o.mu.Lock()
	writing := o.writing
	o.mu.Unlock()
	if !writing {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return o.drain(ctx)
}
