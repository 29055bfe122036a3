package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// hire opens a session that executes a tool, and registers an agent for it. about
// is what is said of the tool.
func (t *T) hire(ref string, about map[string]any, with ...func(*arcp.SessionOpenPayload)) (c *Conn, agent string) {
	c = t.Open(append([]func(*arcp.SessionOpenPayload){offer(arcp.FeatureExecutes)}, with...)...)
	return c, c.executes(ref, about)
}

func (c *Conn) executes(ref string, about map[string]any) (agent string) {
	var a struct {
		ID string `json:"id"`
	}
	c.call(&a, "host.register_agent", c.agentFor(ref, about))
	return a.ID
}

func (c *Conn) agentFor(ref string, about map[string]any) map[string]any {
	if about == nil {
		about = map[string]any{}
	}
	return map[string]any{"name": "conformance", "kind": "check", "executes": []string{ref},
		"capabilities": map[string]any{"tools": map[string]any{ref: about}}}
}

// fire withdraws the tool.
func (c *Conn) fire(agent string) {
	c.Completed("an agent is unregistered", c.Invoke("host.unregister_agent", map[string]any{"agent_id": agent}))
}

// ownTool is a tool that no other check has.
func ownTool() (name, ref string) {
	name = workerTools + strings.ToLower(strings.TrimPrefix(string(arcp.NewMessageID()), arcp.MessagePrefix))
	return name, name + "@1.0.0"
}

// given waits for a job.
func (c *Conn) given(why string) *Frame {
	f := c.Await(why, arcp.ToolInvoke, "")
	want(c.t, "a job that is given has no number", f.EventSeq, 0)
	return f
}

// takes waits for a job and takes it.
func (c *Conn) takes() *Frame {
	f := c.given("a job is given to its worker")
	c.says(f, arcp.Ack, arcp.AckPayload{})
	return f
}

// says says something of a job that was given.
func (c *Conn) says(dispatch *Frame, typ arcp.Type, p any) arcp.MessageID {
	return c.Send(typ, p, func(env *arcp.Envelope) { env.JobID, env.CorrelationID = dispatch.JobID, dispatch.ID })
}

// gives ends a job well.
func (c *Conn) gives(dispatch *Frame, value any) {
	c.Await("a result is acknowledged", arcp.Ack, c.says(dispatch, arcp.ToolResult, arcp.ToolResultPayload{Value: c.raw(value)}))
}

func workersDispatch(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Open()
	submit := c.Submit(name, map[string]any{"n": 1})
	d := w.takes()
	p := payload[arcp.ToolInvokePayload](t, d)
	want(t, "the tool is the one that was asked for", p.Tool, ref)
	want(t, "the arguments are those of the submit", string(p.Arguments), `{"n":1}`)
	want(t, "it is the first attempt", p.Attempt, 1)
	w.says(d, arcp.JobProgress, arcp.JobProgressPayload{Current: 1, Total: new(2.0)})
	w.says(d, arcp.Log, arcp.LogPayload{Level: "info", Message: "hello"})
	w.says(d, arcp.EventEmit, arcp.EventEmitPayload{Name: "half", Data: arcp.Raw(`{"done":1}`)})
	w.says(d, arcp.Metric, arcp.MetricPayload{Name: "rows", Value: "3", Unit: "count"})
	w.gives(d, map[string]any{"sum": 3})
	job := c.outcomeOf(submit)
	want(t, "the result is the worker's", string(c.Completed("the job is done", job)), `{"sum":3}`)
	want(t, "the job is the one that was given", job.ID, d.JobID)
	var types []string
	for _, f := range job.Events {
		if f.Type != arcp.JobHeartbeat {
			types = append(types, string(f.Type))
		}
		t.Want("an event has an id of the runtime's", f.ID != d.ID, "%s has the worker's", f)
	}
	want(t, "what the worker said are the job's events, in order", strings.Join(types, " "),
		"job.accepted job.started job.progress log event.emit metric job.completed")
	w.fire(agent)
}

