package conformance

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
)

// subscribe follows a job and returns the answer.
func (c *Conn) subscribe(p arcp.JobSubscribePayload) (*Frame, arcp.JobSubscribedPayload) {
	id := c.Send(arcp.JobSubscribe, p)
	f := c.Expect("job.subscribed comes before the job's events", arcp.JobSubscribed, id)
	return f, payload[arcp.JobSubscribedPayload](c.t, f)
}

// copies reads events of a job until its end.
func (c *Conn) copies(job arcp.JobID) []*Frame {
	var list []*Frame
	for {
		f := c.event("a followed job's events come until its end")
		if f.JobID != job {
			continue
		}
		list = append(list, f)
		if f.Type.Terminal() {
			return list
		}
	}
}

// wantCopies wants got to be the same events as the originals, one copy each.
func (t *T) wantCopies(got, originals []*Frame) {
	want(t, "one copy of each event comes", len(got), len(originals))
	for i, f := range got {
		o := originals[i]
		want(t, "a copy has the type of its event", f.Type, o.Type)
		want(t, "a copy has the id of its event", f.ID, o.ID)
		want(t, "a copy has the payload of its event", string(f.Payload), string(o.Payload))
		t.Want("a copy has the time of its event", f.Timestamp.Equal(o.Timestamp), "got %v, want %v", f.Timestamp, o.Timestamp)
		want(t, "a copy has the trace of its event", f.TraceID, o.TraceID)
	}
}

func subscribeHistory(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	follower.echoes(1) // so that the numbers of the two sessions differ
	job := owner.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30})
	follower.subscribe(arcp.JobSubscribePayload{JobID: job.ID, History: true})
	got := follower.copies(job.ID)
	t.wantCopies(got, job.Events)
	want(t, "the follower's numbers go on where they were", got[0].EventSeq, 4)
	follower.ExpectNothing("one copy of each event comes")
}

func subscribeLive(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	submit := owner.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := owner.AwaitStarted(submit)
	follower.subscribe(arcp.JobSubscribePayload{JobID: job})
	follower.ExpectNothing("what came before was not asked for")
	owner.Cancel(job, 5000)
	end := owner.Follow(submit).End()
	t.wantCopies(follower.copies(job), []*Frame{end})
}

func subscribeHistoryThenLive(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	submit := owner.Submit("demo.emit", map[string]any{"count": 300, "bytes": 30, "interval_ms": 1})
	var events []*Frame
	for range 50 {
		events = append(events, owner.event("the job emits"))
	}
	job := events[0].JobID
	follower.subscribe(arcp.JobSubscribePayload{JobID: job, History: true})
	got := follower.copies(job)
	events = append(events, owner.Follow(submit).Events...)
	t.wantCopies(got, events)
}

func subscribeFrom(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	owner.echoes(1)
	job := owner.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30})
	from := job.Event(3).EventSeq
	follower.subscribe(arcp.JobSubscribePayload{JobID: job.ID, History: true, FromEventSeq: &from})
	t.wantCopies(follower.copies(job.ID), job.EventsFrom(4))
}

func subscribeAnswer(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	job := owner.Invoke("demo.emit", map[string]any{"count": 2, "bytes": 30})
	f, p := follower.subscribe(arcp.JobSubscribePayload{JobID: job.ID, History: true})
	want(t, "the answer is no event", f.EventSeq, 0)
	want(t, "the answer names the job", p.JobID, job.ID)
	want(t, "the tool is resolved", p.Agent, "demo.emit@1.0.0")
	want(t, "the job has ended", p.CurrentStatus, string(arcp.StateCompleted))
	want(t, "the replay reaches the last event", p.SubscribedFrom, job.End().EventSeq)
	want(t, "there is a replay", p.Replayed, true)
	follower.copies(job.ID)
}

func subscribeOrigin(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	owner.echoes(1)
	job := owner.Invoke("demo.emit", map[string]any{"count": 2, "bytes": 30})
	follower.subscribe(arcp.JobSubscribePayload{JobID: job.ID, History: true})
	for i, f := range follower.copies(job.ID) {
		t.wantOrigin(f, owner.Session, job.Event(i).EventSeq)
	}
}

// wantOrigin wants a forwarded event to say where it comes from.
func (t *T) wantOrigin(f *Frame, session arcp.SessionID, seq uint64) {
	var ext struct {
		Origin struct {
			SessionID arcp.SessionID `json:"session_id"`
			EventSeq  uint64         `json:"event_seq"`
		} `json:"arcpx.arcp.origin.v1"`
	}
	t.Want("a copy tells where it comes from", arcp.Unmarshal(f.Extensions, &ext) == nil, "extensions are %s", f.Extensions)
	want(t, "the number is the original's", ext.Origin.EventSeq, seq)
	want(t, "the session is the submitter's", ext.Origin.SessionID, session)
}

func subscribeForeignCorrelation(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	const id = "not-a-prefixed-id"
	owner.Submit("demo.emit", map[string]any{"count": 2, "bytes": 30}, func(env *arcp.Envelope) { env.ID = id })
	job := owner.Follow(id)
	want(t, "the submitter gets its own id back", job.End().CorrelationID, id)
	follower.subscribe(arcp.JobSubscribePayload{JobID: job.ID, History: true})
	t.wantCopies(follower.copies(job.ID), job.Events) // the validator wants no id it could not decode
}

func subscribeOnce(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	submit := owner.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := owner.AwaitStarted(submit)
	for range 2 {
		follower.subscribe(arcp.JobSubscribePayload{JobID: job})
	}
	owner.Cancel(job, 5000)
	end := owner.Follow(submit).End()
	t.wantCopies(follower.copies(job), []*Frame{end})
	follower.ExpectNothing("one copy of each event comes")
}

func subscribeOwnJob(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := c.AwaitStarted(submit)
	c.subscribe(arcp.JobSubscribePayload{JobID: job})
	id := c.Cancel(job, 5000)
	c.Await("the job is cancelled", arcp.CancelAccepted, id)
	want(t, "one copy of each event comes", len(c.copies(job)), 1)
	c.ExpectNothing("one copy of each event comes")
}

func subscribeUnsubscribe(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	submit := owner.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := owner.AwaitStarted(submit)
	follower.subscribe(arcp.JobSubscribePayload{JobID: job})
	follower.Send(arcp.JobUnsubscribe, arcp.JobUnsubscribePayload{JobID: job})
	follower.ExpectNothing("job.unsubscribe has no answer")
	owner.Cancel(job, 5000)
	owner.Follow(submit)
	follower.ExpectNothing("the job is not followed any more")
}

func subscribeUnknown(_ context.Context, t *T) {
	c := t.Open()
	id := c.Send(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: "job_00000000000000000000000000", History: true})
	c.ExpectNack("what is not there cannot be followed", id, arcp.CodeJobNotFound)
}

func subscribeOtherPrincipal(_ context.Context, t *T) {
	owner, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	job := owner.echoes(1)[0]
	id := stranger.Send(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: job, History: true})
	stranger.ExpectNack("what one may not see is not there", id, arcp.CodeJobNotFound)
}
