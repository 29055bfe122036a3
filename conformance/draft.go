package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
	"github.com/arcpd/arcpd/conformance/script"
)

// draftConn is one connection of a check in the draft dialect. It judges each received frame as the
// library of Target.Library decodes it, before the check sees it.
type draftConn struct {
	*link
	checker *strict.Checker
	secrets []string // texts that the server must not send
	session *draftSession
	opened  bool // welcomed on this connection
	numbers numbers
}

// draftSession has the events of a session over all its connections, by event_seq.
type draftSession struct{ events map[uint64]draftEvent }

// draftEvent is an event that was received last under its event_seq.
type draftEvent struct {
	text []byte
	on   *draftConn
}

func newDraftConn(l *link, earlier *draftConn) *draftConn {
	c := &draftConn{link: l, checker: strict.New(l.t.target.library()), secrets: l.t.tr.secrets, session: &draftSession{events: map[uint64]draftEvent{}}}
	if earlier != nil {
		c.session, c.secrets = earlier.session, earlier.secrets
	}
	return c
}

// accepted implements connection.
func (c *draftConn) accepted() bool { return c.opened }

// closing implements connection.
func (c *draftConn) closing() []byte {
	frame, _ := c.t.target.library().Frame(string(arcp.SessionClose), map[string]any{"reason": closeReason}, nil)
	return frame
}

// forbid implements connection.
func (c *draftConn) forbid(secret string) { c.secrets = append(slices.Clone(c.secrets), secret) }

// WriteFrame implements script.Conn.
func (c *draftConn) WriteFrame(frame []byte) error {
	c.checker.Sent(frame)
	if env, err := arcp.DecodeDraftFromRuntime(frame); err == nil {
		c.t.sent[string(env.ID)] = true
	}
	c.write(frame)
	return nil
}

// ReadFrame implements script.Conn. It returns the event inside a subscribe.event.
func (c *draftConn) ReadFrame() ([]byte, error) {
	for {
		text, err := c.read()
		if err != nil {
			return nil, c.readError(err)
		}
		c.validate(text)
		env, err := decodeDraft(text)
		if err != nil {
			continue // the rule json or decodes is about it
		}
		if env.Type == arcp.SubscribeEvent {
			var p arcp.SubscribeEventPayload
			if err := arcp.Unmarshal(env.Payload, &p); err != nil {
				c.t.Failf("subscribe.event: %v", err)
			}
			return p.Event, nil
		}
		return text, nil
	}
}

// decodeDraft decodes a frame, loosely if it is no valid envelope.
func decodeDraft(text []byte) (arcp.Envelope, error) {
	if env, err := arcp.DecodeDraftFromRuntime(text); err == nil {
		return env, nil
	}
	return script.DecodeLoosely(text)
}

// validate records the rules that a frame violates.
func (c *draftConn) validate(text []byte) {
	broken := c.violations(text)
	env, err := decodeDraft(text)
	if err != nil {
		c.t.judge(draftRules, nil, broken)
		return
	}
	c.opened = c.opened || env.Type == script.SessionWelcome
	before, sent := c.session.events[env.EventSeq]
	replayed := sent && before.on != c // a number that is used twice on one connection breaks the rule numbers
	if replayed && !bytes.Equal(before.text, text) {
		broken = append(broken, violation{draftRule("replay"), fmt.Sprintf("event %d differs from what was sent before: %s", env.EventSeq, before.text)})
	}
	if env.EventSeq != 0 {
		c.session.events[env.EventSeq] = draftEvent{text, c}
		if wrong := c.numbers.next(env.EventSeq); wrong != "" {
			broken = append(broken, violation{draftRule("numbers"), wrong})
		}
	}
	c.t.judge(draftRules, &judged{env, replayed}, broken)
}

