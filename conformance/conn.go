package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// checkConn is one connection of a check in the RFC's dialect. It validates each received frame
// before the check sees it.
type checkConn struct {
	*link
	Session  arcp.SessionID              // empty until session.accepted
	Accepted arcp.SessionAcceptedPayload // set by Open

	v       *validator
	rec     *record                 // state of the session
	catalog bool                    // tools.changed is passed to the check
	version string                  // member arcp of sent messages
	nonce   int                     // number of the last ping
	numbers bool                    // a frame with an event_seq was received
	own     map[arcp.MessageID]bool // ids of messages sent on this connection
}

func newConn(l *link) *checkConn {
	c := &checkConn{link: l, version: arcp.Version, own: map[arcp.MessageID]bool{}}
	c.v = newValidator(l.t.tr.secrets, func(id string) bool { return l.t.sent[id] })
	c.rec = c.v.rec
	return c
}

// accepted implements connection.
func (c *checkConn) accepted() bool { return c.Session != "" }

// closing implements connection. A server that does not know forget ends the session or keeps it
// until its resume window ends.
func (c *checkConn) closing() []byte {
	env := c.envelope(arcp.SessionClose, arcp.SessionClosePayload{Reason: closeReason, Forget: true})
	return env.Append(nil)
}

// forbid implements connection.
func (c *checkConn) forbid(secret string) { c.v.secrets = append(slices.Clone(c.v.secrets), secret) }

// received is a received frame.
type received struct {
	arcp.Envelope
	Text []byte

	members  map[string]arcp.Raw // members of the envelope
	strict   error               // why the frame does not decode strictly
	on       *validator          // of the connection
	repeated bool                // an event with its event_seq was received on an earlier connection
}

// accepted returns the payload of session.accepted. Members of another type are left out.
func (r *received) accepted() arcp.SessionAcceptedPayload {
	if p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&r.Envelope); err == nil && p.SessionID != "" {
		return p
	}
	var have map[string]arcp.Raw
	_ = arcp.Unmarshal(r.Payload, &have) // a payload is an object
	p := arcp.SessionAcceptedPayload{SessionID: r.SessionID}
	for name, to := range map[string]any{"session_id": &p.SessionID, "runtime": &p.Runtime, "capabilities": &p.Capabilities, "resume_token": &p.ResumeToken} {
		if have[name] != nil {
			_ = arcp.Unmarshal(have[name], to) // a member of another type is left out
		}
	}
	return p
}

func (r *received) String() string {
	s := string(r.Type)
	if r.EventSeq > 0 {
		s += " " + strconv.FormatUint(r.EventSeq, 10)
	}
	if code := r.code(); code != "" {
		s += " " + code
	}
	return s
}

// code returns the error code and message in the payload, or "".
func (r *received) code() string {
	var p struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	if arcp.Unmarshal(r.Payload, &p) != nil || p.Code == "" {
		return ""
	}
	return p.Code + " " + strconv.Quote(p.Message)
}

// payload decodes the payload of a frame.
func payload[P any](t *checkRun, f *received) P {
	p, err := arcp.DecodePayload[P](&f.Envelope)
	if err != nil {
		t.Failf("%s: %v", "the payload of "+f.Type+" has the members of its type", err)
	}
	return p
}

// Open sends a valid session.open after the changes, and expects session.accepted as the next
// frame.
func (c *checkConn) Open(changes ...func(*arcp.SessionOpenPayload)) {
	p := c.t.openPayload()
	for _, change := range changes {
		change(&p)
	}
	c.Send(arcp.SessionOpen, p)
	c.t.opening = len(changes) == 0 // until the session is accepted
	c.Accepted = c.Expect("a valid session.open is accepted", arcp.SessionAccepted, "").accepted()
	c.t.opening = false
}

// envelope returns the envelope of a new message in the session.
func (c *checkConn) envelope(typ arcp.Type, p any) arcp.Envelope {
	env := arcp.Frame(typ, p)
	env.ARCP, env.ID, env.Timestamp = c.version, arcp.NewMessageID(), time.Now()
	if typ != arcp.SessionOpen && typ != arcp.SessionResume {
		env.SessionID = c.Session
	}
	return env
}

