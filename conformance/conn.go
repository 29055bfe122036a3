package conformance

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Conn is one connection of a check. It sends frames as they are given, and validates
// each received frame before the check sees it.
type Conn struct {
	Session  arcp.SessionID              // empty until accepted
	Accepted arcp.SessionAcceptedPayload // set by Open

	t             *T
	n             int // in the transcript
	tc            transport.Conn
	v             *validator
	rec           *record     // of the session
	stop          func() bool // ends the watch on the check's deadline
	stopKeepalive context.CancelFunc
	gone          bool                    // closed by either side
	catalogue     bool                    // it is told of changes of the catalogue
	version       string                  // stamped into what is sent
	nonce         int                     // of the last ping
	own           map[arcp.MessageID]bool // ids used on this connection
}

func newConn(t *T, tc transport.Conn) *Conn {
	c := &Conn{t: t, n: len(t.conns) + 1, tc: tc, version: arcp.Version, own: map[arcp.MessageID]bool{}}
	c.v = newValidator(t.tr.secrets, func(id string) bool { return t.sent[id] })
	c.rec = c.v.rec
	c.stop = context.AfterFunc(t.ctx, func() { _ = tc.Abort() }) // a read that waits too long ends
	tc.SetReadLimit(64 << 20)
	life, stop := context.WithCancel(t.ctx)
	c.stopKeepalive = stop
	go c.keepalive(life)
	return c
}

// Frame is a frame that was received.
type Frame struct {
	arcp.Envelope
	Text []byte

	members map[string]arcp.Raw // of the envelope
}

func (f *Frame) String() string {
	s := string(f.Type)
	if f.EventSeq > 0 {
		s += " " + strconv.FormatUint(f.EventSeq, 10)
	}
	if code := f.code(); code != "" {
		s += " " + code
	}
	return s
}

// code is the payload's error code, or "".
func (f *Frame) code() string {
	var p struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	if arcp.Unmarshal(f.Payload, &p) != nil || p.Code == "" {
		return ""
	}
	return p.Code + " " + strconv.Quote(p.Message)
}

// payload decodes the payload of a frame.
func payload[P any](t *T, f *Frame) P {
	p, err := arcp.DecodePayload[P](&f.Envelope)
	if err != nil {
		t.Failf("%s: %v", f.Type, err)
	}
	return p
}

// Open sends a valid session.open with the changes of with, and expects
// session.accepted as the next frame.
func (c *Conn) Open(with ...func(*arcp.SessionOpenPayload)) {
	p := c.t.openPayload()
	for _, change := range with {
		change(&p)
	}
	id := c.Send(arcp.SessionOpen, p)
	f := c.Expect("a right session.open is accepted", arcp.SessionAccepted, id)
	c.Accepted = payload[arcp.SessionAcceptedPayload](c.t, f)
}

// envelope returns the envelope of a new message of the session.
func (c *Conn) envelope(typ arcp.Type, p any) arcp.Envelope {
	env := arcp.Frame(typ, p)
	env.ARCP, env.ID, env.Timestamp = c.version, arcp.NewMessageID(), time.Now()
	if typ != arcp.SessionOpen && typ != arcp.SessionResume {
		env.SessionID = c.Session
	}
	return env
}

// Send sends a message with the changes of with, and returns its id.
func (c *Conn) Send(typ arcp.Type, p any, with ...func(*arcp.Envelope)) arcp.MessageID {
	env := c.envelope(typ, p)
	for _, change := range with {
		change(&env)
	}
	c.recordSent(&env)
	c.write(env.Append(nil))
	return env.ID
}

