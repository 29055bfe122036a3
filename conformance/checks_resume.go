package conformance

import (
	"context"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

func resumeAnswer(_ context.Context, t *T) {
	c := t.Open()
	c.echoes(1)
	for _, after := range []uint64{1, 3} {
		c.Drop()
		d := c.redial()
		p := d.resumed(d.askResume(c.rec.token, after), after)
		want(t, "a token resumes its own session", p.SessionID, c.Session)
		want(t, "the answer says whether events follow", p.Replayed, after < 3)
		d.Events("what came after the position comes again", int(3-after))
		c = d
	}
}

func resumeReplay(_ context.Context, t *T) {
	c := t.Open()
	last := c.Invoke("demo.emit", map[string]any{"count": 20, "bytes": 30}).End().EventSeq
	c.Drop()
	c.Resume(5).ExpectEvents("what came after the position comes again, in order", 6, last) // the validator compares
}

func resumeEveryPosition(_ context.Context, t *T) {
	c := t.Open()
	c.Invoke("demo.emit", map[string]any{"count": 3, "bytes": 30})
	for after := range uint64(7) {
		c.Drop()
		c = c.Resume(after)
		c.ExpectEvents("what came after the position comes again", after+1, c.rec.last())
	}
}

func resumeWhileRunning(_ context.Context, t *T) {
	c := t.Open()
	const count = 200
	job := &Job{Submit: c.Submit("demo.emit", map[string]any{"count": count, "bytes": 30, "interval_ms": 1})}
	for len(job.Events) < count+3 {
		job.Events = append(job.Events, c.Events("the job goes on", min(40, count+3-len(job.Events)))...)
		c = c.Cut()
	}
	t.logged(job, count, 30)
	want(t, "the job has ended", job.End().Type, arcp.JobCompleted)
}

func resumeWhileAway(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.sleep", map[string]any{"ms": 50})
	job := c.AwaitStarted(submit)
	c.Drop()
	t.Open().Invoke("demo.sleep", map[string]any{"ms": 150}) // a clock: begun later, ends later
	d := c.Resume(c.rec.last())
	end := d.Expect("what happened meanwhile is replayed", arcp.JobCompleted, submit)
	want(t, "the end is the job's", end.JobID, job)
}

func resumeUnread(_ context.Context, t *T) {
	c := t.Open()
	c.Submit("demo.emit", map[string]any{"count": 20, "bytes": 30})
	c.Events("the job emits", 2)
	c.Drop()
	d := c.Resume(2)
	d.Events("what was sent to a client that did not read it comes again", 21)
	d.echoes(1)
}

func resumeNumbers(_ context.Context, t *T) {
	c := t.Open()
	for i := range uint64(4) {
		c.echoes(1)
		want(t, "the numbers go on", c.rec.last(), 3*(i+1))
		c = c.Cut()
	}
}

// checkpointsOf runs demo.count and returns its job.checkpoint events.
func (c *Conn) checkpointsOf(to int) []*Frame {
	return c.Invoke("demo.count", map[string]any{"to": to, "interval_ms": 1}).Of(arcp.JobCheckpoint)
}

func resumeFeatures(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints)).Cut()
	want(t, "a session that asked for checkpoints sees them", len(c.checkpointsOf(3)), 3)
	c = t.Open().Cut()
	want(t, "a session that did not ask for checkpoints sees none", len(c.checkpointsOf(3)), 0)
}

func resumeVersion(_ context.Context, t *T) {
	c := t.Open()
	c.echoes(1)
	c.Drop()
	d := c.redial()
	d.version = "1.0"
	d.resumed(d.askResume(c.rec.token, 0), 0)
	d.ExpectEvents("what came after the position comes again", 1, 3) // the validator looks at the version
}

func resumeTokenWrong(_ context.Context, t *T) {
	c := t.Open()
	token := c.rec.token
	for _, wrong := range []string{"rt_conformance", "", "rt_", strings.Repeat("x", len(token)), token + "0", token[:len(token)-1], otherEnd(token)} {
		d := t.Dial()
		d.ExpectNoResume("a wrong token resumes nothing", d.askResume(wrong, 0))
		d.Open()
		t.Want("the new session is another", d.Session != c.Session, "it is the one whose token was guessed")
		d.Drop()
	}
	c.ExpectNothing("the session whose token was guessed is not touched")
}

// otherEnd returns the token with another last character.
func otherEnd(token string) string {
	last := "0"
	if strings.HasSuffix(token, last) {
		last = "1"
	}
	return token[:len(token)-1] + last
}

func resumeTokenUsed(_ context.Context, t *T) {
	c := t.Open()
	first := c.rec.token
	d := c.Cut()
	d.ExpectNothing("the session works on its new connection")
	thief := t.Dial()
	thief.ExpectNoResume("a token that was used is good for nothing", thief.askResume(first, 0))
	d.ExpectNothing("the session is not touched")
	d.Cut()
}

