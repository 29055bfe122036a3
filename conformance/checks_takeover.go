package conformance

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

func takeoverRace(_ context.Context, t *checkRun) {
	c := t.Open()
	c.Drop()
	token := c.rec.token
	var racers []*checkConn
	for range 8 {
		d := c.redial()
		d.Send(arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: token})
		racers = append(racers, d)
	}
	served := 0
	for _, d := range slices.DeleteFunc(racers, (*checkConn).superseded) {
		if d.serves() {
			served++
		}
	}
	want(t, "exactly one connection has the session", served, 1)
}

// superseded reports whether session.resume was refused or the connection has ended.
func (c *checkConn) superseded() bool {
	f := c.tryNext()
	if f != nil && f.Type == arcp.SessionRejected {
		c.Drop()
	}
	return c.gone
}

// serves reports whether the connection has the session: the server answers two pings, one after
// the other.
func (c *checkConn) serves() bool {
	for range 2 {
		c.Ping()
		if c.tryNext() == nil {
			return false
		}
	}
	return true
}

// tryNext reads the next frame; nil if the connection has ended.
func (c *checkConn) tryNext() *received {
	for {
		text, err := c.read()
		if err != nil {
			return nil
		}
		if f := c.validate(text); f != nil {
			return f
		}
	}
}

func draftTakeoverRace(_ context.Context, t *checkRun) {
	c := t.DialDraft(nil)
	c.send(script.SessionHello, t.target.library().Hello(t.target.Token))
	welcome := c.readWelcome()
	if welcome == nil {
		t.Failf("session.hello with a valid token is answered by session.welcome")
	}
	c.Drop()
	hello := t.target.library().Hello(t.target.Token)
	maps.Copy(hello, t.target.library().Resume(string(welcome.SessionID), welcome.ResumeToken, 0))
	var racers []*draftConn
	for range 8 {
		d := t.DialDraft(c)
		d.send(script.SessionHello, hello)
		racers = append(racers, d)
	}
	racers = slices.DeleteFunc(racers, func(d *draftConn) bool {
		refused := d.readWelcome() == nil
		if refused {
			d.Drop()
		}
		return refused
	})
	winners := slices.DeleteFunc(racers, func(d *draftConn) bool { return !d.serves() })
	want(t, "exactly one connection has the session", len(winners), 1)
	winners[0].send(script.JobSubmit, map[string]any{"agent": "demo.echo", "input": map[string]any{}})
	t.Want("the connection that has the session is sent its events", winners[0].receive(script.JobResult) != nil, "got no job.result")
}

func (c *draftConn) send(typ arcp.Type, payload any) {
	frame, _ := c.t.target.library().Frame(string(typ), payload, nil)
	_ = c.WriteFrame(frame) // a failed write shows in the next read
}

// receive returns the next frame of a type; nil if the connection ends before, or a session.error comes.
func (c *draftConn) receive(typ arcp.Type) *arcp.Envelope {
	for {
		text, err := c.ReadFrame()
		if err != nil {
			return nil
		}
		env, err := decodeDraft(text)
		if err != nil || env.Type == "session.error" {
			return nil
		}
		if env.Type == typ {
			return &env
		}
	}
}

// readWelcome returns the payload of session.welcome; nil if the session is refused.
func (c *draftConn) readWelcome() *arcp.SessionAcceptedPayload {
	env := c.receive(script.SessionWelcome)
	if env == nil {
		return nil
	}
	var p struct {
		SessionID   arcp.SessionID `json:"session_id"`
		ResumeToken string         `json:"resume_token"`
	}
	if arcp.Unmarshal(env.Payload, &p) != nil {
		return nil
	}
	return &arcp.SessionAcceptedPayload{SessionID: cmp.Or(p.SessionID, env.SessionID), ResumeToken: p.ResumeToken}
}

// serves reports whether the connection has the session: the server answers two pings, one after
// the other.
func (c *draftConn) serves() bool {
	for range 2 {
		c.send(arcp.SessionPing, map[string]any{"nonce": "race", "sent_at": "2026-01-01T00:00:00Z"})
		if c.receive(arcp.SessionPong) == nil {
			return false
		}
	}
	return true
}
