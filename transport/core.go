package transport

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// closeTimeout bounds Close: sending the buffered frames and the close frame, and waiting for
// the peer's end.
const closeTimeout = time.Second

// maxReason is the room for a reason in a close frame (RFC 6455 §5.5).
const maxReason = 123

// source yields the bytes that arrive.
type source interface {
	// receive blocks for bytes, without holding a buffer where it can. They
	// are valid until release.
	receive() ([]byte, error)
	// release says that the bytes received last have been used.
	release()
	// interrupt makes receive fail, now and later. Anyone may call it.
	interrupt()
}

// wire is a byte stream below a connection.
type wire interface {
	source
	sink
	// linger ends sending and waits until the peer ends too: a reset would lose the bytes just
	// sent. It follows interrupt; kill ends it.
	linger()
	// kill ends everything at once and makes all calls fail. Anyone may call
	// it, more than once.
	kill()
	// join waits for the goroutines of the wire after kill.
	join()
}

// core is the part that all connections share: everything but framing.
type core struct {
	wire         wire
	out          outbox
	info         Info
	limit        atomic.Int64 // of frames read
	made         time.Time
	lastReceived atomic.Int64 // when bytes were received last, after made
	gone         atomic.Bool  // the peer said that it has ended

	reading sync.Mutex // held during Read
	rest    []byte     // received and not yet used
	lent    []byte     // the frame that Read returned, if it is not within rest
	failure error      // of Read, forever

	ending sync.Mutex
	closed *Error        // why this side ended; nil until then
	done   chan struct{} // closed when this side has ended
}

func (c *core) init(w wire, l Limits, info Info) {
	if l.ReadLimit <= 0 {
		l.ReadLimit = DefaultReadLimit
	}
	if l.WriteTimeout <= 0 {
		l.WriteTimeout = DefaultWriteTimeout
	}
	c.wire, c.info = w, info
	c.out.init(w, l.WriteTimeout)
	c.limit.Store(l.ReadLimit)
	c.made = time.Now()
	c.out.took = c.sawPeer
}

// sawPeer notes a sign of life.
func (c *core) sawPeer() { c.lastReceived.Store(int64(time.Since(c.made))) }

// Info implements Conn.
func (c *core) Info() Info { return c.info }

// LastSeen implements Conn.
func (c *core) LastSeen() time.Time { return c.made.Add(time.Duration(c.lastReceived.Load())) }

// Flush implements Conn.
func (c *core) Flush() error { return c.out.flush() }

// fill blocks until there are bytes to use. The caller holds reading.
func (c *core) fill() error {
	if len(c.rest) > 0 {
		return nil
	}
	c.wire.release()
	p, err := c.wire.receive()
	if err != nil {
		return err
	}
	c.rest = p
	c.sawPeer()
	return nil
}

// giveBack ends the use of the frame that Read returned. The caller holds
// reading.
func (c *core) giveBack() {
	putBuffer(c.lent)
	c.lent = nil
}

// Buffered implements Bufferer.
func (c *core) Buffered() bool {
	c.reading.Lock()
	defer c.reading.Unlock()
	return len(c.rest) > 0 || c.failure != nil
}

// fail makes err, as Read returns it, the end of all reading. The caller holds
// reading.
func (c *core) fail(err error) error {
	if e := c.endedHere(); e != nil {
		err = e
	} else if _, ok := errors.AsType[*Error](err); !ok {
		err = &Error{Code: CloseAbnormal, Err: fmt.Errorf("read: %w", err)}
	}
	c.failure = err
	return err
}

// check is whether a frame may be handed to the caller of Read.
func (c *core) check(frame []byte) error {
	if n := c.limit.Load(); int64(len(frame)) > n {
		return tooBig(n)
	}
	if !utf8.Valid(frame) {
		return &Error{Code: CloseNotUTF8, Reason: "a frame is not UTF-8"}
	}
	return nil
}

func tooBig(limit int64) error {
	return &Error{Code: CloseTooBig, Reason: fmt.Sprintf("a frame has more than %d bytes", limit)}
}

func (c *core) endedHere() error {
	c.ending.Lock()
	defer c.ending.Unlock()
	if c.closed == nil {
		return nil
	}
	return c.closed
}

// begin starts the end of the connection from this side. It returns false if another goroutine
// has started it; that one closes done.
func (c *core) begin(code CloseCode) bool {
	c.ending.Lock()
	defer c.ending.Unlock()
	if c.closed != nil {
		return false
	}
	c.closed = &Error{Code: code, Err: ErrClosed}
	c.done = make(chan struct{})
	return true
}

// close ends the connection within closeTimeout: it sends the buffered frames and the close
// frame, then waits for the peer's end.
func (c *core) close(code CloseCode, farewell []byte) error {
	if !c.begin(code) {
		<-c.done
		return nil
	}
	t := time.AfterFunc(closeTimeout, c.wire.kill)
	defer t.Stop()
	err := c.out.finish(farewell, c.closed)
	c.wire.interrupt()
	c.awaitReader()
	if err == nil && !c.gone.Load() {
		c.wire.linger()
	}
	c.stop()
	if c.gone.Load() {
		return nil
	}
	return err
}

// awaitReader returns when no goroutine is in Read. The wire must be interrupted before.
func (c *core) awaitReader() {
	c.reading.Lock()
	defer c.reading.Unlock()
}

// stop ends the connection at once. It returns when no goroutine is in Read, Write or Flush.
// The frame that Read returned last stays valid.
func (c *core) stop() {
	c.out.stop(c.closed)
	c.wire.kill()
	c.out.join()
	c.reading.Lock()
	defer c.reading.Unlock()
	c.wire.join()
	close(c.done)
}

// Abort implements Conn.
func (c *core) Abort() error {
	if c.begin(CloseAbnormal) {
		c.stop()
		return nil
	}
	c.wire.kill()
	<-c.done
	return nil
}

var _, _ Bufferer = (*wsConn)(nil), (*streamConn)(nil)
