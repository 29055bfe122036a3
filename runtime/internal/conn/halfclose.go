package conn

import (
	"errors"
	"io"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/transport"
)

// A half-closed connection is checked every halfCloseInterval, and closed when it was quiet for
// halfCloseQuiet.
const (
	halfCloseInterval = 50 * time.Millisecond
	halfCloseQuiet    = 200 * time.Millisecond
)

// halfClose is the state of a half-closed connection: the client has ended sending and still reads,
// as in a shell pipeline. The client gets the answers to its commands, and the events of the
// session's jobs until they have ended. It is nil while the client may send.
type halfClose struct {
	readErr error     // the error that ended the reader
	busyAt  time.Time // when there was last something to send
	due     time.Time // time of the next check; zero: never
}

// beginHalfClose returns the state of a connection whose reader has ended with err; nil: the client
// does not read either.
func beginHalfClose(tc transport.Conn, now time.Time, err error) *halfClose {
	if !halfClosed(tc, err) {
		return nil
	}
	return &halfClose{readErr: err, busyAt: now}
}

// halfClosed reports whether the client still reads after the reader has ended with err.
func halfClosed(tc transport.Conn, err error) bool {
	t, ok := tc.(transport.HalfCloser)
	return ok && errors.Is(err, io.EOF) && t.Reads()
}

// unfinished reports whether, on a half-closed connection, a request is unanswered or a job of the
// session is live.
func (h *halfClose) unfinished(c *conn) bool {
	if h == nil {
		return false
	}
	switch c.machine.Phase() {
	case machine.Authenticating, machine.Establishing, machine.Closing:
		return true
	}
	return c.unanswered.any() || c.tasks.running.Load() > 0 || c.ack.paused || c.ack.locating || c.srv.opts.Engine.SessionJobs().HasActive(c.id)
}

// advance closes the connection when nothing was sent for halfCloseQuiet, or the client does not
// read any more. It is called at the end of a turn, with the value of unfinished before flush.
func (h *halfClose) advance(c *conn, now time.Time, unfinished bool) {
	h.due = time.Time{}
	if c.ending.begun() {
		return
	}
	if unfinished || c.output.outbox.queued() > 0 || c.events.cursor != nil && c.events.cursor.QueuedAnswers() > 0 {
		h.busyAt = now
	}
	if now.Sub(h.busyAt) >= halfCloseQuiet || !c.tc.(transport.HalfCloser).Reads() {
		c.ending.err = h.readErr
		return
	}
	h.due = now.Add(halfCloseInterval)
}

// nextCheck returns when a turn must call advance; zero: never.
func (h *halfClose) nextCheck() time.Time {
	if h == nil {
		return time.Time{}
	}
	return h.due
}
