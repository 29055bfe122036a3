package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

// connection is one connection of a check in either dialect.
type connection interface {
	script.Conn

	checkAlive()          // fails the check unless the session, if any, answers a ping
	accepted() bool       // reports whether the server accepted a session on the connection
	closing() []byte      // the frame that closes the session
	forbid(secret string) // declares a text that the server must not send
	transportLink() *link
}

// link is the transport of a connection of a check. It writes the transcript.
type link struct {
	t             *checkRun
	n             int // number in the transcript
	tc            transport.Conn
	stop          func() bool // stops aborting tc at the end of t.ctx
	stopKeepalive context.CancelFunc
	gone          bool            // closed by either side
	pending       <-chan incoming // of a read that readSoon did not wait for; nil: none

	sentType    string // type of the last sent message
	sentCommand string // type of the last sent message that is not a keepalive
}

// incoming is the outcome of a read of the transport.
type incoming struct {
	text []byte
	err  error
}

func newLink(t *checkRun, tc transport.Conn) *link {
	l := &link{t: t, n: len(t.conns) + 1, tc: tc}
	l.stop = context.AfterFunc(t.ctx, func() { _ = tc.Abort() }) // ends a blocked read
	tc.SetReadLimit(64 << 20)
	life, stop := context.WithCancel(t.ctx)
	l.stopKeepalive = stop
	go l.keepalive(life)
	t.tr.add(l.n, Noted, []byte("connected"))
	return l
}

// transportLink implements connection.
func (l *link) transportLink() *link { return l }

func (l *link) write(frame []byte) {
	frame = l.t.target.Mapping.sent(frame)
	l.t.tr.add(l.n, Sent, frame)
	l.setSent(typeOf(frame))
	err := l.tc.Write(frame)
	if err == nil {
		err = l.tc.Flush()
	}
	if err != nil {
		l.t.tr.add(l.n, Noted, []byte(err.Error()))
	}
	// The read that follows reports the reason.
}

func (l *link) read() ([]byte, error) {
	if l.pending == nil {
		text, err := l.tc.Read()
		return l.received(text, err)
	}
	in := <-l.pending
	l.pending = nil
	return l.received(in.text, in.err)
}

// readSoon reads a frame that comes within the time; nil if none comes. The next read goes on.
func (l *link) readSoon(within time.Duration) ([]byte, error) {
	if l.pending == nil {
		pending := make(chan incoming, 1)
		l.pending = pending
		go func() {
			text, err := l.tc.Read()
			pending <- incoming{text, err}
		}()
	}
	select {
	case in := <-l.pending:
		l.pending = nil
		return l.received(in.text, in.err)
	case <-time.After(within):
		return nil, nil
	}
}

func (l *link) received(text []byte, err error) ([]byte, error) {
	l.t.active = l
	if err != nil {
		return nil, l.ended(err)
	}
	l.t.tr.receive(l.n, text)
	if isBinary(l.tc) {
		return nil, errors.New("a message announces each binary frame: no message announces this one")
	}
	text = l.t.target.Mapping.received(slices.Clone(text))
	if l.t.shapes != nil {
		l.t.shapes.add(text)
	}
	return l.joinSidecar(text)
}

// ended records the end of the connection, and returns err.
func (l *link) ended(err error) error {
	l.gone = true
	l.t.tr.add(l.n, Noted, []byte(l.ending(err)))
	return err
}

// ending describes the end of a connection or the timeout of the check.
func (l *link) ending(err error) string {
	if l.t.ctx.Err() != nil {
		l.t.timedOut = true
		return "no frame was received before the timeout of the check"
	}
	return l.closedAfter(err).Error()
}

// closedAfter adds the last message of the client to the error of a connection that the server
// closed.
func (l *link) closedAfter(err error) error {
	closed, ok := errors.AsType[*transport.Error](err)
	if !ok || !closed.Remote && closed.Code != transport.CloseAbnormal {
		return err
	}
	l.t.closed = true
	return fmt.Errorf("the server closed the connection after %s: %w", cmp.Or(l.sentType, "it was opened"), err)
}

// pingInterval is the time between two transport pings. Servers close connections that are silent
// for longer.
const pingInterval = 500 * time.Millisecond

// keepalive pings the server until life ends. Without the pings a check that does not read for a
// while would lose its connection.
func (l *link) keepalive(life context.Context) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-life.Done():
			return
		}
		if l.tc.Ping() != nil {
			return // the connection has ended: the next read reports the reason
		}
	}
}

// Drop ends the connection without a close frame.
func (l *link) Drop() {
	l.gone = true
	l.stop()
	l.stopKeepalive()
	_ = l.tc.Abort() // the connection is not used any more
}