// Send sends a message after the changes, and returns its id.
func (c *checkConn) Send(typ arcp.Type, p any, changes ...func(*arcp.Envelope)) arcp.MessageID {
	env := c.envelope(typ, p)
	for _, change := range changes {
		change(&env)
	}
	c.recordSent(&env)
	c.write(env.Append(nil))
	return env.ID
}

// recordSent updates the record and the validator with a message of the client.
func (c *checkConn) recordSent(env *arcp.Envelope) {
	if env.Type == arcp.ToolInvoke && c.rec.own[string(env.ID)] && !c.own[env.ID] {
		c.rec.resent[env.ID] = true
	}
	if env.Type == arcp.ToolInvoke && env.JobID != "" {
		c.rec.calls[env.ID] = true
	}
	if env.Type == arcp.StreamOpen {
		c.rec.streams[env.StreamID] = true
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
			if spoken.MatchString(env.ARCP) { // for any other version the server chooses the version
				c.v.version = env.ARCP
			}
			c.recordOpen(&p)
		}
	}
}

// spoken matches the protocol versions that a server answers with the same version.
var spoken = regexp.MustCompile(`^1(\.\d+)?$`)

// recordOpen updates the validator with the payload of a session.open.
func (c *checkConn) recordOpen(p *arcp.SessionOpenPayload) {
	switch {
	case c.rec.session == "":
		c.v.offered = p.Capabilities
	case p.LastEventSeq != nil:
		c.v.setPosition(*p.LastEventSeq)
	}
}

// next reads the next frame other than session.ping, which it answers. If the connection ends, the
// check fails with the violated rule.
func (c *checkConn) next(rule string) *received {
	for {
		f := c.frame(rule)
		if f.Type != arcp.SessionPing {
			return f
		}
		c.pong(f)
	}
}

// frame reads the next frame. It skips tools.changed unless c.catalog is set, because checks that
// run at the same time change the catalog.
func (c *checkConn) frame(rule string) *received {
	for {
		text, err := c.read()
		if err != nil {
			c.t.Failf("%s: %s", rule, c.ending(err))
		}
		if f := c.validate(text); f != nil && (c.catalog || !f.changesTools()) {
			return f
		}
	}
}

func (r *received) changesTools() bool {
	if r.Type != arcp.EventEmit || r.JobID != "" {
		return false
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](&r.Envelope)
	return err == nil && p.Name == "tools.changed"
}

// validate records the rules that the frame violates. The frame is nil if it has no type.
func (c *checkConn) validate(text []byte) *received {
	f, broken := c.v.frame(text)
	var seen *judged
	if f != nil {
		seen = &judged{f.Envelope, f.repeated}
	}
	c.t.judge(c.v.rules, seen, broken)
	c.numbers = c.numbers || f != nil && f.EventSeq > 0
	if c.v.session != "" {
		c.Session = c.v.session
	}
	return f
}

// event reads the next frame other than job.heartbeat.
func (c *checkConn) event(rule string) *received {
	for {
		if f := c.next(rule); f.Type != arcp.JobHeartbeat {
			return f
		}
	}
}

// pong answers a session.ping.
func (c *checkConn) pong(f *received) {
	c.Send(arcp.SessionPong, arcp.SessionPongPayload{PingNonce: f.nonce(), ReceivedAt: time.Now().UTC()},
		func(env *arcp.Envelope) { env.CorrelationID = f.ID })
}

// nonce returns the nonce of a session.ping.
func (r *received) nonce() string {
	p, _ := arcp.DecodePayload[arcp.SessionPingPayload](&r.Envelope) // validated when received
	return p.Nonce
}

// Expect reads the next frame. It fails the check unless the frame has the type and, if corr is not
// empty, the correlation_id.
func (c *checkConn) Expect(rule string, typ arcp.Type, corr arcp.MessageID) *received {
	f := c.event(rule)
	c.match(rule, f, typ, corr)
	return f
}

