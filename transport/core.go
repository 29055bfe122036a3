package transport

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// closeTimeout bounds Close: sending the buffered frames and the close frame, and waiting for the end of the
// peer.
const closeTimeout = time.Second

// answerTimeout bounds the wait for the answer to a close frame. Then Close ends sending, for peers that wait
// for the end of the stream.
const answerTimeout = closeTimeout / 4

// maxReason is the largest reason in a close frame, in bytes (RFC 6455 §5.5).
const maxReason = 123

// source is the receiving part of a wire.
type source interface {
	// receive waits for bytes, without a buffer if possible. The bytes are valid until release.
	receive() ([]byte, error)
	// release ends the use of the last received bytes.
	release()
	// interrupt makes current and later receives fail. Any goroutine may call it.
	interrupt()
}

// intoSource is a source that can receive into memory of the caller.
type intoSource interface {
	// receiveInto waits for bytes and returns their number, at least 1 and at most len(p).
	receiveInto(p []byte) (n int, err error)
}

// wire is a byte stream below a connection.
type wire interface {
	source
	sink
	// awaitPeerClose ends sending and waits for the end of the peer, because a reset would lose
	// the last bytes. It is called after interrupt. kill ends it.
	awaitPeerClose()
	// kill ends the wire at once and makes all calls fail. Any goroutine may call it,
	// repeatedly.
	kill()
	// join waits for the goroutines of the wire after kill.
	join()
}

// core is the part of a connection without the framing.
type core struct {
	wire         wire
	out          outbox
	info         Info
	limit        atomic.Int64 // largest received frame in bytes
	created      time.Time
	lastReceived atomic.Int64 // time of the last activity of the peer, since created
	peerClosed   atomic.Bool  // the peer has closed the connection
	answers      bool         // the peer answers a close frame before it ends the connection; never changes

	reading     sync.Mutex // held during Read
	rest        []byte     // received and not used yet
	frameBuffer []byte     // the frame that Read collects; of a WebSocket also the returned one, which may be a part of rest
	failure     error      // error of all further Reads
	inputEnded  bool       // the peer has ended sending, or has reset the connection

	ending sync.Mutex
	closed atomic.Pointer[Error] // error after Close or Abort; nil before. Changes only under ending
	done   chan struct{}         // closed when Close or Abort has finished
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
	c.created = time.Now()
	c.out.onUnblocked = c.sawPeer
}

// sawPeer records activity of the peer.
func (c *core) sawPeer() { c.lastReceived.Store(int64(time.Since(c.created))) }

// Info implements Conn.
func (c *core) Info() Info { return c.info }

// LastSeen implements Conn.
func (c *core) LastSeen() time.Time { return c.created.Add(time.Duration(c.lastReceived.Load())) }

// Flush implements Conn.
func (c *core) Flush() error { return c.out.flush() }

// TryFlush implements TryFlusher.
func (c *core) TryFlush() (sent bool, err error) { return c.out.tryFlush() }

// fill waits for received bytes. The caller holds reading.
func (c *core) fill() error {
	if len(c.rest) > 0 {
		return nil
	}
	c.wire.release()
	p, err := c.wire.receive()
	c.rest = p
	return c.received(err)
}

// received records the result of a receive, and returns its error.
func (c *core) received(err error) error {
	if err != nil {
		c.inputEnded = err == io.EOF || errors.Is(err, errReset)
		return err
	}
	c.sawPeer()
	return nil
}

// appendReceived appends at least 1 and at most n received bytes to frameBuffer, and returns them in it. The
// bytes of a frame above BufferSize are received there, if the wire can do that. The caller holds reading.
func (c *core) appendReceived(n int) ([]byte, error) {
	start := len(c.frameBuffer)
	if into, ok := c.wire.(intoSource); ok && start >= BufferSize && len(c.rest) == 0 {
		c.wire.release()
		c.frameBuffer = growFrame(c.frameBuffer, n)
		p := c.frameBuffer[start:min(start+n, cap(c.frameBuffer))]
		got, err := into.receiveInto(p)
		c.frameBuffer = c.frameBuffer[:start+got]
		return p[:got], c.received(err)
	}
	if err := c.fill(); err != nil {
		return nil, err
	}
	part := c.rest[:min(n, len(c.rest))]
	c.frameBuffer, c.rest = appendBuffer(c.frameBuffer, part), c.rest[len(part):]
	return c.frameBuffer[start:], nil
}

// releaseFrame ends the use of the frame returned by Read. The caller holds reading.
func (c *core) releaseFrame() {
	putBuffer(c.frameBuffer)
	c.frameBuffer = nil
}

// Buffered implements Bufferer.
func (c *core) Buffered() bool {
	c.reading.Lock()
	defer c.reading.Unlock()
	return len(c.rest) > 0 || c.failure != nil
}

// fail makes err the error of this and all further Reads, and drops the received bytes. The caller holds
// reading.
func (c *core) fail(err error) error {
	if e := c.localEnd(); e != nil {
		err = e
	} else if _, ok := errors.AsType[*Error](err); !ok {
		err = &Error{Code: CloseAbnormal, Err: fmt.Errorf("read: %w", err)}
	}
	c.failure, c.rest = err, nil
	c.wire.release()
	return err
}

// check returns an error unless Read may return the frame.
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

func (c *core) localEnd() error {
	if e := c.closed.Load(); e != nil {
		return e
	}
	return nil
}

// begin starts the end of the connection from this side. It returns false if another goroutine has
// started it. The goroutine that started it closes done.
func (c *core) begin(code CloseCode) bool {
	c.ending.Lock()
	defer c.ending.Unlock()
	if c.closed.Load() != nil {
		return false
	}
	c.done = make(chan struct{})
	c.closed.Store(&Error{Code: code, Err: ErrClosed})
	return true
}

// close ends the connection within closeTimeout. It sends the buffered frames and the close frame, and waits
// for the end of the peer.
func (c *core) close(code CloseCode, closeFrame []byte) error {
	if !c.begin(code) {
		<-c.done
		return nil
	}
	t := time.AfterFunc(closeTimeout, c.wire.kill)
	defer t.Stop()
	err := c.out.finish(closeFrame, c.localEnd())
	if err == nil && c.answers {
		c.awaitAnswer()
	}
	if !c.peerEnded() {
		c.wire.interrupt()
		c.awaitReader()
		if err == nil && !c.peerEnded() {
			c.wire.awaitPeerClose()
		}
	}
	c.stop()
	if c.peerClosed.Load() {
		return nil
	}
	return err
}

// awaitAnswer waits at most answerTimeout until a Read in progress has received the end of the peer.
func (c *core) awaitAnswer() {
	if c.reading.TryLock() {
		c.reading.Unlock() // no Read is in progress
		return
	}
	t := time.AfterFunc(answerTimeout, c.wire.interrupt)
	defer t.Stop()
	c.awaitReader()
}

// peerEnded reports whether nothing more comes from the peer. Closing the wire then resets nothing.
func (c *core) peerEnded() bool {
	if c.peerClosed.Load() {
		return true
	}
	if !c.reading.TryLock() {
		return false
	}
	defer c.reading.Unlock()
	return c.inputEnded
}

// awaitReader returns when no goroutine is in Read. The wire must be interrupted before, or end by itself.
func (c *core) awaitReader() {
	c.reading.Lock()
	defer c.reading.Unlock()
}

// stop ends the connection at once. It returns when no goroutine is in Read, Write or Flush. The
// last frame returned by Read stays valid.
func (c *core) stop() {
	c.out.stop(c.localEnd())
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
