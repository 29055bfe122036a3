package conn

import (
	"sync"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/transport"
)

// Bounds of what a connection may have queued for its peer.
const (
	outboxSoft = 64 << 10 // events are pulled only below this
	outboxHard = 4 << 20  // with what is being written; over this: the peer sends without reading
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
		return // one huge frame: not worth keeping
	}
	f.data, f.ends, f.last = f.data[:0], f.ends[:0], 0
	framesPool.Put(f)
}

// outbox hands frames to a writer that exists only while there is something to
// write. The loop alone adds; that nothing is left and that no writer is left
// change under one lock, so no frame is stranded.
type outbox struct {
	conn transport.Conn
	pool *pool.Pool
	wake func()           // the loop: there is room again, or an error
	sent func(seq uint64) // told of each event that is written, or of a later one

	mu      sync.Mutex
	ready   *frames // to be written next; nil: nothing
	writing bool
	flight  int // bytes that are being written
	coming  int // bytes that somebody has announced and that are not in ready yet
	err     error
	idle    sync.Cond // with mu: writing became false
}

func newOutbox(conn transport.Conn, p *pool.Pool, wake func(), sent func(seq uint64)) *outbox {
	o := &outbox{conn: conn, pool: p, wake: wake, sent: sent}
	o.idle.L = &o.mu
	return o
}

// size is how many bytes wait behind those being written; writing says whether
// there are any.
func (o *outbox) size() (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ready != nil {
		n = len(o.ready.data)
	}
	return n, o.err
}

// queued is how many bytes are not written, with those that are expected.
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

// publish hands a batch over, which may be nil; f must not be used any more. Of the
// bytes that were expected these many have come, or never will.
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

// settle waits a moment for what is being written: the peer may have it before
// this side knows.
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
