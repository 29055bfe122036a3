package conformance

import (
	"context"
	"slices"

	"github.com/arcpd/arcpd/arcp"
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
	text, err := c.read()
	if err != nil {
		return nil
	}
	return c.validate(text)
}