// violations returns the rules that a frame violates alone or as the library reads it.
func (c *draftConn) violations(text []byte) (broken []violation) {
	for _, secret := range c.secrets {
		if bytes.Contains(text, []byte(secret)) {
			broken = append(broken, violation{draftRule("secrets"), "the frame contains a secret"})
		}
	}
	for _, found := range c.checker.Received(text) {
		broken = append(broken, violation{draftRule(found.Rule), fmt.Sprintf("the library %s: %v", c.t.target.library(), found)})
	}
	if _, err := arcp.DecodeDraftFromRuntime(text); err != nil {
		broken = append(broken, violation{draftRule("decodes"), err.Error()})
	}
	return broken
}

// checkAlive implements connection.
func (c *draftConn) checkAlive() {
	barrier := c.t.server.draftBarrier()
	if c.gone || !c.opened || barrier == script.ByTime {
		return
	}
	const nonce = "conformance-end"
	frame, _ := c.t.target.library().Frame(string(arcp.SessionPing), map[string]any{"nonce": nonce, "sent_at": "2026-01-01T00:00:00Z"}, nil)
	c.write(frame)
	for {
		text, err := c.ReadFrame()
		if err != nil {
			c.t.Failf("%s: %v", "the session still works at the end", err)
		}
		env, _ := decodeDraft(text) // ReadFrame has decoded it
		if env.Type == arcp.SessionPong && (barrier == script.ByOrder || pongNonce(&env) == nonce) {
			return
		}
	}
}

// draftHost implements script.Host for a target that is checked in the draft dialect.
type draftHost struct{ host }

// Dialect implements script.Host.
func (h draftHost) Dialect(role string) *script.Dialect {
	if role == roleRFC {
		return h.host.Dialect(role)
	}
	lib := h.t.target.library()
	members := map[string]script.Value{}
	for name, v := range lib.Members() {
		members[name] = value(v)
	}
	return script.Draft(lib.NewID, members).With(h.t.server.draftBarrier())
}

// draftBarrier returns the barrier of the draft dialect, where a pong has no correlation_id.
func (s *server) draftBarrier() script.Barrier { return max(s.barrier, script.ByNonce) }

// ReadFrameSoon implements script.Waiter.
func (c *draftConn) ReadFrameSoon() ([]byte, error) {
	text, err := c.readSoon(c.t.server.wait())
	if err != nil {
		return nil, c.readError(err)
	}
	if text == nil {
		return nil, nil
	}
	c.validate(text)
	return text, nil
}

// probePing chooses the barrier.
func (c *draftConn) probePing(s *server) {
	const nonce = "conformance-probe"
	c.send(arcp.SessionPing, map[string]any{"nonce": nonce, "sent_at": "2026-01-01T00:00:00Z"})
	answered, repeats := false, false
	for end := time.Now().Add(probeWait); !answered; {
		text, err := c.readSoon(time.Until(end))
		if err != nil || text == nil {
			break
		}
		env, err := decodeDraft(text)
		answered = err == nil && env.Type == arcp.SessionPong
		repeats = answered && pongNonce(&env) == nonce
	}
	s.saw("session.ping is answered by session.pong", answered)
	s.saw("a session.pong repeats the nonce", repeats)
	switch {
	case repeats:
		s.barrier = script.ByNonce
	case answered:
		s.barrier = script.ByOrder
	default:
		s.barrier = script.ByTime
		s.habits = append(s.habits, "the checks know that nothing comes by waiting "+s.wait().String())
	}
}

// pongNonce returns the nonce of a session.pong.
func pongNonce(env *arcp.Envelope) string {
	var pong struct {
		Nonce string `json:"ping_nonce"`
	}
	_ = arcp.Unmarshal(env.Payload, &pong) // any other payload has no nonce
	return pong.Nonce
}

// roleRFC is the role of a connection in the RFC's dialect.
const roleRFC = "rfc"

