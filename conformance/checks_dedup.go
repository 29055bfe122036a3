package conformance

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
)

// asBefore gives a message an id that was used.
func asBefore(id arcp.MessageID) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) { env.ID = id }
}

// once wants the session to have one job.
func (c *Conn) once(job arcp.JobID) {
	c.t.wantJobs("a submit makes one job", c.listAll(c.here(), 100), job)
}

func dedupEnded(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.echo", map[string]any{"n": 1})
	c = c.Cut()
	again := c.Follow(c.Submit("demo.echo", map[string]any{"n": 1}, asBefore(job.Submit)))
	for i, typ := range []arcp.Type{arcp.JobAccepted, arcp.JobCompleted} {
		original := job.Of(typ)[0]
		f := again.Event(i)
		want(t, "the answer is the original one", f.ID, original.ID)
		want(t, "the answer is about the same job", f.JobID, job.ID)
		want(t, "the answer is the original one", string(f.Payload), string(original.Payload))
	}
	c.once(job.ID)
}

func dedupRunning(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := c.AwaitStarted(submit)
	c = c.Cut()
	c.Submit("demo.sleep", map[string]any{"ms": 60_000}, asBefore(submit))
	want(t, "the answer is about the same job", c.AwaitAccepted(submit), job)
	c.once(job)
	c.Cancel(job, 5000)
	c.Await("the job ends", arcp.JobCancelled, submit)
}

func dedupUnanswered(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.echo", map[string]any{})
	c.Drop()
	d := c.Resume(0)
	d.Submit("demo.echo", map[string]any{}, asBefore(submit))
	job := d.AwaitAccepted(submit)
	d.Await("the job ends", arcp.JobCompleted, submit)
	d.once(job)
}

func dedupTakeover(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.echo", map[string]any{})
	d := c.Resume(c.rec.last())
	c.Superseded("there is one connection to a session")
	d.Submit("demo.echo", map[string]any{}, asBefore(job.Submit))
	want(t, "the answer is about the same job", d.AwaitAccepted(job.Submit), job.ID)
	d.Await("its end is told again", arcp.JobCompleted, job.Submit)
	d.once(job.ID)
}

func dedupSameConnection(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.echo", map[string]any{})
	c = c.Cut()
	for range 3 {
		c.Submit("demo.echo", map[string]any{}, asBefore(job.Submit))
	}
	c.Expect("the first is answered", arcp.JobAccepted, job.Submit)
	c.Expect("the first is answered", arcp.JobCompleted, job.Submit)
	next := c.Submit("demo.echo", map[string]any{}) // answered behind them
	c.Expect("the others came on the same connection", arcp.JobAccepted, next)
	c.Await("a job ends", arcp.JobCompleted, next)
}

func dedupRefused(_ context.Context, t *T) {
	c := t.Open()
	id := c.Submit("no.such.tool", map[string]any{})
	c.ExpectRefused("there is no such tool", id, arcp.CodeAgentNotAvailable)
	c = c.Cut()
	c.Submit("no.such.tool", map[string]any{}, asBefore(id))
	c.ExpectRefused("there is no such tool", id, arcp.CodeAgentNotAvailable)
}

func dedupKeyReused(_ context.Context, t *T) {
	c := t.Open()
	first := c.Follow(c.Submit("demo.echo", map[string]any{"n": 1}, keyed(c)))
	first.End()
	for what, submit := range map[string]func() arcp.MessageID{
		"other arguments": func() arcp.MessageID { return c.Submit("demo.echo", map[string]any{"n": 2}, keyed(c)) },
		"another tool":    func() arcp.MessageID { return c.Submit("demo.sleep", map[string]any{"ms": 1}, keyed(c)) },
		"other options": func() arcp.MessageID {
			p := arcp.ToolInvokePayload{Tool: "demo.echo", Arguments: arcp.Raw(`{"n":1}`)}
			p.StrictCancel = true
			return c.Send(arcp.ToolInvoke, p, keyed(c))
		},
	} {
		c.ExpectRefused("the key was used with another request: "+what, submit(), arcp.CodeDuplicateKey)
	}
	again := c.Follow(c.Submit("demo.echo", map[string]any{"n": 1}, keyed(c)))
	want(t, "the key is still that of the first request", again.ID, first.ID)
	c.once(first.ID)
}

func dedupUnsubscribe(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	request := arcp.ToolInvokePayload{Tool: "demo.sleep", Arguments: arcp.Raw(`{"ms":60000}`)}
	submit := owner.Send(arcp.ToolInvoke, request, keyed(owner))
	job := owner.AwaitStarted(submit)
	retry := follower.Send(arcp.ToolInvoke, request, keyed(owner), asBefore(submit))
	follower.Expect("the same request under the same key is answered with the accept", arcp.JobAccepted, retry)
	follower.subscribe(arcp.JobSubscribePayload{JobID: job})
	follower.Send(arcp.JobUnsubscribe, arcp.JobUnsubscribePayload{JobID: job})
	follower.ExpectNothing("job.unsubscribe has no answer")
	owner.Cancel(job, 5000)
	end := owner.Follow(submit).End()
	t.wantCopies([]*Frame{follower.Expect("the retry is told the outcome", end.Type, retry)}, []*Frame{end})
}

// keyed gives a submit an idempotency key of a session's own.
func keyed(c *Conn) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) { env.IdempotencyKey = "of-" + string(c.Session) }
}
