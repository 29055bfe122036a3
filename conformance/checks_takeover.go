package conformance

import (
	"context"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

func takeoverSuperseded(_ context.Context, t *T) {
	old := t.Open()
	old.echoes(1)
	c := old.Resume(3)
	old.Superseded("there is one connection to a session")
	c.ExpectEvents("the session works on the newer one", 4, 3)
}

func takeoverOpen(_ context.Context, t *T) {
	old := t.Open()
	old.echoes(1)
	c := old.Reopen(from(1))
	old.Superseded("there is one connection to a session")
	c.ExpectEvents("the session works on the newer one", 2, 3)
}

func takeoverOpenGoesOn(_ context.Context, t *T) {
	old := t.Open()
	old.echoes(1)
	c := old.Reopen()
	c.ExpectEvents("what was written before does not come again", 4, 3)
	old.Superseded("there is one connection to a session")
}

func takeoverWhileRunning(_ context.Context, t *T) {
	c := t.Open()
	const count = 200
	job := &Job{Submit: c.Submit("demo.emit", map[string]any{"count": count, "bytes": 30, "interval_ms": 1})}
	for len(job.Events) < count+3 {
		job.Events = append(job.Events, c.Events("the job goes on", min(50, count+3-len(job.Events)))...)
		old := c
		c = old.Resume(uint64(len(job.Events)))
		old.Superseded("there is one connection to a session")
	}
	t.logged(job, count, 30)
	want(t, "the job has ended", job.End().Type, arcp.JobCompleted)
}

func takeoverRace(_ context.Context, t *T) {
	c := t.Open()
	c.Drop()
	token := c.rec.token
	var racers []*Conn
	for range 8 {
		d := c.redial()
		d.askResume(token, 0)
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
	return c.judge(text)
}