func workersQueued(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Open()
	first, second := c.Submit(name, nil), c.Submit(name, nil)
	d := w.takes()
	accepted := c.Await("a job that waits is accepted", arcp.JobAccepted, second)
	want(t, "a job that waits for its worker is queued", c.stateOf(accepted.JobID), string(arcp.StateQueued))
	w.ExpectNothing("a worker is given no more than it said")
	w.gives(d, 1)
	c.Completed("the first is done", c.outcomeOf(first))
	w.gives(w.takes(), 2)
	c.Completed("then the other", c.outcomeOf(second))
	w.fire(agent)
}

func workersPriority(_ context.Context, t *T) {
	low, normal, high, critical := arcp.PriorityLow, arcp.Priority(""), arcp.PriorityHigh, arcp.PriorityCritical
	t.wantGiven([]arcp.Priority{low, normal, critical, high, normal, high}, 2, 3, 5, 1, 4, 0)
}

func workersPassed(_ context.Context, t *T) {
	waiting := []arcp.Priority{arcp.PriorityLow}
	for range 9 {
		waiting = append(waiting, arcp.PriorityHigh)
	}
	t.wantGiven(waiting, 1, 2, 3, 4, 5, 6, 7, 0, 8, 9)
}

// wantGiven submits a job of each priority while the only worker is busy, and wants
// them to be given to it in an order.
func (t *T) wantGiven(waiting []arcp.Priority, order ...int) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Open()
	first := c.Submit(name, nil)
	d := w.takes()
	submits := make([]arcp.MessageID, len(waiting))
	for i, p := range waiting {
		submits[i] = c.Submit(name, map[string]any{"n": i}, func(env *arcp.Envelope) { env.Priority = p })
		c.Await("a job that waits is accepted", arcp.JobAccepted, submits[i])
	}
	w.gives(d, nil)
	c.Completed("the first is done", c.outcomeOf(first))
	var given []int
	for range waiting {
		d = w.takes()
		args := struct {
			N int `json:"n"`
		}{-1}
		if err := arcp.Unmarshal(payload[arcp.ToolInvokePayload](t, d).Arguments, &args); err != nil || args.N < 0 || args.N >= len(waiting) {
			t.Failf("a job has other arguments than its submit: %s", d.Payload)
		}
		given = append(given, args.N)
		w.gives(d, args.N)
		for _, f := range c.outcomeOf(submits[args.N]).Events {
			p := waiting[args.N]
			if f.Type.Terminal() {
				p = arcp.PriorityCritical
			}
			want(t, "an event has the priority of its job, and the end is critical", f.Priority, p)
		}
	}
	t.Want("jobs that wait are given by their priority", slices.Equal(given, order), "they were given in the order %v, want %v", given, order)
	w.fire(agent)
}

func workersAbsent(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Open()
	w.Drop()
	submit := c.Submit(name, nil)
	c.Await("a job is accepted without its worker", arcp.JobAccepted, submit)
	w = w.Resume(w.rec.last())
	w.gives(w.takes(), 1)
	c.Completed("the worker is back", c.outcomeOf(submit))
	w.fire(agent)
}

func workersRefused(_ context.Context, t *T) {
	name, ref := ownTool()
	one, a := t.hire(ref, nil)
	c := t.Open()
	busy := arcp.Errorf(arcp.CodeUnavailable, "not now")
	submit := c.Submit(name, nil)
	one.says(one.given("a job is given to its worker"), arcp.Nack, busy)
	end := c.outcomeOf(submit).End()
	want(t, "a job that nobody takes fails", end.Type, arcp.JobFailed)
	t.wantCode("a job that nobody takes fails", end, arcp.CodeUnavailable)

	two, b := t.hire(ref, nil)
	submit = c.Submit(name, nil)
	first := two.given("a job is given to who has had none") // it has been given nothing yet
	two.says(first, arcp.Nack, busy)
	second := one.takes()
	want(t, "the other is given the same job", second.JobID, first.JobID)
	t.Want("each has its own id", second.ID != first.ID, "both are %s", first.ID)
	one.gives(second, 1)
	c.Completed("it is done", c.outcomeOf(submit))
	one.fire(a)
	two.fire(b)
}

