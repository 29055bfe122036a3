package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// reader reads and routes the messages of the runtime. Its goroutine owns its fields; New sets
// them before the goroutine starts.
type reader struct {
	c           *Client
	sequence    sequence
	acked       uint64 // event_seq of the last acknowledgement by AckEvery
	link        *link  // the connection in use
	closeReason error  // why the runtime is about to close the connection
}

// run serves one connection, and with Connect then the next.
func (r *reader) run() {
	c := r.c
	for {
		l := r.startLink()
		err := l.reason(r.read(l.conn))
		if c.reconnect == nil || !c.reconnect.begin(err, time.Since(l.began)) {
			r.ended(err)
			l.stop()
			return
		}
		_ = l.conn.Abort() // so that a write does not wait for it
		l.stop()
		if err := c.reconnect.run(err); err != nil {
			c.end(err, abort)
			return
		}
	}
}

// read reads and routes until the connection ends, and returns the reason.
func (r *reader) read(conn transport.Conn) error {
	var env arcp.Envelope
	for {
		var err error
		if env, err = r.readFrame(conn); err == nil {
			err = r.receive(&env)
		}
		if err != nil {
			return err
		}
	}
}

func (r *reader) readFrame(conn transport.Conn) (arcp.Envelope, error) {
	frame, err := conn.Read()
	if err != nil && r.closeReason != nil {
		return arcp.Envelope{}, fmt.Errorf("%w: %w (%w)", ErrConnectionLost, r.closeReason, err)
	}
	if err != nil {
		return arcp.Envelope{}, lost(err)
	}
	env, err := arcp.DecodeFromRuntime(frame)
	if err != nil {
		return env, &ProtocolError{"read", err}
	}
	return env, nil
}

// receive checks the number of an envelope, calls OnEvent, routes it and acknowledges
// it. An error ends the connection.
func (r *reader) receive(env *arcp.Envelope) error {
	c := r.c
	if isNew, err := r.sequence.check(env); !isNew {
		return err
	}
	if c.opts.OnEvent == nil || !c.opts.OnEvent(env) {
		r.route(env)
	}
	if n := c.state.ackEvery.Load(); n != 0 && env.EventSeq >= r.acked+n {
		r.acked = env.EventSeq
		c.out.putAck(env.EventSeq)
	}
	return nil
}

// control handles messages to the client itself. It reports whether a message need
// not be routed besides.
func (r *reader) control(env *arcp.Envelope) (done bool) {
	switch env.Type {
	case arcp.Ping:
		p, _ := arcp.DecodePayload[arcp.PingPayload](env) // an unreadable nonce is not repeated
		r.reply(env, arcp.Pong, arcp.PongPayload(p))
		return true
	case arcp.SessionPing:
		p, _ := arcp.DecodePayload[arcp.SessionPingPayload](env)
		r.reply(env, arcp.SessionPong, arcp.SessionPongPayload{PingNonce: p.Nonce, ReceivedAt: time.Now()})
		return true
	case arcp.SessionRefresh:
		r.c.refresher.start(r.link.ctx, env)
		return true
	case arcp.SessionEvicted:
		r.closeReason = RemoteErrorOf(env)
	case arcp.SessionClose:
		p, _ := arcp.DecodePayload[arcp.SessionClosePayload](env)
		r.closeReason = fmt.Errorf("the runtime closes the session: %s", p.Reason)
	}
	return false
}

// reply answers without waiting; a full outbox drops the answer.
func (r *reader) reply(to *arcp.Envelope, t arcp.Type, payload any) {
	env := arcp.Frame(t, payload)
	env.CorrelationID = to.ID
	r.c.stamp(&env)
	if room, _ := r.c.out.tryPut(&env, false); room != nil {
		r.c.opts.Log("dropped an answer: nothing is being written", "type", t)
	}
}

// ended ends the client with its connection.
func (r *reader) ended(err error) {
	c := r.c
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if !errors.Is(err, ErrConnectionLost) {
		c.end(err, func(conn transport.Conn) { conn.Close(transport.ClosePolicy, err.Error()) })
		return
	}
	if closing {
		err = ErrClosed
	}
	c.end(err, abort)
}

// link is a connection in use. One goroutine writes, and with Connect another checks
// that the peer is alive.
type link struct {
	c      *Client
	conn   transport.Conn
	began  time.Time
	ctx    context.Context // ends when nothing more is read
	cancel context.CancelFunc
	group  sync.WaitGroup
	broken atomic.Pointer[error] // why this side has aborted the connection
}

func (r *reader) startLink() *link {
	l := &link{c: r.c, conn: r.c.conn, began: time.Now()}
	l.ctx, l.cancel = context.WithCancel(r.c.life)
	r.link = l
	l.group.Go(l.write)
	if every := l.keepaliveInterval(); every > 0 {
		l.group.Go(func() { l.keepalive(every) })
	}
	return l
}

// stop returns when the goroutines of the link have ended.
func (l *link) stop() {
	l.cancel()
	l.group.Wait()
}

// fail aborts the connection for a reason of this side.
func (l *link) fail(err error) {
	l.broken.Store(&err)
	_ = l.conn.Abort() // the reader reports the reason
}

// reason returns why reading ended: the argument of fail, if it was called.
func (l *link) reason(err error) error {
	if broken := l.broken.Load(); broken != nil {
		return lost(*broken)
	}
	return err
}

// writeGrace is how long the reader may continue after a failed write: the last message of the
// runtime explains the end better than the write error.
const writeGrace = time.Second

// write is the writer's goroutine.
func (l *link) write() {
	err := l.c.out.run(l.conn, l.ctx.Done(), func(seq uint64) *arcp.Envelope {
		env := arcp.Frame(arcp.SessionAck, arcp.SessionAckPayload{LastProcessedSeq: seq})
		l.c.stamp(&env)
		return &env
	})
	if err == nil {
		return
	}
	select {
	case <-l.ctx.Done():
	case <-time.After(writeGrace):
		l.fail(err)
	}
}

// defaultKeepalive is the interval for a peer that announces no heartbeats but answers
// pings of the transport.
const defaultKeepalive = 30 * time.Second

// keepaliveInterval returns how often to check the peer; 0 if the peer need not send
// anything, or if its silence would change nothing.
func (l *link) keepaliveInterval() time.Duration {
	s := l.c.Session()
	switch {
	case l.c.reconnect == nil:
		return 0
	case s.Heartbeat > 0 && s.Capabilities.Has(arcp.FeatureHeartbeat):
		return s.Heartbeat
	case l.conn.Info().Pings:
		return defaultKeepalive
	}
	return 0
}

// keepalive aborts the connection when nothing was received for two intervals.
func (l *link) keepalive(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		if silent := time.Since(l.conn.LastSeen()); silent > 2*every {
			l.fail(fmt.Errorf("nothing was heard for %s", silent.Round(time.Second)))
			return
		}
		_ = l.conn.Ping() // the writer reports a connection that cannot be written
	}
}
