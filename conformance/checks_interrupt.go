package conformance

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
)

// interrupt interrupts a job and returns the question.
func (c *Conn) interrupt(job arcp.JobID) *Frame {
	c.Await("an interrupt is acknowledged", arcp.Ack, c.sendInterrupt(job))
	return c.about("then a person is asked", arcp.HumanInputRequest, job)
}

func (c *Conn) sendInterrupt(job arcp.JobID) arcp.MessageID {
	return c.Send(arcp.Interrupt, arcp.InterruptPayload{Target: arcp.TargetJob, TargetID: string(job), Prompt: "what now?"})
}

// interrupter opens a session with a person that may interrupt.
func (t *T) interrupter() *Conn { return t.Open(offer(arcp.FeatureHumanInput, arcp.FeatureInterrupt)) }

// sleeps submits a job that lasts until it is told otherwise.
func (c *Conn) sleeps(o arcp.SubmitOptions) (submit arcp.MessageID, job arcp.JobID) {
	o.OnDisconnect = "cancel" // if the check fails
	submit = c.submitWith("demo.sleep", map[string]any{"ms": 120_000}, o)
	return submit, c.AwaitStarted(submit)
}

func interruptContinue(_ context.Context, t *T) {
	c := t.interrupter()
	submit := c.Submit("demo.count", map[string]any{"to": 100_000, "interval_ms": 5})
	job := c.AwaitStarted(submit)
	f := c.interrupt(job)
	p := payload[arcp.HumanInputRequestPayload](t, f)
	want(t, "the prompt is who interrupts'", p.Prompt, "what now?")
	want(t, "what is asked of people is critical", f.Priority, arcp.PriorityCritical)
	t.Want("the answer has a schema", len(p.ResponseSchema) > 0, "there is none")
	c.taken(c.respond(f, map[string]any{"action": "continue", "guidance": "be quick"}))
	log := c.about("the tool is told the guidance", arcp.Log, job)
	wantText(t, "the tool is told the guidance", payload[arcp.LogPayload](t, log).Message, "be quick")
	c.about("and goes on", arcp.JobProgress, job)
	want(t, "the job runs", c.stateOf(job), string(arcp.StateRunning))
	c.finish(submit, job)
}

// interruptBlocked interrupts a job before it ends. How long that has to take
// depends on how slow the server is.
func interruptBlocked(_ context.Context, t *T) {
	c, watch := t.interrupter(), t.Open()
	for ms := 1000; ; ms *= 5 {
		submit := c.Submit("demo.sleep", map[string]any{"ms": ms})
		job := c.AwaitStarted(submit)
		f := c.Answer("an interrupt is answered", c.sendInterrupt(job))
		if f.Type == arcp.Nack && ms < 60_000 {
			t.wantCode("a job that has ended cannot be interrupted", f, arcp.CodeFailedPrecondition)
			continue
		}
		question := c.about("then a person is asked", arcp.HumanInputRequest, job)
		want(t, "the job is blocked", c.stateOf(job), string(arcp.StateBlocked))
		watch.passes(ms + 100)
		c.nothingAbout("its time stands still", job)
		c.taken(c.respond(question, map[string]any{"action": "continue"}))
		c.Completed("then it goes on", c.outcomeOf(submit))
		return
	}
}

func interruptCancel(_ context.Context, t *T) {
	c := t.interrupter()
	submit, job := c.sleeps(arcp.SubmitOptions{})
	c.taken(c.respond(c.interrupt(job), map[string]any{"action": "cancel"}))
	end := c.outcomeOf(submit).End()
	want(t, "the job is cancelled", end.Type, arcp.JobCancelled)
	t.wantCode("the job is cancelled", end, arcp.CodeCancelled)
}

func interruptCancelled(_ context.Context, t *T) {
	c := t.interrupter()
	submit, job := c.sleeps(arcp.SubmitOptions{})
	question := c.interrupt(job)
	c.Await("a cancel is accepted", arcp.CancelAccepted, c.Cancel(job, 5000))
	c.withdrawn("the question is withdrawn", question, arcp.CodeCancelled)
	want(t, "the job is cancelled", c.outcomeOf(submit).End().Type, arcp.JobCancelled)
}

func interruptWrongAnswer(_ context.Context, t *T) {
	c := t.interrupter()
	submit, job := c.sleeps(arcp.SubmitOptions{})
	question := c.interrupt(job)
	for _, bad := range []string{`"continue"`, `{}`, `{"action":"dance"}`, `{"action":"continue","guidance":1}`, `null`} {
		c.refuses("an answer says what to do, unlike "+bad, c.respond(question, arcp.Raw(bad)), arcp.CodeInvalidArgument, arcp.CodeInvalidRequest)
	}
	want(t, "the job is still blocked", c.stateOf(job), string(arcp.StateBlocked))
	c.finish(submit, job)
}

