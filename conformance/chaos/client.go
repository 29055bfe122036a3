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
	answerWait   = 20 * time.Second // limit for the answer to a handshake; a starting server is slow
	writeTimeout = 5 * time.Second
	redialDelay  = 100 * time.Millisecond
	maxOpenJobs  = 12
	readAhead    = 16 // received frames in the queue of a client
)

// Principal is the owner of sessions.
type Principal struct{ Name, Token string }

// client is one session and its actions. It belongs to the goroutine that calls run.
type client struct {
	n         int
	principal Principal
	rnd       *rand.Rand
	shared    *sharedJobs
	url       string
	phase     *atomic.Int32 // current phase of the campaign
	report    func(Finding) // called with each finding
	cuts      *atomic.Int64

	stream   *Stream // nil before the first session.open
	others   []Principal
	tokens   []string         // candidates for session.resume; the most likely first
	unsure   bool             // an unanswered session.open may have invalidated tokens
	acks     bool             // the client acknowledges events
	acked    uint64           // last acknowledged event_seq
	sent     int              // number of used ids
	submits  []arcp.MessageID // in the order of creation
	pending  []*command       // sent and not answered
	reported int              // number of findings passed to report

	conn *connection // nil: not connected
}

// command is a sent message. The client repeats it on each connection until it is answered.
type command struct {
	id    arcp.MessageID
	frame []byte
}

// connection is one connection of a client.
type connection struct {
	transport.Conn
	frames <-chan []byte
	sent   map[arcp.MessageID]bool // ids sent on this connection
	end    time.Time               // time when the client drops the connection
	slow   time.Duration           // delay after each frame
}

// The phases of a campaign.
const (
	loading  = iota // connections and the server fail
	draining        // nothing fails; unfinished work ends
	checking        // every session is resumed once more
)

// run connects repeatedly until the phase is done or ctx ends.
func (c *client) run(ctx context.Context, phase int32) {
	for ctx.Err() == nil && !c.done(phase) {
		if !c.connect(ctx) {
			sleep(ctx, time.Duration(c.rnd.Int64N(int64(redialDelay))))
			continue
		}
		c.work(ctx, phase)
		c.disconnect()
	}
}

func (c *client) done(phase int32) bool {
	switch {
	case phase == loading:
		return c.phase.Load() != loading
	case c.stream == nil:
		return true
	}
	return len(c.pending) == 0 && len(c.stream.Pending()) == 0
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// connect connects and attaches the session. It returns false if that fails.
func (c *client) connect(ctx context.Context) bool {
	dialing, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	conn, err := transport.Dial(dialing, c.url, transport.DialOptions{Limits: transport.Limits{WriteTimeout: writeTimeout}})
	if err != nil {
		return false
	}
	frames := make(chan []byte, readAhead)
	go readFrames(conn, frames)
	c.conn = &connection{Conn: conn, frames: frames, sent: make(map[arcp.MessageID]bool), end: time.Now().Add(c.lifetime())}
	if c.rnd.IntN(8) == 0 {
		c.conn.slow = time.Duration(c.rnd.Int64N(int64(20 * time.Millisecond)))
	}
	if c.attach(ctx) {
		return true
	}
	c.disconnect()
	return false
}

// readFrames sends frames to the channel until the connection ends.
func readFrames(conn transport.Conn, frames chan<- []byte) {
	defer close(frames)
	for {
		frame, err := conn.Read()
		if err != nil {
			return
		}
		frames <- bytes.Clone(frame)
	}
}

// lifetime returns how long the client uses a new connection.
func (c *client) lifetime() time.Duration {
	if c.phase.Load() != loading {
		return time.Hour
	}
	return 100*time.Millisecond + time.Duration(c.rnd.Int64N(int64(6*time.Second)))
}

func (c *client) disconnect() {
	_ = c.conn.Abort() // the client drops the connection
	for range c.conn.frames {
		continue // frames in the queue are lost with the connection
	}
	c.conn = nil
	c.reportFindings()
}

// reportFindings passes new findings of the stream to report.
func (c *client) reportFindings() {
	if c.stream == nil {
		return
	}
	for _, f := range c.stream.Findings[c.reported:] {
		c.report(f)
	}
	c.reported = len(c.stream.Findings)
}

// next waits for a frame. ok is false after the wait, at the end of ctx or of the connection.
func (c *client) next(ctx context.Context, wait time.Duration) (frame []byte, ok bool) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case frame, ok = <-c.conn.frames:
		return frame, ok
	case <-t.C:
	case <-ctx.Done():
	}
	return nil, false
}

// work uses the connection until it ends, its lifetime is over, or the phase is done.
func (c *client) work(ctx context.Context, phase int32) {
	if !c.repeat() {
		return
	}
	act := time.NewTimer(c.actDelay())
	defer act.Stop()
	for {
		select {
		case frame, ok := <-c.conn.frames:
			if !ok {
				return
			}
			c.handle(frame)
		case <-act.C:
			if time.Now().After(c.conn.end) {
				c.cuts.Add(1)
				return
			}
			if phase == loading && (!c.act() || c.hangUp()) || c.done(phase) {
				return
			}
			act.Reset(c.actDelay())
		case <-ctx.Done():
			return
		}
	}
}

func (c *client) actDelay() time.Duration {
	if c.phase.Load() != loading {
		return 50 * time.Millisecond
	}
	return 50*time.Millisecond + time.Duration(c.rnd.Int64N(int64(900*time.Millisecond)))
}

// handle processes a frame after the handshake.
func (c *client) handle(frame []byte) {
	env := c.stream.Receive(frame)
	c.reportFindings()
	if env.CorrelationID != "" && c.conn.sent[env.CorrelationID] {
		c.tokens = c.tokens[:1] // the runtime received a message: the previous token is invalid
	}
	c.pending = slices.DeleteFunc(c.pending, func(o *command) bool { return o.id == env.CorrelationID })
	submit := c.stream.Submits[env.CorrelationID]
	if env.Type == arcp.JobAccepted && submit != nil && submit.Key == "" {
		c.shared.add(c.principal.Name, c.stream.Session, env.JobID)
	}
	if c.conn.slow > 0 && c.phase.Load() == loading {
		time.Sleep(c.conn.slow)
	}
}

// id returns a new message id, which is also a marker of the session.
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

// write sends commands in one write. It returns false if the connection is broken.
func (c *client) write(commands ...*command) bool {
	for _, o := range commands {
		if err := c.conn.Write(o.frame); err != nil {
			return false
		}
		if !c.conn.sent[o.id] {
			c.conn.sent[o.id] = true
			c.stream.RecordSent(o.id)
		}
	}
	return c.conn.Flush() == nil
}

// repeat sends the unanswered commands again.
func (c *client) repeat() bool {
	commands := slices.Clone(c.pending)
	c.shuffle(commands)
	return c.write(commands...)
}

// shuffle randomly reorders commands that do not depend on each other.
func (c *client) shuffle(list []*command) {
	if c.rnd.IntN(2) == 0 {
		c.rnd.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	}
}

func (c *client) String() string { return fmt.Sprintf("%s/%02d", c.principal.Name, c.n) }
