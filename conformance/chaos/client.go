package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Bounds of a client.
const (
	answerWait   = 20 * time.Second // for the answer of a handshake: a server that starts may take a while
	writeTimeout = 5 * time.Second
	redial       = 100 * time.Millisecond
	maxOpenJobs  = 12
	readAhead    = 16 // frames read before the client looks at them
)

// Principal is the owner of sessions.
type Principal struct{ Name, Token string }

// client is one session and its actions. The goroutine that calls run owns it.
type client struct {
	n         int
	principal Principal
	rnd       *rand.Rand
	board     *board
	url       string
	phase     *atomic.Int32 // of the campaign
	found     func(Finding) // called with each finding
	cuts      *atomic.Int64

	stream   *Stream // nil: not opened yet
	others   []Principal
	tokens   []string // that may resume the session; the likeliest first
	doubt    bool     // a session.open was not answered: it may have used them up
	acks     bool
	acked    uint64
	sent     int              // ids used up
	submits  []arcp.MessageID // in the order in which they were made
	open     []*command       // sent, and not answered
	reported int              // findings passed on

	visit *visit // the connection; nil: none
}

// command is a command of which the answer is still to come. It is sent again on
// every connection until then.
type command struct {
	id    arcp.MessageID
	frame []byte
}

// visit is one connection.
type visit struct {
	conn   transport.Conn
	frames <-chan []byte
	sent   map[arcp.MessageID]bool // on this connection
	end    time.Time               // when the client abandons it
	slow   time.Duration           // delay of each frame
}

// The phases of a campaign.
const (
	loading  = iota // everything breaks
	settling        // nothing breaks; begun work ends
	checking        // every session is resumed a last time
)

// run makes connections until the phase has ended and the session has received everything it
// waits for, or the context ends.
func (c *client) run(ctx context.Context, phase int32) {
	for ctx.Err() == nil && !c.done(phase) {
		if !c.connect(ctx) {
			sleep(ctx, time.Duration(c.rnd.Int64N(int64(redial))))
			continue
		}
		c.stay(ctx, phase)
		c.leave()
	}
}

func (c *client) done(phase int32) bool {
	switch {
	case phase == loading:
		return c.phase.Load() != loading
	case c.stream == nil:
		return true
	}
	return len(c.open) == 0 && len(c.stream.Open()) == 0
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// connect makes a connection and attaches the session to it; false: it did not
// come to that.
func (c *client) connect(ctx context.Context) bool {
	dialing, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	conn, err := transport.Dial(dialing, c.url, transport.DialOptions{Limits: transport.Limits{WriteTimeout: writeTimeout}})
	if err != nil {
		return false
	}
	frames := make(chan []byte, readAhead)
	go read(conn, frames)
	c.visit = &visit{conn: conn, frames: frames, sent: make(map[arcp.MessageID]bool), end: time.Now().Add(c.patience())}
	if c.rnd.IntN(8) == 0 {
		c.visit.slow = time.Duration(c.rnd.Int64N(int64(20 * time.Millisecond)))
	}
	if c.attach(ctx) {
		return true
	}
	c.leave()
	return false
}

// read passes frames on until the connection ends.
func read(conn transport.Conn, frames chan<- []byte) {
	defer close(frames)
	for {
		frame, err := conn.Read()
		if err != nil {
			return
		}
		frames <- bytes.Clone(frame)
	}
}

// patience is how long a client keeps a connection.
func (c *client) patience() time.Duration {
	if c.phase.Load() != loading {
		return time.Hour
	}
	return 100*time.Millisecond + time.Duration(c.rnd.Int64N(int64(6*time.Second)))
}

func (c *client) leave() {
	_ = c.visit.conn.Abort() // it is abandoned
	for range c.visit.frames {
		continue // frames read before are lost with the connection
	}
	c.visit = nil
	c.report()
}

// report passes findings on.
func (c *client) report() {
	if c.stream == nil {
		return
	}
	for _, f := range c.stream.Findings[c.reported:] {
		c.found(f)
	}
	c.reported = len(c.stream.Findings)
}

// next waits for a frame; ok is false when there is none in time.
func (c *client) next(ctx context.Context, wait time.Duration) (frame []byte, ok bool) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case frame, ok = <-c.visit.frames:
		return frame, ok
	case <-t.C:
	case <-ctx.Done():
	}
	return nil, false
}

// stay uses the connection until it breaks, its patience is over, or the session has received
// everything.
func (c *client) stay(ctx context.Context, phase int32) {
	if !c.repeat() {
		return
	}
	act := time.NewTimer(c.thinking())
	defer act.Stop()
	for {
		select {
		case frame, ok := <-c.visit.frames:
			if !ok {
				return
			}
			c.take(frame)
		case <-act.C:
			if time.Now().After(c.visit.end) {
				c.cuts.Add(1)
				return
			}
			if phase == loading && (!c.act() || c.hangsUp()) || c.done(phase) {
				return
			}
			act.Reset(c.thinking())
		case <-ctx.Done():
			return
		}
	}
}

func (c *client) thinking() time.Duration {
	if c.phase.Load() != loading {
		return 50 * time.Millisecond
	}
	return 50*time.Millisecond + time.Duration(c.rnd.Int64N(int64(900*time.Millisecond)))
}

// take handles a frame that follows the handshake.
func (c *client) take(frame []byte) {
	env := c.stream.See(frame)
	c.report()
	if env.CorrelationID != "" && c.visit.sent[env.CorrelationID] {
		c.tokens = c.tokens[:1] // the runtime has heard something: the token before is used up
	}
	c.open = slices.DeleteFunc(c.open, func(o *command) bool { return o.id == env.CorrelationID })
	submit := c.stream.Submits[env.CorrelationID]
	if env.Type == arcp.JobAccepted && submit != nil && submit.Key == "" {
		c.board.post(c.principal.Name, c.stream.Session, env.JobID)
	}
	if c.visit.slow > 0 && c.phase.Load() == loading {
		time.Sleep(c.visit.slow)
	}
}

// id returns a new message id that contains the session's mark.
func (c *client) id() arcp.MessageID {
	c.sent++
	return arcp.MessageID(arcp.MessagePrefix + marker(c.principal.Name, c.n, c.sent))
}

// frame encodes a message.
func (c *client) frame(id arcp.MessageID, t arcp.Type, payload any, change func(*arcp.Envelope)) []byte {
	env := arcp.Frame(t, payload)
	env.ARCP, env.ID, env.Timestamp = arcp.Version, id, time.Now()
	if change != nil {
		change(&env)
	}
	return env.Append(nil)
}

// write sends frames at once; false: the connection is broken.
func (c *client) write(commands ...*command) bool {
	for _, o := range commands {
		if err := c.visit.conn.Write(o.frame); err != nil {
			return false
		}
		if !c.visit.sent[o.id] {
			c.visit.sent[o.id] = true
			c.stream.Send(o.id)
		}
	}
	return c.visit.conn.Flush() == nil
}

// repeat sends unanswered commands again.
func (c *client) repeat() bool {
	again := slices.Clone(c.open)
	c.shuffle(again)
	return c.write(again...)
}

// shuffle reorders commands, which do not depend on each other.
func (c *client) shuffle(list []*command) {
	if c.rnd.IntN(2) == 0 {
		c.rnd.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	}
}

func (c *client) String() string { return fmt.Sprintf("%s/%02d", c.principal.Name, c.n) }