func workersNotTaken(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Open()
	submit := c.Submit(name, nil)
	d := w.given("a job is given to its worker")
	w.refuses("progress before the ack", w.says(d, arcp.JobProgress, arcp.JobProgressPayload{Current: 1}), arcp.CodeFailedPrecondition)
	w.refuses("a result before the ack", w.says(d, arcp.ToolResult, arcp.ToolResultPayload{Value: arcp.Raw(`1`)}), arcp.CodeFailedPrecondition)
	w.says(d, arcp.Ack, arcp.AckPayload{})
	w.gives(d, 2)
	want(t, "what counts came after", string(c.Completed("the job is done", c.outcomeOf(submit))), "2")
	w.fire(agent)
}

func workersStale(_ context.Context, t *T) {
	name, ref := ownTool()
	otherName, otherRef := ownTool()
	w, a := t.hire(ref, nil)
	other, b := t.hire(otherRef, nil)
	c := t.Open()
	mine, theirs := c.Submit(name, nil), c.Submit(otherName, nil)
	d, foreign := w.takes(), other.takes()
	stolen := arcp.ToolResultPayload{Value: arcp.Raw(`"stolen"`)}
	w.refuses("another session's job", w.says(foreign, arcp.ToolResult, stolen), arcp.CodeFailedPrecondition)
	mixed := *foreign
	mixed.ID = d.ID
	w.refuses("another job under its own dispatch", w.says(&mixed, arcp.ToolResult, stolen), arcp.CodeFailedPrecondition)
	w.gives(d, "mine")
	w.refuses("a second result", w.says(d, arcp.ToolResult, stolen), arcp.CodeFailedPrecondition)
	other.gives(foreign, "theirs")
	want(t, "a result is its worker's", string(c.Completed("one job is done", c.outcomeOf(mine))), `"mine"`)
	want(t, "a result is its worker's", string(c.Completed("the other is done", c.outcomeOf(theirs))), `"theirs"`)
	w.fire(a)
	other.fire(b)
}

func workersUnreadable(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Open()
	submit := c.Submit(name, nil)
	d := w.takes()
	w.refuses("progress goes forward", w.says(d, arcp.JobProgress, arcp.JobProgressPayload{Current: -1}), arcp.CodeInvalidArgument)
	w.refuses("a log has a message", w.says(d, arcp.Log, map[string]any{"level": "info"}), arcp.CodeInvalidRequest)
	w.refuses("an event has a limit", w.says(d, arcp.EventEmit, arcp.EventEmitPayload{Name: "n", Data: c.raw(strings.Repeat("x", 600<<10))}), arcp.CodeResourceExhausted)
	w.gives(d, 1)
	c.Completed("the job goes on", c.outcomeOf(submit))
	w.fire(agent)
}

func workersCancel(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Open()
	submit := c.Submit(name, nil)
	d := w.takes()
	c.Await("a cancel is accepted", arcp.CancelAccepted, c.Cancel(d.JobID, 30_000))
	f := w.Await("the worker is told", arcp.Cancel, "")
	want(t, "of which attempt", f.CorrelationID, d.ID)
	w.says(d, arcp.ToolError, arcp.Errorf(arcp.CodeCancelled, "as you wish"))
	end := c.outcomeOf(submit).End()
	want(t, "the job is cancelled", end.Type, arcp.JobCancelled)
	t.wantCode("the worker has ended by itself", end, arcp.CodeCancelled)
	w.fire(agent)
}

func workersComesBack(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Open()
	submit := c.Submit(name, map[string]any{"n": 1})
	d := w.takes()
	w.says(d, arcp.Log, arcp.LogPayload{Level: "info", Message: "begun"})
	c.Await("the worker has begun", arcp.Log, submit)
	w.Drop()
	w = w.Resume(w.rec.last())
	again := w.given("a worker that comes back is given its job again")
	want(t, "under the same id", again.ID, d.ID)
	want(t, "the same attempt", string(again.Payload), string(d.Payload))
	w.says(again, arcp.Ack, arcp.AckPayload{})
	w.gives(again, 1)
	c.Completed("the job is done", c.outcomeOf(submit))
	w.fire(agent)
}

