package transport

import (
	"errors"
	"io"

	"github.com/arcpd/arcpd/internal/clip"
)

// framing is the encoding of frames in a byte stream.
type framing interface {
	// wrap adds the header and trailer to a frame, or refuses the frame.
	wrap(frame []byte) (outFrame, error)
	// end returns the number of bytes of p that belong to the frame beginning with head, or -1
	// if the frame continues after p.
	end(head, p []byte) int
	// unwrap returns the frame in raw. It returns false for bytes to skip.
	unwrap(raw []byte) ([]byte, bool, error)
	// overhead returns the largest size of header and trailer.
	overhead() int
	// closeFrame returns the bytes that Close sends. They may be empty.
	closeFrame(code CloseCode, reason string) []byte
	// eof returns the error at the end of the stream. within reports an incomplete frame.
	eof(within bool) error
}

// streamConn is a Conn over a byte stream.
type streamConn struct {
	core
	framing framing
}

func newStreamConn(w wire, f framing, l Limits, info Info) *streamConn {
	c := &streamConn{framing: f}
	c.init(w, l, info)
	return c
}

// SetReadLimit implements Conn.
func (c *streamConn) SetReadLimit(n int64) { c.limit.Store(n) }

// Ping implements Conn. Streams have no pings.
func (c *streamConn) Ping() error { return nil }

// Write implements Conn.
func (c *streamConn) Write(frame []byte) error {
	f, err := c.framing.wrap(frame)
	if err != nil {
		return err
	}
	return c.out.put(f)
}

// Close implements Conn.
func (c *streamConn) Close(code CloseCode, reason string) error {
	return c.close(code, c.framing.closeFrame(code, clip.Text(reason, maxReason)))
}

// Read implements Conn.
func (c *streamConn) Read() ([]byte, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.failure != nil {
		return nil, c.failure
	}
	for {
		c.releaseFrame()
		frame, ok, err := c.next()
		if err != nil {
			return nil, c.fail(err)
		}
		if ok && c.closed.Load() == nil {
			return frame, nil
		}
	}
}

func (c *streamConn) next() ([]byte, bool, error) {
	raw, err := c.raw()
	if err != nil {
		return nil, false, err
	}
	frame, ok, err := c.framing.unwrap(raw)
	if !ok || err != nil {
		return nil, false, c.recordClosed(err)
	}
	return frame, true, c.check(frame)
}

// raw returns a frame with header and trailer. The frame is a part of rest, or else collected in
// frameBuffer.
func (c *streamConn) raw() ([]byte, error) {
	for {
		if err := c.fill(); err != nil {
			return nil, c.recordClosed(c.ioError(err))
		}
		if n := c.framing.end(c.frameBuffer, c.rest); n >= 0 {
			return c.complete(n), nil
		}
		if limit := c.limit.Load(); int64(len(c.frameBuffer)+len(c.rest)) > limit+int64(c.framing.overhead()) {
			return nil, tooBig(limit)
		}
		c.frameBuffer = appendBuffer(c.frameBuffer, c.rest)
		c.rest = nil
	}
}

// complete returns the partial frame with the n bytes that complete it.
func (c *streamConn) complete(n int) []byte {
	raw := c.rest[:n]
	c.rest = c.rest[n:]
	if len(c.frameBuffer) == 0 {
		return raw
	}
	c.frameBuffer = appendBuffer(c.frameBuffer, raw)
	return c.frameBuffer
}

func (c *streamConn) ioError(err error) error {
	if err == io.EOF {
		return c.framing.eof(len(c.frameBuffer) > 0)
	}
	return err
}

// halfWire is a wire whose peer may end sending and continue to read.
type halfWire interface {
	// reads reports whether the peer reads. Any goroutine may call it.
	reads() bool
}

// Reads implements HalfCloser.
func (c *streamConn) Reads() bool {
	w, ok := c.wire.(halfWire)
	return ok && !c.peerClosed.Load() && c.localEnd() == nil && w.reads()
}

// recordClosed records a close by the peer and makes writes fail, unless the peer has only ended sending.
func (c *streamConn) recordClosed(err error) error {
	e, ok := errors.AsType[*Error](err)
	if ok && e.Remote && !(e.Err == io.EOF && c.Reads()) {
		c.peerClosed.Store(true)
		c.out.stop(e)
	}
	return err
}
