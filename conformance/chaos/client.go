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
	library   *library
	shared    *sharedJobs
	url       string
	phase     *atomic.Int32 // current phase of the campaign
	report    func(Finding) // called with each finding
	cuts      *atomic.Int64

	stream    *Stream // nil before the first session.open
	others    []Principal
	tokens    []string         // candidates for session.resume; the most likely first
	unsure    bool             // an unanswered session.open may have invalidated tokens
	workflows bool             // the server has the workflow
	acks      bool             // the client acknowledges events
	acked     uint64           // last acknowledged event_seq
	sent      int              // number of used ids
	submits   []arcp.MessageID // in the order of creation
	pending   []*arcp.Envelope // sent and not answered; repeated on each connection
	reported  int              // number of findings passed to report

	conn *connection // nil: not connected
}

// connection is one connection of a client.
type connection struct {
	transport.Conn
	codec  codec
	frames <-chan []byte
	sent   map[arcp.MessageID][]byte // frames of the commands sent on this connection
	end    time.Time                 // time when the client drops the connection
	slow   time.Duration             // delay after each frame
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
	c.conn = &connection{Conn: conn, codec: c.library.newCodec(c.principal.Token, c.rnd.IntN(10) == 0), frames: frames,
		sent: make(map[arcp.MessageID][]byte), end: time.Now().Add(c.lifetime())}
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

// next waits for a message. ok is false after the wait, at the end of ctx or of the connection.
func (c *client) next(ctx context.Context, wait time.Duration) (m *message, ok bool) {
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case frame, open := <-c.conn.frames:
			if m = c.decode(frame); m != nil || !open {
				return m, open
			}
		case <-t.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// decode decodes a frame and reports its problems. It returns nil for a frame without an equivalent
// message, and for the nil frame of a closed channel.
func (c *client) decode(frame []byte) *message {
	if frame == nil {
		return nil
	}
	m, problems := c.conn.codec.decode(frame)
	for _, f := range problems {
		f.Observer = c.String()
		c.report(f)
	}
	return m
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
			if m := c.decode(frame); m != nil {
				c.handle(m)
			}
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

// handle processes a message after the handshake.
func (c *client) handle(env *message) {
	c.stream.Receive(env.frame, &env.Envelope)
	c.reportFindings()
	if env.CorrelationID != "" && c.conn.sent[env.CorrelationID] != nil {
		c.tokens = c.tokens[:1] // the runtime received a message: the previous token is invalid
	}
	if env.EventSeq == 0 || c.library.dialect() == arcp.DialectRFC { // some libraries find the submit of an event, which job.accepted still answers
		c.pending = slices.DeleteFunc(c.pending, func(o *arcp.Envelope) bool { return o.ID == env.CorrelationID })
	}
	submit := c.stream.Submits[env.CorrelationID]
	if env.Type == arcp.JobAccepted && submit != nil && submit.Key == "" {
		c.shared.add(c.principal.Name, c.stream.Session, env.JobID)
	}
	if env.Type == arcp.SessionPing {
		p, _ := arcp.DecodePayload[arcp.SessionPingPayload](&env.Envelope) // an invalid payload has no nonce
		// A broken connection also ends the reading.
		_ = c.write(c.compose(arcp.SessionPong, arcp.SessionPongPayload{PingNonce: p.Nonce, ReceivedAt: time.Now()})) // the next read reports a broken connection
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

// compose returns a new message.
func (c *client) compose(t arcp.Type, payload any) *arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.ARCP, env.ID, env.Timestamp = arcp.Version, c.id(), time.Now()
	return &env
}

// write sends commands in one write. It returns false if the connection is broken.
func (c *client) write(commands ...*arcp.Envelope) bool {
	for _, o := range commands {
		frame, again := c.conn.sent[o.ID]
		if !again {
			frame = c.conn.encode(o)
		}
		if err := c.conn.Write(frame); err != nil {
			return false
		}
		if !again {
			c.conn.sent[o.ID] = frame
			c.stream.RecordSent(o.ID)
		}
	}
	return c.conn.Flush() == nil
}

// encode encodes a message, which the abilities of the library must include.
func (c *connection) encode(env *arcp.Envelope) []byte {
	frame, err := c.codec.encode(env)
	if err != nil {
		panic("chaos: " + err.Error())
	}
	return frame
}

// repeat sends the unanswered commands again.
func (c *client) repeat() bool {
	commands := slices.Clone(c.pending)
	c.shuffle(commands)
	return c.write(commands...)
}

// shuffle randomly reorders commands that do not depend on each other.
func (c *client) shuffle(list []*arcp.Envelope) {
	if c.rnd.IntN(2) == 0 {
		c.rnd.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	}
}

func (c *client) String() string { return fmt.Sprintf("%s/%02d", c.principal.Name, c.n) }