// leaves ends a worker's session for good.
func (c *Conn) leaves() {
	c.Await("session.close is answered", arcp.SessionClosed, c.Send(arcp.SessionClose, arcp.SessionClosePayload{Reason: "done", Forget: true}))
	c.Drop()
}

func workersLost(_ context.Context, t *T) {
	name, ref := ownTool()
	w, _ := t.hire(ref, nil)
	c := t.Open()
	submit := c.Submit(name, nil)
	w.takes()
	w.leaves()
	end := c.outcomeOf(submit).End()
	t.wantCode("a job whose worker is gone fails", end, arcp.CodeAborted)
	t.Want("it may be tried again", payload[arcp.ErrorPayload](t, end).Retryable, "retryable is false")
}

func workersRerun(_ context.Context, t *T) {
	name, ref := ownTool()
	about := map[string]any{"recovery": "rerun"}
	w, _ := t.hire(ref, about)
	c := t.Open()
	submit := c.Submit(name, map[string]any{"n": 1})
	d := w.takes()
	other, agent := t.hire(ref, about)
	w.leaves()
	again := other.takes()
	p := payload[arcp.ToolInvokePayload](t, again)
	want(t, "it is the same job", again.JobID, d.JobID)
	want(t, "another attempt", p.Attempt, 2)
	want(t, "with the same arguments", string(p.Arguments), `{"n":1}`)
	t.Want("the attempt has its own id", again.ID != d.ID, "both are %s", d.ID)
	other.gives(again, 1)
	c.Completed("the job is done", c.outcomeOf(submit))
	other.fire(agent)
}

func workersCheckpoint(_ context.Context, t *T) {
	name, ref := ownTool()
	about := map[string]any{"recovery": "checkpoint"}
	w, _ := t.hire(ref, about)
	c := t.Open(offer(arcp.FeatureCheckpoints))
	submit := c.Submit(name, nil)
	d := w.takes()
	w.Await("a checkpoint is acknowledged", arcp.Ack, w.says(d, arcp.JobCheckpoint, map[string]any{"label": "half", "data": map[string]any{"n": 41}}))
	made := payload[arcp.JobCheckpointPayload](t, c.Await("a checkpoint is announced", arcp.JobCheckpoint, submit))
	other, agent := t.hire(ref, about)
	w.leaves()
	again := other.takes()
	p := payload[arcp.ToolInvokePayload](t, again)
	t.Want("it goes on from a checkpoint", p.Checkpoint != nil, "there is none in %s", again.Payload)
	want(t, "the last one", p.Checkpoint.CheckpointID, made.CheckpointID)
	want(t, "with what it has kept", string(p.Checkpoint.Data), `{"n":41}`)
	other.gives(again, 1)
	c.Completed("the job is done", c.outcomeOf(submit))
	other.fire(agent)
}

func workersQuorum(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, map[string]any{"approval": arcp.Raw(`{"manual":{"quorum":2}}`)})
	c, a, b := t.Open(), t.Human(), t.Human()
	job := c.AwaitAccepted(c.Submit(name, nil))
	for _, p := range []*Conn{a, b} {
		f := p.about("others are asked", arcp.HumanChoiceRequest, job)
		if p == a {
			a.taken(a.choose(f, "approve"))
			continue
		}
		b.refuses("the second vote is somebody else's", b.choose(f, "approve"), arcp.CodeFailedPrecondition)
	}
	w.nothingAbout("a job with one vote of two is not given to its worker", job)
	c.Await("the job is cancelled", arcp.CancelAccepted, c.Cancel(job, 0))
	w.fire(agent)
}

