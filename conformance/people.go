package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Checks that ask people run at the same time, and each of their sessions with
// human_input is asked what the others' jobs ask. So they look only at what is
// about their own jobs.

// human is the need of checks with a person.
var human = Capability(string(arcp.FeatureHumanInput))

// Human opens a session with a person.
func (t *T) Human(with ...func(*arcp.SessionOpenPayload)) *Conn {
	return t.Open(append(with, offer(arcp.FeatureHumanInput))...)
}

// askMS is when the questions of a check expire if it does not answer them: a
// check that fails should not leave them to the others for long.
const askMS = 60_000

// about reads until a frame of the type about a job comes.
func (c *Conn) about(why string, typ arcp.Type, job arcp.JobID) *Frame {
	for {
		f := c.next(why)
		switch {
		case f.JobID != job:
		case f.Type == typ:
			return f
		case f.Type.Terminal():
			c.t.Failf("%s: got %s, want %s", why, f, typ)
		}
	}
}

// nothingAbout wants nothing about a job to have come from what was sent before.
// Heartbeats may come at any time.
func (c *Conn) nothingAbout(why string, job arcp.JobID) {
	id, _ := c.Ping()
	for {
		f := c.next(why)
		switch {
		case f.Type == arcp.Pong && f.CorrelationID == id:
			return
		case f.JobID == job && f.Type != arcp.JobHeartbeat:
			c.t.Failf("%s: got %s", why, f)
		}
	}
}

// answeringTo correlates an answer to a question.
func answeringTo(question *Frame) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) { env.CorrelationID = question.ID }
}

// respond answers a question for a value.
func (c *Conn) respond(question *Frame, value any) arcp.MessageID {
	return c.Send(arcp.HumanInputResponse, arcp.HumanInputResponsePayload{Value: c.raw(value), RespondedBy: "conformance", RespondedAt: time.Now().UTC()},
		answeringTo(question))
}

// choose answers a question with one of its options.
func (c *Conn) choose(question *Frame, option string) arcp.MessageID {
	return c.Send(arcp.HumanChoiceResponse, arcp.HumanChoiceResponsePayload{ChoiceID: option, RespondedBy: "conformance", RespondedAt: time.Now().UTC()},
		answeringTo(question))
}

// grant answers a question for a permission.
func (c *Conn) grant(question *Frame, p arcp.PermissionGrantPayload) arcp.MessageID {
	return c.Send(arcp.PermissionGrant, p, answeringTo(question))
}

// deny refuses a permission.
func (c *Conn) deny(question *Frame, reason string) arcp.MessageID {
	permission := payload[arcp.PermissionRequestPayload](c.t, question).Permission
	return c.Send(arcp.PermissionDeny, arcp.PermissionDenyPayload{Permission: permission, Reason: reason}, answeringTo(question))
}

// taken wants an answer to be the one that counts.
func (c *Conn) taken(id arcp.MessageID) {
	c.Await("the first valid answer counts", arcp.Ack, id)
}

// refuses wants a message to be refused with one of the codes.
func (c *Conn) refuses(why string, id arcp.MessageID, codes ...arcp.Code) {
	f := c.Answer(why, id)
	if f.Type != arcp.Nack {
		c.t.Failf("%s: got %s, want nack", why, f)
	}
	want(c.t, "a refusal is no event of a job", f.EventSeq, 0)
	c.t.wantCode(why, f, codes...)
}

// withdrawn wants a question to be withdrawn, which may have come before.
func (c *Conn) withdrawn(why string, question *Frame, code arcp.Code) {
	f := c.rec.withdrawalOf(question)
	for ; f == nil; f = c.rec.withdrawalOf(question) {
		if next := c.next(why); next.JobID == question.JobID && next.Type.Terminal() {
			c.t.Failf("%s: got %s, want %s", why, next, arcp.HumanInputCancelled)
		}
	}
	want(c.t, "the withdrawal is of the question's job", f.JobID, question.JobID)
	want(c.t, "the withdrawal says why", payload[arcp.HumanInputCancelledPayload](c.t, f).Code, code)
}

// withdrawalOf returns the withdrawal of a question if it came.
func (r *record) withdrawalOf(question *Frame) *Frame {
	for _, f := range r.events {
		if f.Type == arcp.HumanInputCancelled && f.CorrelationID == question.ID {
			return f
		}
	}
	return nil
}

// outcomeOf is what Follow is where the job may have gone on while something else
// was waited for.
func (c *Conn) outcomeOf(submit arcp.MessageID) *Job {
	for {
		job := &Job{Submit: submit}
		for _, f := range c.rec.upTo(c.rec.last()) {
			if f.CorrelationID != submit || f.JobID == "" {
				continue
			}
			job.ID, job.Events = f.JobID, append(job.Events, f)
			if f.Type.Terminal() {
				return job
			}
		}
		if f := c.next("a job ends with a terminal event"); f.CorrelationID == submit && f.EventSeq == 0 && f.Type != arcp.JobHeartbeat {
			c.t.Failf("the submit is right: got %s", f)
		}
	}
}

// ended reports whether the end of a job has been read.
func (c *Conn) ended(submit arcp.MessageID) bool {
	for _, f := range c.rec.upTo(c.rec.last()) {
		if f.CorrelationID == submit && f.Type.Terminal() {
			return true
		}
	}
	return false
}

// endsWith wants a job that this session submitted to fail with a code.
func (c *Conn) endsWith(why string, submit arcp.MessageID, code arcp.Code) arcp.ErrorPayload {
	return c.failedWith(why, c.outcomeOf(submit), code)
}

func (c *Conn) failedWith(why string, job *Job, code arcp.Code) arcp.ErrorPayload {
	end := job.End()
	if end.Type != arcp.JobFailed || end.EventSeq == 0 {
		c.t.Failf("%s: got %s, want job.failed of a job that was accepted", why, end)
	}
	c.t.wantCode(why, end, code)
	return payload[arcp.ErrorPayload](c.t, end)
}

// result wants a job to have succeeded and decodes its value.
func (c *Conn) result(value any, job *Job) {
	raw := c.Completed("the job ends well", job)
	if err := arcp.Unmarshal(raw, value); err != nil {
		c.t.Failf("the result is %s: %v", raw, err)
	}
}

// stateOf is the state of a job of this session in the list.
func (c *Conn) stateOf(job arcp.JobID) string {
	e := c.entry(job, c.Session)
	c.t.Want("a job is listed", e != nil, "%s is not", job)
	return e.Status
}

// passes lets at least so much of the server's time pass, by having a job take it.
func (c *Conn) passes(ms int) {
	c.Completed("a job takes its time", c.Invoke("demo.sleep", map[string]any{"ms": ms}))
}

// finish cancels a job and waits for its end.
func (c *Conn) finish(submit arcp.MessageID, job arcp.JobID) *Job {
	c.Cancel(job, 5000)
	return c.outcomeOf(submit)
}

// wantSeen wants the events that a session was sent of a job to be of these types.
func (c *Conn) wantSeen(why string, job arcp.JobID, expected ...arcp.Type) {
	var types []arcp.Type
	for _, f := range c.rec.upTo(c.rec.last()) {
		if f.JobID == job {
			types = append(types, f.Type)
		}
	}
	want(c.t, why, joined(types), joined(expected))
}

func joined(types []arcp.Type) string {
	var s []string
	for _, typ := range types {
		s = append(s, string(typ))
	}
	return strings.Join(s, " ")
}

// restarted is a session after the server was started again, where its client has
// left it.
func (t *T) restarted(ctx context.Context, c *Conn) *Conn {
	t.Restart(ctx)
	return c.Cut()
}