// recordSent tells the validator of a sent message.
func (c *Conn) recordSent(env *arcp.Envelope) {
	if env.Type == arcp.ToolInvoke && c.rec.own[string(env.ID)] && !c.own[env.ID] {
		c.rec.resent[env.ID] = true
	}
	if env.Type == arcp.ToolInvoke && env.JobID != "" {
		c.rec.calls[env.ID] = true
	}
	c.own[env.ID] = true
	c.t.sent[string(env.ID)], c.rec.own[string(env.ID)] = true, true
	if c.v.session != "" {
		return
	}
	switch env.Type {
	case arcp.SessionResume:
		c.v.version = env.ARCP
	case arcp.SessionOpen:
		if p, err := arcp.DecodePayload[arcp.SessionOpenPayload](env); err == nil {
			c.v.version = ""
			if spoken.MatchString(env.ARCP) { // else the version of the answer is open
				c.v.version = env.ARCP
			}
			c.recordOpen(&p)
		}
	}
}

var spoken = regexp.MustCompile(`^1(\.\d+)?$`)

// recordOpen tells the validator what a session.open asks for.
func (c *Conn) recordOpen(p *arcp.SessionOpenPayload) {
	switch {
	case c.rec.session == "":
		c.v.offered = p.Capabilities
	case p.LastEventSeq != nil:
		c.v.at(*p.LastEventSeq)
	}
}

func (c *Conn) write(frame []byte) {
	c.t.tr.add(c.n, Sent, frame)
	err := c.tc.Write(frame)
	if err == nil {
		err = c.tc.Flush()
	}
	if err != nil {
		c.t.tr.add(c.n, Noted, []byte(err.Error()))
	}
	// The reason is better learned from reading, which comes next.
}

// next reads the next frame other than session.ping, which it answers. Without one
// the check fails with the rule why.
func (c *Conn) next(why string) *Frame {
	for {
		f := c.frame(why)
		if f.Type != arcp.SessionPing {
			return f
		}
		c.pong(f)
	}
}

// frame reads the next frame. It leaves out tools.changed unless c.catalogue is set,
// because checks that run at the same time change the catalogue.
func (c *Conn) frame(why string) *Frame {
	for {
		text, err := c.read()
		if err != nil {
			c.t.Failf("%s: %s", why, c.ending(err))
		}
		if f := c.validate(text); c.catalogue || !f.changesTools() {
			return f
		}
	}
}

func (f *Frame) changesTools() bool {
	if f.Type != arcp.EventEmit || f.JobID != "" {
		return false
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](&f.Envelope)
	return err == nil && p.Name == "tools.changed"
}

// validate fails the check if the frame breaks a rule of the validator.
func (c *Conn) validate(text []byte) *Frame {
	f, err := c.v.frame(text)
	if err != nil {
		c.t.Failf("the server sent a frame no strict client can take: %v", err)
	}
	if c.v.session != "" {
		c.Session = c.v.session
	}
	return f
}

func (c *Conn) read() ([]byte, error) {
	text, err := c.tc.Read()
	if err != nil {
		c.gone = true
		c.t.tr.add(c.n, Noted, []byte(c.ending(err)))
		return nil, err
	}
	c.t.tr.add(c.n, Received, text)
	return slices.Clone(text), nil
}

// ending describes how a connection ended, or that the time of the check is over.
func (c *Conn) ending(err error) string {
	if c.t.ctx.Err() != nil {
		return "nothing came before the check ran out of time"
	}
	return err.Error()
}

// event reads the next frame that is no job.heartbeat.
func (c *Conn) event(why string) *Frame {
	for {
		if f := c.next(why); f.Type != arcp.JobHeartbeat {
			return f
		}
	}
}

// lifeInterval is the time between two pings of the transport. Servers close
// connections that are silent for longer.
const lifeInterval = 500 * time.Millisecond

// keepalive pings the server until life ends. A check may not read session.ping for a
// while, for example while it reads another connection.
func (c *Conn) keepalive(life context.Context) {
	tick := time.NewTicker(lifeInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-life.Done():
			return
		}
		if c.tc.Ping() != nil {
			return // the connection has ended: reading says why
		}
	}
}

