package conn

import (
	"sync"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/transport"
)

// Bounds of the bytes that a connection may have queued for its peer.
const (
	outboxSoft = 64 << 10 // events are pulled only below this
	outboxHard = 4 << 20  // with the bytes being written; above it, no frame of the client is handled
)

// frames is a batch of encoded frames, one after the other.
type frames struct {
	data []byte
	ends []int
	last uint64 // event_seq of the last event among them; 0: none
}

var framesPool = sync.Pool{New: func() any { return new(frames) }}

func (f *frames) recycle() {
	if cap(f.data) > 2*outboxSoft {
		return // one large frame: not worth keeping
	}
	f.data, f.ends, f.last = f.data[:0], f.ends[:0], 0
	framesPool.Put(f)
}

// outbox hands frames to a writer that exists only while there is something to write. Only the
// loop publishes. The writer ends under the lock under which frames are published, so that no
// frame is left without a writer.
type outbox struct {
	conn transport.Conn
	pool *pool.Pool
	wake func()           // the loop: there is room again, or an error
	sent func(seq uint64) // called with the number of the last event that is written

	mu      sync.Mutex
	ready   *frames // to be written next; nil: nothing
	writing bool
	flight  int // bytes that are being written
	coming  int // bytes that are expected and not in ready yet
	err     error
	idle    sync.Cond // with mu: writing became false
}

func newOutbox(conn transport.Conn, p *pool.Pool, wake func(), sent func(seq uint64)) *outbox {
	o := &outbox{conn: conn, pool: p, wake: wake, sent: sent}
	o.idle.L = &o.mu
	return o
}

// size returns the bytes that wait behind those being written, and the error of the writer.
func (o *outbox) size() (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ready != nil {
		n = len(o.ready.data)
	}
	return n, o.err
}

// queued returns the bytes that are not written, with those that are expected.
func (o *outbox) queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.flight + o.coming
	if o.ready != nil {
		n += len(o.ready.data)
	}
	return n
}

// expect counts bytes that will be published.
func (o *outbox) expect(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.coming += n
}

// publish hands over a batch, which may be nil and must not be used afterwards. expected is the
// number of expected bytes that are in it or will never come.
func (o *outbox) publish(f *frames, expected int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.coming -= expected
	if f == nil {
		return
	}
	if o.err != nil {
		f.recycle()
		return
	}
	if o.ready == nil {
		o.ready = f
	} else {
		o.ready.append(f)
		f.recycle()
	}
	if !o.writing {
		o.writing = true
		o.pool.Run(o.write)
	}
}

func (f *frames) append(g *frames) {
	f.last = max(f.last, g.last)
	base := len(f.data)
	f.data = append(f.data, g.data...)
	for _, end := range g.ends {
		f.ends = append(f.ends, base+end)
	}
}

// write writes batches until there is none.
func (o *outbox) write() {
	for {
		o.mu.Lock()
		f := o.ready
		o.ready = nil
		if f == nil || o.err != nil {
			o.writing = false
			o.idle.Broadcast()
			o.mu.Unlock()
			return
		}
		o.flight = len(f.data)
		o.mu.Unlock()
		err := o.send(f)
		if err == nil && f.last != 0 {
			o.sent(f.last)
		}
		f.recycle()
		o.mu.Lock()
		if o.flight = 0; err != nil {
			o.err = err
		}
		o.mu.Unlock()
		o.wake()
	}
}

func (o *outbox) send(f *frames) error {
	start := 0
	for _, end := range f.ends {
		if err := o.conn.Write(f.data[start:end]); err != nil {
			return err
		}
		start = end
	}
	return o.conn.Flush()
}

// settle waits up to 50 ms for the frames that are being written: the peer may have them before
// the write returns.
func (o *outbox) settle() {
	for range 50 {
		o.mu.Lock()
		writing := o.writing
		o.mu.Unlock()
		if !writing {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// drain waits until everything is written or has failed.
func (o *outbox) drain() {
	o.mu.Lock()
	for o.writing {
		o.idle.Wait()
	}
	o.mu.Unlock()
}
