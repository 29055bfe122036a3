package script

import (
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Barrier is how a script recognizes the answer to its ping. All frames that a server has sent
// before come before the answer.
type Barrier int

// The barriers, from the strongest.
const (
	ByCorrelation Barrier = iota // the pong has the correlation_id of the ping
	ByNonce                      // the pong repeats the nonce
	ByOrder                      // each pong answers the oldest ping
	ByTime                       // nothing answers a ping: no frame comes within the time of Waiter
)

// Waiter is a Conn for the barrier ByTime.
type Waiter interface {
	// ReadFrameSoon reads a frame that comes within a short time; nil if none comes.
	ReadFrameSoon() ([]byte, error)
}

// With returns the dialect with another barrier.
func (d *Dialect) With(b Barrier) *Dialect {
	other := *d
	other.barrier = b
	return &other
}

// errSilent is the error of a read that ends at the barrier ByTime.
var errSilent = errors.New("no frame comes")

// ping is a ping that no step asks for.
type ping struct{ id, nonce string }

// upToBarrier passes to take each frame that comes before the answer to a ping.
func (r *run) upToBarrier(c *conn, take func(f *frame) error) error {
	p, err := r.ping(c)
	if err != nil {
		return err
	}
	for {
		f, err := r.event(c)
		switch {
		case errors.Is(err, errSilent):
			c.soon = false
			return nil
		case err != nil:
			return err
		case c.answers(p, f):
			return nil
		}
		if err := take(f); err != nil {
			return err
		}
	}
}

// ping sends a ping. With the barrier ByTime it sends nothing.
func (r *run) ping(c *conn) (p ping, err error) {
	if c.dialect.barrier == ByTime {
		c.soon = true
		return p, nil
	}
	sent := c.sent
	r.barriers++
	p.nonce = fmt.Sprintf("script-%d", r.barriers)
	payload := map[string]Value{"nonce": text(p.nonce)}
	if c.dialect.ping == arcp.SessionPing {
		payload["sent_at"] = text(time.Now().UTC().Format(time.RFC3339Nano))
	}
	err = r.send(c, text(string(c.dialect.ping)), join(payload), nil)
	p.id, c.sent = c.sent, sent
	return p, err
}

// answers reports whether a frame answers the ping.
func (c *conn) answers(p ping, f *frame) bool {
	switch {
	case f.Type != c.dialect.pong:
		return false
	case c.dialect.barrier == ByCorrelation:
		return string(f.CorrelationID) == p.id
	case c.dialect.barrier == ByNonce && c.dialect.pong == arcp.SessionPong:
		return plain(members(f.Payload)["ping_nonce"]) == p.nonce
	case c.dialect.barrier == ByNonce:
		return plain(members(f.Payload)["nonce"]) == p.nonce
	}
	return true
}

// readFrame reads the next frame; errSilent at the barrier ByTime.
func (c *conn) readFrame() ([]byte, error) {
	if !c.soon {
		return c.ReadFrame()
	}
	data, err := c.Conn.(Waiter).ReadFrameSoon()
	if data == nil && err == nil {
		return nil, errSilent
	}
	return data, err
}
