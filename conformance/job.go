package conformance

import (
	"fmt"

	"github.com/arcpd/arcpd/arcp"
)

// Submit sends a tool.invoke. Arguments of type arcp.Raw go out as they are.
func (c *Conn) Submit(tool string, arguments any, with ...func(*arcp.Envelope)) arcp.MessageID {
	return c.submit(arcp.ToolInvokePayload{Tool: tool, Arguments: c.raw(arguments)}, with...)
}

func (c *Conn) submit(p arcp.ToolInvokePayload, with ...func(*arcp.Envelope)) arcp.MessageID {
	return c.Send(arcp.ToolInvoke, p, with...)
}

func (c *Conn) raw(v any) arcp.Raw {
	raw, err := arcp.Marshal(v)
	if err != nil {
		c.t.Failf("the check's arguments cannot be encoded: %v", err)
	}
	return raw
}

// Job is what was seen of one job.
type Job struct {
	ID     arcp.JobID
	Submit arcp.MessageID
	Events []*Frame // in the order they came, job.accepted and the end included
}

// Event is the i-th event of the job, from 0. A server that sends fewer has not done what
// the check asked for.
func (j *Job) Event(i int) *Frame {
	if i < 0 || i >= len(j.Events) {
		panic(finding(fmt.Sprintf("job %s has %d events, want more than %d: %v", j.ID, len(j.Events), i, j.Events)))
	}
	return j.Events[i]
}

// EventsFrom are the events from the i-th on, maybe none.
func (j *Job) EventsFrom(i int) []*Frame {
	if i > len(j.Events) {
		panic(finding(fmt.Sprintf("job %s has %d events, want at least %d: %v", j.ID, len(j.Events), i, j.Events)))
	}
	return j.Events[i:]
}

// End is the job's terminal event.
func (j *Job) End() *Frame { return j.Events[len(j.Events)-1] }

// Of returns the events of one type.
func (j *Job) Of(typ arcp.Type) []*Frame {
	var list []*Frame
	for _, f := range j.Events {
		if f.Type == typ {
			list = append(list, f)
		}
	}
	return list
}

// AwaitAccepted reads until the submit is accepted.
func (c *Conn) AwaitAccepted(id arcp.MessageID) arcp.JobID {
	return c.Await("a right tool.invoke is accepted", arcp.JobAccepted, id).JobID
}

// AwaitStarted reads until the job of a submit runs.
func (c *Conn) AwaitStarted(id arcp.MessageID) arcp.JobID {
	return c.Await("an accepted job is started", arcp.JobStarted, id).JobID
}

// Follow reads until the job of a submit has ended and returns its events.
// Frames of other jobs, answers and heartbeats are skipped.
func (c *Conn) Follow(id arcp.MessageID) *Job {
	job := &Job{Submit: id}
	for {
		f := c.next("a job ends with a terminal event")
		if f.CorrelationID != id || f.Type == arcp.JobHeartbeat {
			continue
		}
		if f.Type == arcp.Nack {
			c.t.Failf("a tool.invoke is refused with job.failed: got %s", f)
		}
		job.Events = append(job.Events, f)
		if f.JobID != "" {
			job.ID = f.JobID
		}
		if f.Type.Terminal() {
			return job
		}
	}
}

// Invoke submits and follows.
func (c *Conn) Invoke(tool string, arguments any, with ...func(*arcp.Envelope)) *Job {
	return c.Follow(c.Submit(tool, arguments, with...))
}

// Completed wants the job to have succeeded and returns its value.
func (c *Conn) Completed(why string, job *Job) arcp.Raw {
	end := job.End()
	if end.Type != arcp.JobCompleted {
		c.t.Failf("%s: got %s, want job.completed", why, end)
	}
	return payload[arcp.JobCompletedPayload](c.t, end).Value
}

// ExpectRefused wants a submit to be answered at once with a job.failed that
// is correlated, has no event_seq, and follows no job.accepted.
func (c *Conn) ExpectRefused(why string, id arcp.MessageID, codes ...arcp.Code) arcp.ErrorPayload {
	f := c.Expect(why, arcp.JobFailed, id)
	want(c.t, "the refusal of a submit is no event of a job", f.EventSeq, 0)
	c.t.wantCode(why, f, codes...)
	return payload[arcp.ErrorPayload](c.t, f)
}

// ExpectRefusal wants a command to be refused, by nack or, as submits are, by
// job.failed.
func (c *Conn) ExpectRefusal(why string, id arcp.MessageID, codes ...arcp.Code) *Frame {
	f := c.event(why)
	if f.Type != arcp.JobFailed {
		c.match(why, f, arcp.Nack, id)
	}
	c.match(why, f, f.Type, id)
	want(c.t, "a refusal is no event of a job", f.EventSeq, 0)
	c.t.wantCode(why, f, codes...)
	return f
}

// Cancel asks for the end of a job.
func (c *Conn) Cancel(job arcp.JobID, deadlineMS uint64) arcp.MessageID {
	return c.Send(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(job),
		Reason: "conformance", DeadlineMS: &deadlineMS})
}
