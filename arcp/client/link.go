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

// run is the reader's goroutine: it serves one connection, and with Connect then
// the next.
func (c *Client) run() {
	for {
		l := c.startLink()
		err := l.reason(c.read(l.conn))
		if !c.dropped(err, time.Since(l.began)) {
			c.readEnded(err)
			l.stop()
			return
		}
		_ = l.conn.Abort() // so that a write does not wait for it
		l.stop()
		if err := c.comeBack(err); err != nil {
			c.end(err, abort)
			return
		}
	}
}

// link is a connection in use: one goroutine writes, and with Connect another
// watches that the peer is there.
type link struct {
	conn   transport.Conn
	began  time.Time
	ctx    context.Context // ends when nothing more is read
	cancel context.CancelFunc
	group  sync.WaitGroup
	broken atomic.Pointer[error] // why this side gave it up
}

func (c *Client) startLink() *link {
	l := &link{conn: c.conn, began: time.Now()}
	l.ctx, l.cancel = context.WithCancel(c.life)
	c.link = l
	l.group.Go(func() { c.write(l) })
	if every := c.watchInterval(l.conn); every > 0 {
		l.group.Go(func() { l.watch(every) })
	}
	return l
}

// stop returns when the goroutines of the link are gone.
func (l *link) stop() {
	l.cancel()
	l.group.Wait()
}

// giveUp ends the connection for a reason of this side.
func (l *link) giveUp(err error) {
	l.broken.Store(&err)
	_ = l.conn.Abort() // the reader reports why
}

// reason is why reading ended: if this side gave the connection up, why it did.
func (l *link) reason(err error) error {
	if broken := l.broken.Load(); broken != nil {
		return lost(*broken)
	}
	return err
}

// writeGrace is how long the reader may go on after a failed write: what the
// runtime said before it closed is the better reason.
const writeGrace = time.Second

// write is the writer's goroutine.
func (c *Client) write(l *link) {
	err := c.out.run(l.conn, l.ctx.Done(), func(seq uint64) *arcp.Envelope {
		env := arcp.Frame(arcp.SessionAck, arcp.SessionAckPayload{LastProcessedSeq: seq})
		c.stamp(&env)
		return &env
	})
	if err == nil {
		return
	}
	select {
	case <-l.ctx.Done():
	case <-time.After(writeGrace):
		l.giveUp(err)
	}
}

// watchDefault is how often a peer is looked for that announces no heartbeats
// but answers pings of the transport.
const watchDefault = 30 * time.Second

// watchInterval is how often to look for the peer; 0 if it need not say
// anything, or if its silence would change nothing.
func (c *Client) watchInterval(conn transport.Conn) time.Duration {
	s := c.Session()
	switch {
	case c.again == nil:
		return 0
	case s.Heartbeat > 0 && s.Capabilities.Has(arcp.FeatureHeartbeat):
		return s.Heartbeat
	case conn.Info().Pings:
		return watchDefault
	}
	return 0
}

// watch gives the connection up when nothing came for two intervals: a network
// that went away does not say so.
func (l *link) watch(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		if silent := time.Since(l.conn.LastSeen()); silent > 2*every {
			l.giveUp(fmt.Errorf("nothing was heard for %s", silent.Round(time.Second)))
			return
		}
		_ = l.conn.Ping() // a connection that cannot be written is the writer's business
	}
}

// read reads and routes until the connection ends, and returns why.
func (c *Client) read(conn transport.Conn) error {
	var env arcp.Envelope
	for {
		var err error
		if env, err = c.readFrame(conn); err == nil {
			err = c.receive(&env)
		}
		if err != nil {
			return err
		}
	}
}

func (c *Client) readFrame(conn transport.Conn) (arcp.Envelope, error) {
	frame, err := conn.Read()
	if err != nil && c.farewell != nil {
		return arcp.Envelope{}, fmt.Errorf("%w: %w (%w)", ErrConnectionLost, c.farewell, err)
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

// readEnded ends the client with its connection.
func (c *Client) readEnded(err error) {
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
