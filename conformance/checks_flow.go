package conformance

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
)

// ack sends session.ack.
func (c *Conn) ack(seq uint64) {
	c.Send(arcp.SessionAck, arcp.SessionAckPayload{LastProcessedSeq: seq})
}

func flowUnacknowledged(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureAck))
	last := c.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30}).End().EventSeq
	c.ack(3)
	c.ExpectNothing("an acknowledgement has no answer")
	c.Drop()
	c.Resume(3).ExpectEvents("what was not acknowledged comes again", 4, last)
}

func flowAdvisory(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureAck))
	last := c.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30}).End().EventSeq
	c.ack(5)
	c.ExpectNothing("an acknowledgement has no answer")
	c.Drop()
	d := c.redial()
	id := d.askResume(c.rec.token, 2)
	f := d.event("session.resume is answered")
	if f.Type == arcp.SessionRejected {
		t.wantCode("what was freed cannot be replayed", f, arcp.CodeResumeWindowExpired)
		d.resumed(d.askResume(c.rec.token, 5), 5)
		d.ExpectEvents("what was not acknowledged comes again", 6, last)
		return
	}
	d.match("session.resume is answered", f, arcp.SessionResumed, id)
	d.ExpectEvents("what is still kept comes again", 3, last)
}

func flowBeyond(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureAck))
	c.echoes(1)
	c.ack(1 << 40)
	c.ExpectNothing("an acknowledgement has no answer")
	c.echoes(2)
	c.Drop()
	d := c.Resume(3)
	d.ExpectEvents("nothing was freed that had not been sent", 4, 9)
}

func flowBackwards(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureAck))
	c.echoes(2)
	for _, seq := range []uint64{4, 1, 4, 0} {
		c.ack(seq)
	}
	c.ExpectNothing("an acknowledgement has no answer")
	c.Drop()
	c.Resume(4).ExpectEvents("the greatest one counts", 5, 6)
}

func flowLag(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureAck))
	for range 2 {
		id := c.Submit("demo.emit", map[string]any{"count": 1200, "bytes": 1})
		told := 0
		for f := c.next("the job ends"); f.Type != arcp.JobCompleted; f = c.next("the job ends") {
			if f.Type == arcp.Backpressure {
				want(t, "the client is told why", payload[arcp.BackpressurePayload](t, f).Reason, "ack_lag")
				told++
			} else if f.Type != arcp.JobHeartbeat {
				want(t, "the job goes on", f.CorrelationID, id)
			}
		}
		want(t, "a client that falls behind is told once", told, 1)
		c.ack(c.rec.last())
	}
}

func flowWindow(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureAck))
	window := t.target.AckWindow
	c.Submit("demo.emit", map[string]any{"count": 4 * window, "bytes": 1})
	for acked := 0; acked < 3*window; acked += window {
		c.Events("the window lets events through", window)
		c.ExpectNothing("and no more, but answers pass")
		c.ack(uint64(acked))
		c.ExpectNothing("what was acknowledged before frees nothing")
		c.ack(uint64(acked + window))
	}
	c.Events("the window lets events through", window)
	c.ack(1 << 40)
	c.Await("an acknowledgement of everything empties the window", arcp.JobCompleted, "")
}

func flowWindowAsked(_ context.Context, t *T) {
	const window = 5
	asking := func(p *arcp.SessionOpenPayload) { p.Capabilities.AckWindow = window }
	c := t.Open(offer(arcp.FeatureAck), asking)
	want(t, "session.accepted says which window applies", c.Accepted.Capabilities.AckWindow, uint32(window))
	c.Submit("demo.emit", map[string]any{"count": 6 * window, "bytes": 1})
	c.Events("the window lets events through", window)
	c.ExpectNothing("and no more, but answers pass")
	c.Drop()

	d := c.redial()
	id := d.Send(arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: c.rec.token, LastEventSeq: window, AckWindow: window - 1})
	want(t, "session.resumed says which window applies", d.resumed(id, window).AckWindow, uint32(window-1))
	d.Events("the window lets events through", window-1)
	d.ExpectNothing("and no more, but answers pass")
	d.Drop()

	e := c.Reopen(asking, from(2*window-1))
	e.Events("the window lets events through", window)
	e.ExpectNothing("and no more, but answers pass")
	e.ack(1 << 40)
	e.Events("what was acknowledged makes room", window)
	e.ExpectNothing("and no more, but answers pass")
}

func flowWindowFree(_ context.Context, t *T) {
	c := t.Open()
	c.Completed("a session that never acknowledges is not held up", c.Invoke("demo.emit", map[string]any{"count": 4 * t.target.AckWindow, "bytes": 1}))
}