func interruptTwice(_ context.Context, t *T) {
	c := t.interrupter()
	submit, job := c.sleeps(arcp.SubmitOptions{})
	question := c.interrupt(job)
	c.refuses("one is enough", c.sendInterrupt(job), arcp.CodeFailedPrecondition)
	c.taken(c.respond(question, map[string]any{"action": "continue"}))
	again := c.interrupt(job)
	t.Want("it is asked anew", again.ID != question.ID, "it is the same question")
	c.taken(c.respond(again, map[string]any{"action": "cancel"}))
	want(t, "the job is cancelled", c.outcomeOf(submit).End().Type, arcp.JobCancelled)
}

func interruptOtherSession(_ context.Context, t *T) {
	owner, a, b := t.Open(), t.interrupter(), t.Human()
	submit, job := owner.sleeps(arcp.SubmitOptions{})
	question := a.interrupt(job)
	owner.ExpectNothing("a session without a person is not asked")
	f := b.about("every person is asked", arcp.HumanInputRequest, job)
	want(t, "the question is the same", f.ID, question.ID)
	b.taken(b.respond(f, map[string]any{"action": "cancel"}))
	a.withdrawn("the others are told", question, arcp.CodeCancelled)
	want(t, "the job is cancelled", owner.outcomeOf(submit).End().Type, arcp.JobCancelled)
}

func interruptStrict(_ context.Context, t *T) {
	owner, other := t.interrupter(), t.interrupter()
	submit, job := owner.sleeps(arcp.SubmitOptions{StrictCancel: true})
	other.refuses("the job is its session's", other.sendInterrupt(job), arcp.CodePermissionDenied)
	owner.taken(owner.respond(owner.interrupt(job), map[string]any{"action": "cancel"}))
	owner.outcomeOf(submit)
}

func interruptForeign(_ context.Context, t *T) {
	owner, stranger := t.interrupter(), t.Open(as(t.target.OtherToken), offer(arcp.FeatureHumanInput, arcp.FeatureInterrupt))
	submit, job := owner.sleeps(arcp.SubmitOptions{})
	stranger.ExpectNack("what one may not see is not there", stranger.sendInterrupt(job), arcp.CodeJobNotFound)
	stranger.ExpectNack("nor what is not there", stranger.sendInterrupt(nobodysJob), arcp.CodeJobNotFound)
	owner.nothingAbout("the job is not touched", job)
	owner.finish(submit, job)
}

func interruptNotInterruptible(_ context.Context, t *T) {
	c := t.interrupter()
	submit, question := c.asked()
	c.refuses("demo.ask cannot be interrupted", c.sendInterrupt(question.JobID), arcp.CodeFailedPrecondition)
	c.taken(c.respond(question, 1))
	c.answered(submit, "1")
	for _, tool := range []string{"demo.echo", "demo.sleep"} {
		job := c.Invoke(tool, map[string]any{"ms": 0}).ID
		c.refuses("a job that has ended cannot be interrupted", c.sendInterrupt(job), arcp.CodeFailedPrecondition)
	}
}

func interruptRestart(ctx context.Context, t *T) {
	c := t.interrupter()
	submit := c.Submit("demo.count", map[string]any{"to": 100_000, "interval_ms": 5})
	job := c.AwaitStarted(submit)
	question := c.interrupt(job)
	c = t.restarted(ctx, c)
	late := t.Human()
	f := late.about("who comes after the restart is asked", arcp.HumanInputRequest, job)
	want(t, "with the same message", f.ID, question.ID)
	want(t, "the job is blocked", c.stateOf(job), string(arcp.StateBlocked))
	late.taken(late.respond(f, map[string]any{"action": "cancel"}))
	c.withdrawn("the others are told", question, arcp.CodeCancelled)
	want(t, "the job is cancelled", c.outcomeOf(submit).End().Type, arcp.JobCancelled)
}

func interruptOtherTargets(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureInterrupt))
	for target, id := range map[string]string{arcp.TargetStream: "str_00000000000000000000000000", arcp.TargetSession: string(c.Session)} {
		id := c.Send(arcp.Interrupt, arcp.InterruptPayload{Target: target, TargetID: id, Prompt: "stop"})
		c.ExpectNack("only jobs are interrupted", id, arcp.CodeUnimplemented)
	}
}
