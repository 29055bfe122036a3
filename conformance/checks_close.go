package conformance

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// close ends the session in order.
func (c *Conn) close() {
	id := c.Send(arcp.SessionClose, arcp.SessionClosePayload{Reason: "done"})
	c.Await("session.close is answered", arcp.SessionClosed, id)
	c.ExpectClosed("after session.closed the connection ends", transport.CloseNormal)
}

func closeAnswer(_ context.Context, t *T) {
	c := t.Open()
	id := c.Send(arcp.SessionClose, arcp.SessionClosePayload{Reason: "done"})
	c.Expect("session.close is answered", arcp.SessionClosed, id)
	c.ExpectClosed("after session.closed the connection ends", transport.CloseNormal)
}

func closeTolerant(_ context.Context, t *T) {
	for _, p := range []string{`{}`, `{"reason":null}`, `{"reason":""}`, `{"open_jobs":null,"forget":null}`, `{"something_new":1}`} {
		c := t.Open()
		c.Expect("session.close "+p+" is fine", arcp.SessionClosed, c.Send(arcp.SessionClose, arcp.Raw(p)))
		c.ExpectClosed("after session.closed the connection ends", transport.CloseNormal)
	}
}

func closeLast(_ context.Context, t *T) {
	c := t.Open()
	c.AwaitStarted(c.Submit("demo.emit", map[string]any{"count": 1000, "bytes": 100, "interval_ms": 1}))
	c.close()
}

func closeJobsGoOn(_ context.Context, t *T) {
	a := t.Open()
	job := a.AwaitStarted(a.Submit("demo.sleep", map[string]any{"ms": 100}))
	session := a.Session
	a.close()
	t.outcome(job, session)
}

func closeOpenJobsCancel(_ context.Context, t *T) {
	a, b := t.Open(), t.Open()
	submit := a.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := a.AwaitStarted(submit)
	b.subscribe(arcp.JobSubscribePayload{JobID: job})
	id := a.Send(arcp.SessionClose, arcp.SessionClosePayload{OpenJobs: "cancel"})
	a.Await("session.close is answered", arcp.SessionClosed, id)
	a.ExpectClosed("after session.closed the connection ends", transport.CloseNormal)
	copies := b.copies(job)
	want(t, "the job ends as cancelled", copies[len(copies)-1].Type, arcp.JobCancelled)
}

// outcome wants a short job that was begun on a connection that is gone to end
// well.
func (t *T) outcome(job arcp.JobID, session arcp.SessionID) {
	b, late := t.Open(), t.late()
	for {
		b.passes(100)
		entry := b.entry(job, session)
		t.Want("a job does not end with its connection", entry != nil, "it is not listed")
		if !arcp.JobState(entry.Status).Terminal() && time.Now().Before(late) {
			continue
		}
		want(t, "its outcome is known", entry.Status, string(arcp.StateCompleted))
		return
	}
}

func closeAnswersFirst(_ context.Context, t *T) {
	c := t.Open()
	ping, _ := c.Ping()
	list := c.Send(arcp.SessionListJobs, arcp.SessionListJobsPayload{})
	id := c.Send(arcp.SessionClose, arcp.SessionClosePayload{})
	c.Expect("commands are performed in their order", arcp.Pong, ping)
	c.Expect("commands are performed in their order", arcp.SessionJobs, list)
	c.Expect("commands are performed in their order", arcp.SessionClosed, id)
	c.ExpectClosed("after session.closed the connection ends", transport.CloseNormal)
}

func closeTransport(_ context.Context, t *T) {
	a := t.Open()
	job := a.AwaitStarted(a.Submit("demo.sleep", map[string]any{"ms": 100}))
	session := a.Session
	_ = a.tc.Close(transport.CloseNormal, "bye") // whether the farewell arrives does not matter
	a.gone = true
	t.outcome(job, session)
}
