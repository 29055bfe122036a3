package conn

import (
	"errors"
	"io"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/transport"
)

// A half-closed connection is closed when it has been quiet for halfQuiet. It is checked every
// halfEvery.
const (
	halfEvery = 50 * time.Millisecond
	halfQuiet = 200 * time.Millisecond
)

// halfClose is the state of a connection whose client has ended sending and still reads, as
// in a shell pipeline. The client gets the answers to its commands, and the events of the
// session's jobs until they have ended. A connection that is open both ways has none.
type halfClose struct {
	ended error     // of the reader
	busy  time.Time // when there was something to send last
	due   time.Time // of the next check; zero: never
}

// beginHalfClose returns the state of a connection whose client has ended sending with err,
// nil if the client does not read any more.
func beginHalfClose(tc transport.Conn, now time.Time, err error) *halfClose {
	if !halfClosed(tc, err) {
		return nil
	}
	return &halfClose{ended: err, busy: now}
}

// halfClosed reports whether the client, whose frames end with err, still reads.
func halfClosed(tc transport.Conn, err error) bool {
	t, ok := tc.(transport.HalfCloser)
	return ok && errors.Is(err, io.EOF) && t.Reads()
}

// unfinished reports whether a request of the client is not answered, or a job of the session
// has not ended, while the client has ended sending.
func (h *halfClose) unfinished(c *conn) bool {
	if h == nil {
		return false
	}
	switch c.m.Phase() {
	case machine.Authenticating, machine.Establishing, machine.Closing:
		return true
	}
	return c.pending.any() || c.tasks.running.Load() > 0 || c.ack.held || c.ack.locating || c.srv.opts.Engine.HasJobs(c.id)
}

// advance closes the connection when nothing was sent for halfQuiet, or the client does not
// read any more. It comes last in a turn; unfinished is its value before the turn collected
// events to send.
func (h *halfClose) advance(c *conn, now time.Time, unfinished bool) {
	h.due = time.Time{}
	if c.ending.err != nil || c.ending.close != nil {
		return
	}
	if unfinished || c.output.box.queued() > 0 || c.cursor != nil && c.cursor.Waiting() > 0 {
		h.busy = now
	}
	if now.Sub(h.busy) >= halfQuiet || !c.tc.(transport.HalfCloser).Reads() {
		c.ending.err = h.ended
		return
	}
	h.due = now.Add(halfEvery)
}

// nextCheck returns when advance has to be called again; zero: never.
func (h *halfClose) nextCheck() time.Time {
	if h == nil {
		return time.Time{}
	}
	return h.due
}
