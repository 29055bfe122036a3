package chaos

import (
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// act performs one random action. It returns false if the connection is broken.
func (c *client) act() bool {
	switch n := c.rnd.IntN(100); {
	case n < 55:
		return c.submit()
	case n < 65:
		return c.cancel()
	case n < 75:
		return c.follow()
	case n < 87:
		return c.ack()
	case n < 90:
		return c.probeForeignJob()
	case n < 93:
		return c.submitAgain()
	case n < 96:
		return c.request(c.compose(arcp.SessionListJobs, arcp.SessionListJobsPayload{Limit: new(uint32(20))}))
	case n < 98:
		return c.write(c.compose(arcp.SessionClose, arcp.SessionClosePayload{}))
	}
	// The draft dialect relates an answer to its ping by the nonce. Several pings may be unanswered at the same time.
	return c.request(c.compose(arcp.Ping, arcp.PingPayload{Nonce: strconv.FormatUint(c.rnd.Uint64(), 36)}))
}

// submit submits several jobs at once in random order, sometimes with repetitions.
func (c *client) submit() bool {
	if c.stream.unfinished() >= maxOpenJobs {
		return true
	}
	var batch []*arcp.Envelope
	for range 1 + c.rnd.IntN(4) {
		o := c.invoke()
		c.pending = append(c.pending, o)
		batch = append(batch, o)
		if c.rnd.IntN(8) == 0 {
			batch = append(batch, o)
		}
	}
	c.shuffle(batch)
	return c.write(batch...)
}

func (c *client) invoke() *arcp.Envelope {
	id := c.id()
	t := randomTask(c.rnd, string(id), c.workflows)
	t.Direct = t.Direct && c.library.can.direct
	t.Start = t.Start && c.library.can.start
	t.Delegate = t.Delegate && c.library.can.start
	switch {
	case c.rnd.IntN(25) == 0 && c.library.can.schedule:
		t = scheduleTask(c.rnd, string(id))
	case c.rnd.IntN(6) == 0:
		t = keyedTask(c.principal.Name, c.shared.key(c.rnd, c.principal.Name), c.workflows)
	}
	s := &Submit{Task: t, ID: id, Trace: trace(c.principal.Name, c.n, c.sent)}
	c.stream.AddSubmit(s)
	c.submits = append(c.submits, id)
	return c.invocation(s)
}

// invocation returns the command of a submit. It is the same for each repetition.
func (c *client) invocation(s *Submit) *arcp.Envelope {
	env := s.Task.message()
	env.ARCP, env.ID, env.Timestamp = arcp.Version, s.ID, time.Now()
	env.TraceID, env.IdempotencyKey = s.Trace, s.Key
	return &env
}

// message returns the message that submits the task, without the members of the envelope.
func (t *Task) message() arcp.Envelope {
	o := arcp.SubmitOptions{Direct: t.Direct}
	switch {
	case t.Kind == Schedule:
		return arcp.Frame(arcp.JobSchedule, t.schedulePayload())
	case t.Child != nil, t.Kind == Workflow:
		o.LeaseRequest = arcp.Raw(`{"tool.call":["*"],"agent.delegate":["*"]}`)
	}
	switch {
	case t.Delegate:
		return arcp.Frame(arcp.AgentDelegate, t.delegatePayload())
	case t.Start:
		return arcp.Frame(arcp.WorkflowStart, arcp.WorkflowStartPayload{Workflow: string(t.Kind), Arguments: arcp.Raw(t.Arguments), SubmitOptions: o})
	}
	return arcp.Frame(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: string(t.Kind), Arguments: arcp.Raw(t.Arguments), SubmitOptions: o})
}

// submitAgain repeats an answered submit with the same id. The server answers it again on another
// connection and drops it on the same connection.
func (c *client) submitAgain() bool {
	if len(c.submits) == 0 {
		return true
	}
	id := c.submits[c.rnd.IntN(len(c.submits))]
	s := c.stream.Submits[id]
	if s.Job == "" {
		return true
	}
	return c.write(c.invocation(s))
}

// request sends a command. The client repeats the command on later connections until it is
// answered.
func (c *client) request(o *arcp.Envelope) bool {
	c.pending = append(c.pending, o)
	return c.write(o)
}

// send sends a command, and repeats it only if an answer is promised.
func (c *client) send(o *arcp.Envelope, answered bool) bool {
	if answered {
		return c.request(o)
	}
	return c.write(o)
}

// cancel cancels a job of the principal.
func (c *client) cancel() bool {
	job, ok := c.shared.pick(c.rnd, c.principal.Name, "")
	if !ok {
		return true
	}
	if _, again := c.stream.Cancelled[job]; !again {
		c.stream.Cancelled[job] = false
	}
	return c.send(c.compose(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(job)}), c.library.can.cancel)
}

// follow subscribes to a job of another session of the principal with its history. The job may be
// followed already.
func (c *client) follow() bool {
	job, ok := c.shared.pick(c.rnd, c.principal.Name, c.stream.Session)
	if !ok {
		return true
	}
	f := c.stream.Follows[job]
	if f == nil {
		f = &Follow{}
		c.stream.Follows[job] = f
	} else if !f.Confirmed { // the earlier subscription is still pending
		return true
	}
	o := c.compose(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: job, History: true})
	f.ID = o.ID
	return c.request(o)
}

// ack acknowledges the received events, if the client acknowledges at all. A client that never
// does can be sent all events again.
func (c *client) ack() bool {
	if !c.acks {
		return true
	}
	c.acked = max(c.acked, c.stream.Position())
	return c.write(c.compose(arcp.SessionAck, arcp.SessionAckPayload{LastProcessedSeq: c.acked}))
}

// probeForeignJob asks for a job of another principal.
func (c *client) probeForeignJob() bool {
	if len(c.others) == 0 {
		return true
	}
	job, ok := c.shared.pick(c.rnd, c.others[c.rnd.IntN(len(c.others))].Name, "")
	if !ok {
		return true
	}
	o := c.compose(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(job)})
	answered := c.library.can.cancel
	if c.library.can.probe && c.rnd.IntN(2) == 0 {
		o = c.compose(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: job, History: true})
		answered = true
	}
	c.stream.Foreign[o.ID] = true
	return c.send(o, answered)
}

// unfinished counts the submits without an end.
func (s *Stream) unfinished() (n int) {
	for _, submit := range s.Submits {
		if v := s.Jobs[submit.Job]; v == nil || v.End == nil {
			n++
		}
	}
	return n
}