func (c *checkConn) match(rule string, f *received, typ arcp.Type, corr arcp.MessageID) {
	switch {
	case f.Type != typ:
		c.t.Failf("%s: got %s, want %s", rule, f, typ)
	case corr != "" && f.CorrelationID != corr:
		c.t.Failf("%s: %s is correlated to %q, want %q", rule, f, f.CorrelationID, corr)
	}
}

// Await reads until a frame with the type and correlation_id arrives. An empty corr matches any
// frame. A nack or final event with the correlation_id fails the check.
func (c *checkConn) Await(rule string, typ arcp.Type, corr arcp.MessageID) *received {
	for {
		f := c.next(rule)
		switch {
		case f.Type == typ && (corr == "" || f.CorrelationID == corr):
			return f
		case corr != "" && f.CorrelationID == corr && (f.Type == arcp.Nack || f.Type.Terminal()):
			c.t.Failf("%s: got %s, want %s", rule, f, typ)
		}
	}
}

// Answer reads until a frame with the correlation_id arrives.
func (c *checkConn) Answer(rule string, id arcp.MessageID) *received {
	for {
		if f := c.next(rule); f.CorrelationID == id {
			return f
		}
	}
}

// ExpectNack expects a nack with the correlation_id and one of the codes as the next frame.
func (c *checkConn) ExpectNack(rule string, id arcp.MessageID, codes ...arcp.Code) *received {
	f := c.Expect(rule, arcp.Nack, id)
	c.t.wantCode(rule, f, codes...)
	return f
}

// wantCode fails the check unless the frame has one of the codes.
func (run *checkRun) wantCode(rule string, f *received, codes ...arcp.Code) {
	if code := payload[arcp.ErrorPayload](run, f).Code; !slices.Contains(codes, code) {
		run.Failf("%s: got %s, want %v", rule, f, codes)
	}
}

// Ping sends a ping with a new nonce.
func (c *checkConn) Ping() (id arcp.MessageID, nonce string) {
	c.nonce++
	nonce = fmt.Sprintf("conformance-%d-%d", c.n, c.nonce)
	return c.Send(arcp.Ping, arcp.PingPayload{Nonce: nonce}), nonce
}

// answers reports whether a frame answers a ping, as far as the server lets a client know.
func (r *received) answers(b script.Barrier, id arcp.MessageID, nonce string) bool {
	switch {
	case r.Type != arcp.Pong:
		return false
	case b == script.ByCorrelation:
		return r.CorrelationID == id
	case b == script.ByNonce:
		return r.text("nonce") == nonce
	}
	return true
}

// ReadFrameSoon implements script.Waiter.
func (c *checkConn) ReadFrameSoon() ([]byte, error) {
	for {
		text, err := c.readSoon(c.t.server.wait())
		if err != nil {
			return nil, c.readError(err)
		}
		if text == nil {
			return nil, nil
		}
		if f := c.validate(text); f != nil && (c.catalog || !f.changesTools()) {
			return text, nil
		}
	}
}

// ExpectNothing fails the check if a frame comes before the answer to a ping.
func (c *checkConn) ExpectNothing(rule string) {
	if c.t.server.barrier == script.ByTime {
		if text, err := c.ReadFrameSoon(); err != nil || text != nil {
			c.t.Failf("%s: got %s, want nothing (%v)", rule, text, err)
		}
		return
	}
	id, nonce := c.Ping()
	if f := c.event(rule); !f.answers(c.t.server.barrier, id, nonce) {
		c.t.Failf("%s: got %s, want the answer to a ping", rule, f)
	}
}

// checkAlive drains the connection at the end of a check and fails the check unless the session
// answers a ping. A server that answers no ping is not asked.
func (c *checkConn) checkAlive() {
	if c.gone || c.Session == "" || c.t.server.barrier == script.ByTime {
		return
	}
	id, nonce := c.Ping()
	for {
		if f := c.next("the session still works at the end"); f.answers(c.t.server.barrier, id, nonce) {
			return
		}
	}
}
