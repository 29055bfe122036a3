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

// reader reads and routes the messages of the runtime. Its fields belong to its goroutine. New sets them
// before the goroutine starts.
type reader struct {
	c           *Client
	sequence    sequence
	acked       uint64 // event_seq of the last acknowledgement by AckEvery
	link        *link  // the current connection
	closeReason error  // announced reason of the close by the runtime
}

// run serves the connection, and with Connect the following connections.
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
		_ = l.conn.Abort() // ends a blocked write
		l.stop()
		if err := c.reconnect.run(err); err != nil {
			c.end(err, abort)
			return
		}
	}
}

// read reads and routes messages until the connection ends, and returns the reason.
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
	if _, ok := errors.AsType[*ProtocolError](err); ok {
		return arcp.Envelope{}, err
	}
	if err != nil {
		return arcp.Envelope{}, connectionLost(err)
	}
	if isBinary(conn) {
		return arcp.Envelope{}, &ProtocolError{"read", errUnannounced}
	}
	env, err := arcp.DecodeFromRuntime(frame)
	if err != nil {
		return env, &ProtocolError{"read", err}
	}
	return env, readSidecar(conn, &env)
}

// receive checks the event number, calls OnEnvelope, and routes and acknowledges the envelope. An
// error ends the connection.
func (r *reader) receive(env *arcp.Envelope) error {
	c := r.c
	if isNew, err := r.sequence.check(env); !isNew {
		return err
	}
	if c.opts.OnEnvelope == nil || !c.opts.OnEnvelope(env) {
		r.route(env)
	}
	if n := c.state.ackEvery.Load(); n != 0 && env.EventSeq >= r.acked+n {
		r.acked = env.EventSeq
		c.out.putAck(env.EventSeq)
	}
	return nil
}

// control handles messages to the client itself. It reports whether the message needs no routing.
func (r *reader) control(env *arcp.Envelope) (done bool) {
	switch env.Type {
	case arcp.Ping:
		p, _ := arcp.DecodePayload[arcp.PingPayload](env) // an invalid payload has no nonce
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

// reply answers without waiting. If the send buffer is full the answer is dropped.
func (r *reader) reply(to *arcp.Envelope, t arcp.Type, payload any) {
	env := arcp.Frame(t, payload)
	env.CorrelationID = to.ID
	r.c.stamp(&env)
	if room, _ := r.c.out.tryPut(&env, false); room != nil {
		r.c.opts.Log("dropped an answer: the send buffer is full", "type", t)
	}
}

// ended ends the client after the end of its connection.
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

// link is the current connection. One goroutine writes. With Connect another goroutine checks that
// the peer is alive.
type link struct {
	c      *Client
	conn   transport.Conn
	began  time.Time
	ctx    context.Context // ends with reading
	cancel context.CancelFunc
	group  sync.WaitGroup
	broken atomic.Pointer[error] // reason of an abort by the client
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

// stop waits for the goroutines of the link.
func (l *link) stop() {
	l.cancel()
	l.group.Wait()
}

// fail aborts the connection with a reason.
func (l *link) fail(err error) {
	l.broken.Store(&err)
	_ = l.conn.Abort() // the reader reports the reason
}

// reason returns the reason of the end of reading: the argument of fail, or else err.
func (l *link) reason(err error) error {
	if broken := l.broken.Load(); broken != nil {
		return connectionLost(*broken)
	}
	return err
}

// writeGrace is the time that the reader may continue after a failed write. The last message of the
// runtime explains the end better than the write error.
const writeGrace = time.Second

// write runs on the goroutine of the writer.
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

// defaultKeepalive is the interval for a runtime without heartbeats whose transport answers pings.
const defaultKeepalive = 30 * time.Second

// keepaliveInterval returns the interval of checking the peer; 0 without checks. The checks need Connect,
// and heartbeats or pings of the transport.
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

// keepalive aborts the connection after two intervals without a received frame.
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
			l.fail(fmt.Errorf("no frame received for %s", silent.Round(time.Second)))
			return
		}
		_ = l.conn.Ping() // the writer reports a connection that cannot be written
	}
}
