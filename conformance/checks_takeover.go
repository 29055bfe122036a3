package conformance

import (
	"context"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

func takeoverRace(_ context.Context, t *T) {
	c := t.Open()
	c.Drop()
	token := c.rec.token
	var racers []*Conn
	for range 8 {
		d := c.redial()
		d.Send(arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: token})
		racers = append(racers, d)
	}
	served := 0
	for _, d := range slices.DeleteFunc(racers, (*Conn).lost) {
		if d.serves() {
			served++
		}
	}
	want(t, "one connection has the session", served, 1)
}

// lost reports whether the answer to session.resume is a refusal, or none.
func (c *Conn) lost() bool {
	f := c.tryNext()
	if f != nil && f.Type == arcp.SessionRejected {
		c.Drop()
	}
	return c.gone
}

// serves reports whether the connection has its session: it answers a ping that
// is sent after the answer to another.
func (c *Conn) serves() bool {
	for range 2 {
		c.Ping()
		if c.tryNext() == nil {
			return false
		}
	}
	return true
}

// tryNext reads the next frame of a connection that may end; nil: it has ended.
func (c *Conn) tryNext() *Frame {
	text, err := c.read()
	if err != nil {
		return nil
	}
	return c.validate(text)
}