// pong answers a session.ping.
func (c *Conn) pong(f *Frame) {
	c.Send(arcp.SessionPong, arcp.SessionPongPayload{PingNonce: f.nonce(), ReceivedAt: time.Now().UTC()},
		func(env *arcp.Envelope) { env.CorrelationID = f.ID })
}

// nonce returns the nonce of a session.ping.
func (f *Frame) nonce() string {
	p, _ := arcp.DecodePayload[arcp.SessionPingPayload](&f.Envelope) // a wrong one was reported when it was read
	return p.Nonce
}

// Expect reads the next frame. It fails the check unless the frame has the type and,
// if corr is not empty, is correlated to it.
func (c *Conn) Expect(why string, typ arcp.Type, corr arcp.MessageID) *Frame {
	f := c.event(why)
	c.match(why, f, typ, corr)
	return f
}

func (c *Conn) match(why string, f *Frame, typ arcp.Type, corr arcp.MessageID) {
	switch {
	case f.Type != typ:
		c.t.Failf("%s: got %s, want %s", why, f, typ)
	case corr != "" && f.CorrelationID != corr:
		c.t.Failf("%s: %s is correlated to %q, want %q", why, f, f.CorrelationID, corr)
	}
}

// Await reads until a frame of the type correlated to corr comes; an empty
// corr stands for any. A nack of corr ends the wait.
func (c *Conn) Await(why string, typ arcp.Type, corr arcp.MessageID) *Frame {
	for {
		f := c.next(why)
		switch {
		case f.Type == typ && (corr == "" || f.CorrelationID == corr):
			return f
		case corr != "" && f.CorrelationID == corr && (f.Type == arcp.Nack || f.Type.Terminal()):
			c.t.Failf("%s: got %s, want %s", why, f, typ)
		}
	}
}

// Answer reads until a frame correlated to id comes.
func (c *Conn) Answer(why string, id arcp.MessageID) *Frame {
	for {
		if f := c.next(why); f.CorrelationID == id {
			return f
		}
	}
}

// ExpectNack reads the next frame, which has to be a nack of id with one of the codes.
func (c *Conn) ExpectNack(why string, id arcp.MessageID, codes ...arcp.Code) *Frame {
	f := c.Expect(why, arcp.Nack, id)
	c.t.wantCode(why, f, codes...)
	return f
}

// wantCode fails the check unless the frame has one of the codes.
func (t *T) wantCode(why string, f *Frame, codes ...arcp.Code) {
	if code := payload[arcp.ErrorPayload](t, f).Code; !slices.Contains(codes, code) {
		t.Failf("%s: got %s, want %v", why, f, codes)
	}
}

// Ping sends a ping with a new nonce.
func (c *Conn) Ping() (id arcp.MessageID, nonce string) {
	c.nonce++
	nonce = fmt.Sprintf("conformance-%d-%d", c.n, c.nonce)
	return c.Send(arcp.Ping, arcp.PingPayload{Nonce: nonce}), nonce
}

// ExpectNothing sends a ping and fails the check unless the next frame answers it.
func (c *Conn) ExpectNothing(why string) {
	id, nonce := c.Ping()
	f := c.Expect(why, arcp.Pong, id)
	want(c.t, "a pong carries the ping's nonce", payload[arcp.PongPayload](c.t, f).Nonce, nonce)
}

// Drop ends the connection without a close frame, as a crash or a broken network does.
func (c *Conn) Drop() {
	c.gone = true
	c.stop()
	c.stopKeepalive()
	_ = c.tc.Abort() // it is not needed any more
}

// checkAlive reads what is still on its way at the end of a check, and fails the check
// unless the session answers a ping.
func (c *Conn) checkAlive() {
	if c.gone || c.Session == "" {
		return
	}
	id, nonce := c.Ping()
	f := c.Await("the session still works at the end", arcp.Pong, id)
	want(c.t, "a pong carries the ping's nonce", payload[arcp.PongPayload](c.t, f).Nonce, nonce)
}
