package conformance

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// redial makes a connection for the session of c and sends nothing.
func (c *Conn) redial() *Conn {
	d := c.t.Dial()
	d.rec = c.rec
	d.v.attach(c.rec)
	return d
}

// Resume takes the session over on a new connection, from the event after on.
func (c *Conn) Resume(after uint64) *Conn {
	d := c.redial()
	d.resumed(d.askResume(c.rec.token, after), after)
	return d
}

// Cut ends the connection without a word and resumes the session where the
// client is.
func (c *Conn) Cut() *Conn {
	c.Drop()
	return c.Resume(c.rec.last())
}

// askResume sends session.resume.
func (c *Conn) askResume(token string, after uint64) arcp.MessageID {
	return c.Send(arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: token, LastEventSeq: after})
}

// resumed wants session.resumed as the first answer, and right.
func (c *Conn) resumed(id arcp.MessageID, after uint64) arcp.SessionResumedPayload {
	before := c.rec.token
	f := c.Expect("session.resume is answered before anything is replayed", arcp.SessionResumed, id)
	p := payload[arcp.SessionResumedPayload](c.t, f)
	want(c.t, "the answer repeats the position", p.ReplayedFrom, after)
	c.t.Want("every resume gives a new token", p.ResumeToken != "" && p.ResumeToken != before, "it is the one that was used")
	return p
}

// ExpectNoResume wants session.resume to be refused as one that comes too late.
func (c *Conn) ExpectNoResume(why string, id arcp.MessageID) {
	f := c.Expect(why, arcp.SessionRejected, id)
	c.t.wantCode(why, f, arcp.CodeResumeWindowExpired)
}

// Reopen sends a session.open that names the session of c on a new connection
// and expects that one to be accepted.
func (c *Conn) Reopen(with ...func(*arcp.SessionOpenPayload)) *Conn {
	d := c.redial()
	f := d.Expect("a right session.open is accepted", arcp.SessionAccepted, d.askOpen(c.Session, with...))
	d.Accepted = payload[arcp.SessionAcceptedPayload](c.t, f)
	want(c.t, "an own session is taken over", d.Session, c.Session)
	return d
}

// askOpen sends a session.open that names a session.
func (c *Conn) askOpen(session arcp.SessionID, with ...func(*arcp.SessionOpenPayload)) arcp.MessageID {
	p := c.t.openPayload()
	for _, change := range with {
		change(&p)
	}
	return c.Send(arcp.SessionOpen, p, func(env *arcp.Envelope) { env.SessionID = session })
}

// from asks a session.open to go on after an event.
func from(seq uint64) func(*arcp.SessionOpenPayload) {
	return func(p *arcp.SessionOpenPayload) { p.LastEventSeq = &seq }
}

// Events reads the next n events.
func (c *Conn) Events(why string, n int) []*Frame {
	var list []*Frame
	for len(list) < n {
		if f := c.event(why); f.EventSeq > 0 {
			list = append(list, f)
		}
	}
	return list
}

// ExpectEvents wants exactly the events from a number to a number next, and
// then those of a new job: what follows has the next numbers.
func (c *Conn) ExpectEvents(why string, first, last uint64) {
	for seq := first; seq <= last; seq++ {
		f := c.event(why)
		want(c.t, why, f.EventSeq, seq)
	}
	accepted := c.Expect("after the replay comes what is new", arcp.JobAccepted, c.Submit("demo.echo", map[string]any{}))
	want(c.t, "the numbers go on", accepted.EventSeq, last+1)
	c.Follow(accepted.CorrelationID)
}

// Superseded wants the connection to end because a newer one has taken the
// session over. What was on its way may still come.
func (c *Conn) Superseded(why string) {
	for {
		text, err := c.read()
		if err != nil {
			c.closedWith(why, err, transport.ClosePolicy)
			return
		}
		c.judge(text)
	}
}
