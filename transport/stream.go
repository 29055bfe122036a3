package transport

import (
	"errors"
	"io"

	"github.com/arcpd/arcpd/internal/clip"
)

// framing is how frames lie in a byte stream.
type framing interface {
	// wrap adds header and trailer to a frame, or refuses the frame.
	wrap(frame []byte) (outFrame, error)
	// end returns how many bytes of p belong to the frame that begins with head, or -1 if the
	// frame continues beyond p.
	end(head, p []byte) int
	// unwrap returns the frame within raw. It returns false for bytes that are no frame and are
	// skipped.
	unwrap(raw []byte) ([]byte, bool, error)
	// overhead is the most that surrounds a frame.
	overhead() int
	// farewell is sent by Close. It may be empty.
	farewell(code CloseCode, reason string) []byte
	// eof says why the stream ended, within a frame or between two.
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

// Ping implements Conn. Streams have none.
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
	return c.close(code, c.framing.farewell(code, clip.Text(reason, maxReason)))
}

// Read implements Conn.
func (c *streamConn) Read() ([]byte, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.failure != nil {
		return nil, c.failure
	}
	for {
		c.giveBack()
		frame, ok, err := c.next()
		if err != nil {
			return nil, c.fail(err)
		}
		if ok {
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
		return nil, false, c.noteClosed(err)
	}
	return frame, true, c.check(frame)
}

// raw returns a frame with header and trailer: a part of rest if possible, else gathered in
// lent.
func (c *streamConn) raw() ([]byte, error) {
	for {
		if err := c.fill(); err != nil {
			return nil, c.noteClosed(c.ioError(err))
		}
		if n := c.framing.end(c.lent, c.rest); n >= 0 {
			return c.take(n), nil
		}
		if limit := c.limit.Load(); int64(len(c.lent)+len(c.rest)) > limit+int64(c.framing.overhead()) {
			return nil, tooBig(limit)
		}
		c.lent = appendBuffer(c.lent, c.rest)
		c.rest = nil
	}
}

// take returns the partial frame and the n bytes that complete it.
func (c *streamConn) take(n int) []byte {
	raw := c.rest[:n]
	c.rest = c.rest[n:]
	if len(c.lent) == 0 {
		return raw
	}
	c.lent = appendBuffer(c.lent, raw)
	return c.lent
}

func (c *streamConn) ioError(err error) error {
	if err == io.EOF {
		return c.framing.eof(len(c.lent) > 0)
	}
	return err
}

// halfWire is a wire whose other end may stop sending and read on.
type halfWire interface {
	// reads reports whether the peer reads. Any goroutine may call it.
	reads() bool
}

// Reads implements HalfCloser.
func (c *streamConn) Reads() bool {
	w, ok := c.wire.(halfWire)
	return ok && !c.gone.Load() && c.endedHere() == nil && w.reads()
}

// noteClosed keeps that the peer has gone, and lets writing fail, too, unless it
// has only ended sending.
func (c *streamConn) noteClosed(err error) error {
	e, ok := errors.AsType[*Error](err)
	if ok && e.Remote && !(e.Err == io.EOF && c.Reads()) {
		c.gone.Store(true)
		c.out.stop(e)
	}
	return err
}
