package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Conn is one raw connection of a check. Whatever is sent goes out as it is;
// whatever comes in is noted and validated before the check sees it.
type Conn struct {
	Session  arcp.SessionID              // empty until accepted
	Accepted arcp.SessionAcceptedPayload // set by Open

	t         *T
	n         int // in the transcript
	tc        transport.Conn
	v         *validator
	rec       *record                 // of the session
	stop      func() bool             // ends the watch on the check's deadline
	hush      context.CancelFunc      // ends the signs of life
	gone      bool                    // closed by either side
	catalogue bool                    // it is told of changes of the catalogue
	version   string                  // stamped into what is sent
	nonce     int                     // of the last ping
	own       map[arcp.MessageID]bool // ids used on this connection
}

func newConn(t *T, tc transport.Conn) *Conn {
	c := &Conn{t: t, n: len(t.conns) + 1, tc: tc, version: arcp.Version, own: map[arcp.MessageID]bool{}}
	c.v = newValidator(t.tr.secrets, func(id string) bool { return t.sent[id] })
	c.rec = c.v.rec
	c.stop = context.AfterFunc(t.ctx, func() { _ = tc.Abort() }) // a read that waits too long ends
	tc.SetReadLimit(64 << 20)
	life, hush := context.WithCancel(t.ctx)
	c.hush = hush
	go c.showLife(life)
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

// Open sends a session.open that is right but for what with changes, and
// expects session.accepted as the first answer.
func (c *Conn) Open(with ...func(*arcp.SessionOpenPayload)) {
	p := c.t.openPayload()
	for _, change := range with {
		change(&p)
	}
	id := c.Send(arcp.SessionOpen, p)
	f := c.Expect("a right session.open is accepted", arcp.SessionAccepted, id)
	c.Accepted = payload[arcp.SessionAcceptedPayload](c.t, f)
}

// envelope is a message of this session about to be sent.
func (c *Conn) envelope(typ arcp.Type, p any) arcp.Envelope {
	env := arcp.Frame(typ, p)
	env.ARCP, env.ID, env.Timestamp = c.version, arcp.NewMessageID(), time.Now()
	if typ != arcp.SessionOpen && typ != arcp.SessionResume {
		env.SessionID = c.Session
	}
	return env
}

// Send sends a message and returns its id. The envelope is right but for what
// with changes.
func (c *Conn) Send(typ arcp.Type, p any, with ...func(*arcp.Envelope)) arcp.MessageID {
	env := c.envelope(typ, p)
	for _, change := range with {
		change(&env)
	}
	c.note(&env)
	c.write(env.Append(nil))
	return env.ID
}

// note tells the validators what is sent.
func (c *Conn) note(env *arcp.Envelope) {
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
			c.opens(&p)
		}
	}
}

var spoken = regexp.MustCompile(`^1(\.\d+)?$`)

// opens tells the validator what a session.open asks for.
func (c *Conn) opens(p *arcp.SessionOpenPayload) {
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

// next reads the next frame other than session.ping, which it answers; why is the
// rule by which there must be one.
func (c *Conn) next(why string) *Frame {
	for {
		f := c.frame(why)
		if f.Type != arcp.SessionPing {
			return f
		}
		c.pong(f)
	}
}

// frame reads the next frame. What is said of tools that come and go is left out
// unless the check is about that: they do in checks beside this one.
func (c *Conn) frame(why string) *Frame {
	for {
		text, err := c.read()
		if err != nil {
			c.t.Failf("%s: %s", why, c.ending(err))
		}
		if f := c.judge(text); c.catalogue || !f.changesTools() {
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

// judge puts a frame before the validator.
func (c *Conn) judge(text []byte) *Frame {
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

// ending says how a connection ended, or that nothing came in time.
func (c *Conn) ending(err error) string {
	if c.t.ctx.Err() != nil {
		return "nothing came before the check ran out of time"
	}
	return err.Error()
}

// event reads the next frame that is not a job's heartbeat: these may come at
// any time.
func (c *Conn) event(why string) *Frame {
	for {
		if f := c.next(why); f.Type != arcp.JobHeartbeat {
			return f
		}
	}
}

// lifeInterval is shorter than what servers take for silence.
const lifeInterval = 500 * time.Millisecond

// showLife says that the peer is there, until it is to be silent: what asks for it
// may be far behind in what is still to be read and judged, and a check may wait for
// something on another connection.
func (c *Conn) showLife(life context.Context) {
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

// pong answers a session.ping: a server may end the connection of a peer that
// does not.
func (c *Conn) pong(f *Frame) {
	c.Send(arcp.SessionPong, arcp.SessionPongPayload{PingNonce: f.nonce(), ReceivedAt: time.Now().UTC()},
		func(env *arcp.Envelope) { env.CorrelationID = f.ID })
}

// nonce is what a session.pong repeats.
func (f *Frame) nonce() string {
	p, _ := arcp.DecodePayload[arcp.SessionPingPayload](&f.Envelope) // a wrong one was reported when it was read
	return p.Nonce
}

// Expect wants the very next frame to be of the type and, unless corr is
// empty, correlated to it.
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

// ExpectNack wants the next frame to refuse id with one of the codes.
func (c *Conn) ExpectNack(why string, id arcp.MessageID, codes ...arcp.Code) *Frame {
	f := c.Expect(why, arcp.Nack, id)
	c.t.wantCode(why, f, codes...)
	return f
}

// wantCode wants the frame to carry one of the codes.
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

// ExpectNothing wants nothing to have come from what was sent before: the next
// frame answers a ping that is sent now.
func (c *Conn) ExpectNothing(why string) {
	id, nonce := c.Ping()
	f := c.Expect(why, arcp.Pong, id)
	want(c.t, "a pong carries the ping's nonce", payload[arcp.PongPayload](c.t, f).Nonce, nonce)
}

// ExpectClosed wants the server to close the connection with one of the codes
// and to send nothing more before.
func (c *Conn) ExpectClosed(why string, codes ...transport.CloseCode) {
	text, err := c.read()
	if err == nil {
		c.t.Failf("%s: got a frame: %s", why, c.t.tr.show(text))
	}
	c.closedWith(why, err, codes...)
}

// closedWith wants err to be the server's closing the connection with one of
// the codes. On a unix socket there are no codes: its end is enough.
func (c *Conn) closedWith(why string, err error, codes ...transport.CloseCode) {
	if errors.Is(err, io.EOF) && c.t.target.local() {
		return
	}
	var closed *transport.Error
	if !errors.As(err, &closed) || c.t.ctx.Err() != nil {
		c.t.Failf("%s: %s", why, c.ending(err))
	}
	if len(codes) > 0 && !slices.Contains(codes, closed.Code) {
		c.t.Failf("%s: closed with %d, want %v", why, closed.Code, codes)
	}
}

// Drop ends the connection without a word, as a crash or a broken network
// does.
func (c *Conn) Drop() {
	c.gone = true
	c.stop()
	c.hush()
	_ = c.tc.Abort() // it is not needed any more
}

// settle wants a session to work at the end of a check, and gives the
// validator what is still on its way.
func (c *Conn) settle() {
	if c.gone || c.Session == "" {
		return
	}
	id, nonce := c.Ping()
	f := c.Await("the session still works at the end", arcp.Pong, id)
	want(c.t, "a pong carries the ping's nonce", payload[arcp.PongPayload](c.t, f).Nonce, nonce)
}