// Dial implements script.Host.
func (h draftHost) Dial(role string, earlier script.Conn) (script.Conn, error) {
	if earlier, ok := earlier.(*draftConn); ok {
		return h.t.DialDraft(earlier), nil
	}
	switch {
	case earlier != nil || role == roleRFC:
		return h.host.Dial("", earlier)
	case role == "socket":
		s, err := h.t.target.dialSocket(h.t.ctx)
		if err != nil {
			h.t.Failf("connect to the server: %v", err)
		}
		c := newDraftConn(newLink(h.t, s), nil)
		h.t.conns = append(h.t.conns, c)
		return c, nil
	}
	return h.t.DialDraft(nil), nil
}

// Open implements script.Host.
func (h draftHost) Open(role string) (script.Value, error) {
	token := h.t.target.Token
	switch role {
	case roleRFC:
		return h.host.Open("")
	case "", "socket":
	case "other":
		token = h.t.target.OtherToken
	case "observer":
		token = h.t.target.ObserverToken
	default:
		return nil, errors.New("there is no role " + role)
	}
	return value(h.t.target.library().Hello(token)), nil
}

// Var implements script.Host.
func (h draftHost) Var(name string) (script.Value, bool) {
	switch name {
	case "opening_rfc":
		return value(h.t.openPayload()), true
	case "opening":
		v, _ := h.Open("") // the role is known
		return v, true
	case "opening_other":
		v, _ := h.Open("other") // the role is known
		return v, true
	case "library":
		return value(h.t.target.library()), true
	case "inventory":
		return value(h.t.server.agents), true
	}
	return h.host.Var(name)
}

// Func implements script.Host.
func (h draftHost) Func(name string) func([]script.Value) (script.Value, error) {
	if name != "resuming" {
		return h.host.Func(name)
	}
	// resuming(HELLO, SESSION, TOKEN, SEQ) adds what resumes a session.
	return func(args []script.Value) (script.Value, error) {
		var hello map[string]any
		var seq uint64
		if len(args) != 4 {
			return nil, errors.New("resuming has 4 arguments")
		}
		if err := errors.Join(arcp.Unmarshal(args[0], &hello), arcp.Unmarshal(args[3], &seq)); err != nil {
			return nil, err
		}
		maps.Copy(hello, h.t.target.library().Resume(text(args[1]), text(args[2]), seq))
		return value(hello), nil
	}
}

// probeDraft opens a session with all features and reads the agents from the welcome.
func probeDraft(t *checkRun, s *server) {
	s.tools = map[string]bool{}
	c := t.DialDraft(nil)
	frame, _ := t.target.library().Frame(string(script.SessionHello), t.target.library().Hello(t.target.Token), nil)
	if err := c.WriteFrame(frame); err != nil {
		t.Failf("session.hello: %v", err)
	}
	text, err := c.ReadFrame()
	if err != nil {
		t.Failf("session.hello with a valid token is answered: %v", err)
	}
	env, err := decodeDraft(text)
	if err != nil || env.Type != script.SessionWelcome {
		s.refused = refusal(&received{Envelope: env})
		t.Failf("session.hello with a valid token is answered by session.welcome: got %s", text)
	}
	var welcome struct {
		Runtime struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"runtime"`
		Capabilities struct {
			Features []arcp.Feature `json:"features"`
			Agents   []struct {
				Name string `json:"name"`
			} `json:"agents"`
		} `json:"capabilities"`
	}
	if err := arcp.Unmarshal(env.Payload, &welcome); err != nil {
		t.Failf("session.welcome: %v", err)
	}
	s.accepted.Runtime = arcp.RuntimeInfo{Kind: welcome.Runtime.Name, Version: welcome.Runtime.Version}
	s.accepted.Capabilities.Flags = map[arcp.Feature]bool{}
	for _, f := range welcome.Capabilities.Features {
		s.accepted.Capabilities.Flags[f] = true
	}
	for _, a := range welcome.Capabilities.Agents {
		s.tools[a.Name] = true
		s.agents = append(s.agents, a.Name)
	}
	c.probePing(s)
	closeSession(c)
}