func resumeTokenLost(_ context.Context, t *T) {
	c := t.Open()
	first := c.rec.token
	c.Cut().Drop() // of the answer the client has got nothing
	d := c.redial()
	d.resumed(d.askResume(first, 0), 0)
	d.ExpectNothing("the session works")
}

func resumeThreeFailures(_ context.Context, t *T) {
	c := t.Dial()
	for range 3 {
		c.ExpectNoResume("a wrong token resumes nothing", c.askResume("rt_conformance", 0))
	}
	c.ExpectClosed("three failures end the connection", transport.ClosePolicy)
}

func resumeBeyond(_ context.Context, t *T) {
	c := t.Open()
	c.echoes(1)
	c.Drop()
	d := c.redial()
	for _, after := range []uint64{4, 1 << 40} {
		d.ExpectNoResume("nobody can have got what was never sent", d.askResume(c.rec.token, after))
	}
	d.resumed(d.askResume(c.rec.token, 3), 3)
	d.ExpectEvents("nothing comes again", 4, 3)
}

func resumeDroppedBefore(_ context.Context, t *T) {
	c := t.Open()
	c.Drop()
	d := c.redial()
	early, _ := d.Ping()
	d.resumed(d.askResume(c.rec.token, 0), 0)
	d.expectDropped(early)
}

func resumeOpenOwn(_ context.Context, t *T) {
	c := t.Open()
	last := c.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30}).End().EventSeq
	for _, after := range []uint64{0, 4, last} {
		c.Drop()
		c = c.Reopen(from(after))
		t.Want("a session that is taken over has a new token", c.Accepted.ResumeToken != "", "there is none")
		c.ExpectEvents("what came after the position comes again", after+1, last)
		last = c.rec.last()
	}
}

func resumeOpenGoesOn(_ context.Context, t *T) {
	c := t.Open()
	c.echoes(2)
	c.close()
	c.Reopen().ExpectEvents("what was written before does not come again", 7, 6)
}

func resumeOpenGoesOnAcked(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureAck))
	c.echoes(2)
	c.ack(2)
	c.ExpectNothing("an acknowledgement has no answer")
	c.Drop()
	d := c.Reopen()
	d.Ping() // the first message, and it is no resume
	d.Events("what was not acknowledged comes again", 4)
	want(t, "what was acknowledged does not", d.v.nextSeq, 7)
	t.Want("and nothing is left out", d.v.seen[[2]string{string(c.rec.events[3].ID), string(c.rec.events[3].CorrelationID)}],
		"event 3 is missing")
}

func resumeOpenFeatures(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	c.Drop()
	d := c.Reopen(from(0), offer(arcp.FeatureHeartbeat))
	t.Want("the answer says what the session has", d.Accepted.Capabilities.Flags[arcp.FeatureCheckpoints], "got %s", d.raw(d.Accepted.Capabilities))
	want(t, "the session sees what it asked for at first", len(d.checkpointsOf(2)), 2)
}

func resumeOpenBeyond(_ context.Context, t *T) {
	c := t.Open()
	c.Drop()
	d := c.redial()
	d.ExpectNoResume("nobody can have got what was never sent", d.askOpen(c.Session, from(5)))
}

func resumeOpenUnknown(_ context.Context, t *T) {
	const unknown = "sess_00000000000000000000000000"
	c := t.Dial()
	c.Expect("a right session.open is accepted", arcp.SessionAccepted, c.askOpen(unknown))
	t.Want("the session is a new one", c.Session != unknown, "it has the id that was asked for")
}

func resumeOpenForeign(_ context.Context, t *T) {
	owner := t.Open()
	owner.echoes(1)
	thief := t.Dial()
	thief.Expect("a right session.open is accepted", arcp.SessionAccepted, thief.askOpen(owner.Session, as(t.target.OtherToken)))
	t.Want("nobody gets another principal's session", thief.Session != owner.Session, "the session is taken over")
	thief.ExpectNothing("nothing of it is told")
	owner.ExpectNothing("it is not touched")
}

// replay sends resume, which is accepted.
func (c *Conn) replay(p arcp.ResumePayload) {
	c.Expect("resume is answered before anything is replayed", arcp.Ack, c.Send(arcp.Resume, p))
}

func resumeAfterMessage(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30})
	for _, i := range []int{0, 3, 7} {
		c.Drop()
		c = c.Reopen()
		c.replay(arcp.ResumePayload{AfterMessageID: job.Event(i).ID})
		c.ExpectEvents("the events after the message come, without it", uint64(i+2), c.rec.last())
	}
}