func workersAsks(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Human()
	submit := c.Submit(name, nil)
	d := w.takes()
	id := w.says(d, arcp.HumanInputRequest, arcp.HumanInputRequestPayload{Prompt: "how many?", ExpiresAt: time.Now().Add(askMS * time.Millisecond).UTC()})
	q := c.about("the question is the job's", arcp.HumanInputRequest, d.JobID)
	t.Want("the question has an id of the runtime's", q.ID != id, "it has the worker's")
	c.taken(c.respond(q, 7))
	answer := payload[arcp.HumanInputResponsePayload](t, w.Await("the answer is the worker's", arcp.HumanInputResponse, id))
	want(t, "as it was given", string(answer.Value), "7")
	w.gives(d, 1)
	c.Completed("the job is done", c.outcomeOf(submit))
	w.fire(agent)
}

func workersInterrupt(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, map[string]any{"interruptible": true})
	c := t.interrupter()
	submit := c.Submit(name, nil)
	d := w.takes()
	q := c.interrupt(d.JobID)
	stop := w.Await("the worker is told", arcp.Interrupt, "")
	want(t, "of which attempt", stop.CorrelationID, d.ID)
	c.taken(c.respond(q, map[string]any{"action": "continue", "guidance": "be quick"}))
	f := w.Await("and with what to go on", arcp.HumanInputResponse, stop.ID)
	wantText(t, "and with what to go on", string(f.Payload), "continue", "be quick")
	w.gives(d, 1)
	c.Completed("the job is done", c.outcomeOf(submit))
	w.fire(agent)
}

func workersChild(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	c := t.Open()
	submit := c.submitWith(name, map[string]any{}, arcp.SubmitOptions{LeaseRequest: arcp.Raw(`{"tool.call":["demo.echo"]}`)})
	d := w.takes()
	id := w.Send(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "demo.echo", Arguments: arcp.Raw(`{"n":1}`)}, func(env *arcp.Envelope) { env.JobID = d.JobID })
	made := w.Await("a call is accepted", arcp.JobAccepted, id)
	t.Want("the child is a job of its own", made.JobID != "" && made.JobID != d.JobID, "it is %q", made.JobID)
	want(t, "its parent is the worker's job", payload[arcp.JobAcceptedPayload](t, made).ParentJobID, d.JobID)
	ended := w.Await("and its end is said", arcp.JobCompleted, id)
	want(t, "with its result", string(payload[arcp.JobCompletedPayload](t, ended).Value), `{"n":1}`)
	id = w.Send(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "demo.sleep", Arguments: arcp.Raw(`{"ms":1}`)}, func(env *arcp.Envelope) { env.JobID = d.JobID })
	t.wantCode("a call is within the job's lease", w.Await("a call that is not covered fails", arcp.JobFailed, id), arcp.CodePermissionDenied)
	w.gives(d, 1)
	c.Completed("the job is done", c.outcomeOf(submit))
	w.fire(agent)
}

func workersNames(_ context.Context, t *T) {
	name, ref := ownTool()
	w, agent := t.hire(ref, nil)
	other := t.Open(as(t.target.OtherToken), offer(arcp.FeatureExecutes))
	t.wantCode("a tool of somebody else does not exist", other.Answer("a submit is answered", other.Submit(name, nil)), arcp.CodeAgentNotAvailable)
	end := other.outcomeOf(other.Submit("host.register_agent", other.agentFor(ref, nil))).End()
	t.wantCode("the name is taken", end, arcp.CodeAlreadyExists)
	end = w.outcomeOf(w.Submit("host.register_agent", w.agentFor("demo.echo@9.0.0", nil))).End()
	t.wantCode("a name of the server's is taken", end, arcp.CodeAlreadyExists)
	w.fire(agent)
}

func workersCapability(_ context.Context, t *T) {
	_, ref := ownTool()
	c := t.Open()
	end := c.outcomeOf(c.Submit("host.register_agent", c.agentFor(ref, nil))).End()
	t.wantCode("it cannot be given jobs", end, arcp.CodeFailedPrecondition, arcp.CodePermissionDenied)
	t.Want("a session that did not offer executes has it not", !c.Accepted.Capabilities.Flags[arcp.FeatureExecutes], "it has")
}