func resumeMessageUnknown(_ context.Context, t *T) {
	c := t.Open()
	c.echoes(1)
	c.Drop()
	d := c.Reopen()
	for _, p := range []arcp.ResumePayload{{AfterMessageID: "msg_00000000000000000000000000"}, {CheckpointID: "chk_nobodys"}} {
		f := d.ExpectNack("what is not kept cannot be a position", d.Send(arcp.Resume, p), arcp.CodeDataLoss)
		var details struct {
			Oldest arcp.MessageID `json:"oldest_message_id"`
		}
		raw := payload[arcp.ErrorPayload](t, f).Details
		t.Want("the refusal says what is kept", arcp.Unmarshal(raw, &details) == nil && details.Oldest == c.rec.events[1].ID,
			"details are %s, the first event was %s", raw, c.rec.events[1].ID)
		d.Drop()
		d = c.Reopen()
	}
}

// counted runs demo.count in a session with checkpoints.
func (t *T) counted() (*Conn, *Job, []*Frame) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	job := c.Invoke("demo.count", map[string]any{"to": 4, "interval_ms": 1})
	points := job.Of(arcp.JobCheckpoint)
	want(t, "every step has a checkpoint", len(points), 4)
	c.Drop()
	return c, job, points
}

func resumeCheckpoint(_ context.Context, t *T) {
	c, _, points := t.counted()
	d := c.Reopen()
	d.replay(arcp.ResumePayload{CheckpointID: payload[arcp.JobCheckpointPayload](t, points[1]).CheckpointID})
	d.ExpectEvents("the events after the checkpoint come", points[1].EventSeq+1, c.rec.last())
}

func resumeBoth(_ context.Context, t *T) {
	c, job, points := t.counted()
	for _, message := range []*Frame{job.Event(0), job.End()} {
		d := c.Reopen()
		first := min(message.EventSeq, points[1].EventSeq) + 1
		d.replay(arcp.ResumePayload{AfterMessageID: message.ID, CheckpointID: payload[arcp.JobCheckpointPayload](t, points[1]).CheckpointID})
		d.ExpectEvents("the events after the earlier of the two come", first, c.rec.last())
		d.Drop()
	}
}

func resumeTooLate(_ context.Context, t *T) {
	c := t.Open()
	c.echoes(1)
	id := c.Send(arcp.Resume, arcp.ResumePayload{AfterMessageID: c.rec.events[1].ID})
	c.ExpectNack("the position cannot change under way", id, arcp.CodeFailedPrecondition)
	c.ExpectEvents("nothing comes again", 4, 3)
}

// resumeClosed closes a session before its job ends. How long that has to take depends
// on how slow the server is.
func resumeClosed(_ context.Context, t *T) {
	for ms := 50; ; ms *= 5 {
		c := t.Open()
		submit := c.Submit("demo.sleep", map[string]any{"ms": ms})
		c.AwaitStarted(submit)
		c.close()
		if c.ended(submit) && ms < 30_000 {
			continue // too late
		}
		d := c.Resume(c.rec.last())
		d.Expect("its jobs went on", arcp.JobCompleted, submit)
		return
	}
}

func resumeForgotten(_ context.Context, t *T) {
	c := t.Open()
	c.Expect("session.close is answered", arcp.SessionClosed, c.Send(arcp.SessionClose, arcp.SessionClosePayload{Forget: true}))
	c.ExpectClosed("after session.closed the connection ends", transport.CloseNormal)
	d := c.redial()
	d.ExpectNoResume("a forgotten session is gone", d.askResume(c.rec.token, 0))
}

func resumeEvicted(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := c.AwaitStarted(submit)
	id := other.Send(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetSession, TargetID: string(c.Session)})
	other.Expect("a principal may end its sessions", arcp.CancelAccepted, id)
	c.Expect("the client is told", arcp.SessionEvicted, "")
	c.ExpectClosed("and loses the connection", transport.ClosePolicy)
	d := c.redial()
	d.ExpectNoResume("an evicted session is gone", d.askResume(c.rec.token, 0))
	_, p := other.subscribe(arcp.JobSubscribePayload{JobID: job})
	want(t, "its jobs go on", p.CurrentStatus, string(arcp.StateRunning))
	other.Cancel(job, 5000)
	other.copies(job)
}

func resumeForwarded(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	owner.echoes(1)
	job := owner.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30})
	follower.subscribe(arcp.JobSubscribePayload{JobID: job.ID, History: true})
	follower.copies(job.ID)
	follower.Drop()
	d := follower.Resume(0)
	for i, f := range d.Events("the copies come again", len(job.Events)) { // the validator compares
		t.wantOrigin(f, owner.Session, job.Event(i).EventSeq)
	}
	d.echoes(1)
}

func resumeFollowing(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	submit := owner.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := owner.AwaitStarted(submit)
	follower.subscribe(arcp.JobSubscribePayload{JobID: job})
	follower = follower.Cut()
	owner.Cancel(job, 5000)
	end := owner.Follow(submit).End()
	t.wantCopies(follower.copies(job), []*Frame{end})
}
