package conformance

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
)

// failing submits demo.fail with a retry option.
func (c *Conn) failing(retry, arguments string) arcp.MessageID {
	return c.submit(arcp.ToolInvokePayload{Tool: "demo.fail", Arguments: arcp.Raw(arguments),
		SubmitOptions: arcp.SubmitOptions{Retry: arcp.Raw(retry)}})
}

const unavailable = `{"code":"UNAVAILABLE","message":"not now"}`

// retried is the data of the event that announces a retry.
type retried struct {
	Attempt int       `json:"attempt"`
	Code    arcp.Code `json:"code"`
	DelayMS int       `json:"delay_ms"`
}

// retryOf wants the event to announce a retry.
func (t *T) retryOf(f *Frame) (r retried) {
	p := payload[arcp.EventEmitPayload](t, f)
	want(t, "a retry is announced", p.Name, "retry")
	if err := arcp.Unmarshal(p.Data, &r); err != nil {
		t.Failf("the announcement of a retry is %s: %v", p.Data, err)
	}
	return r
}

func retryAttempts(_ context.Context, t *T) {
	c := t.Open()
	job := c.Follow(c.failing(`{"max_attempts":3,"initial_ms":10,"factor":2}`, unavailable))
	t.wantTypes(job, arcp.JobAccepted, arcp.JobStarted, arcp.EventEmit, arcp.JobStarted, arcp.EventEmit, arcp.JobStarted, arcp.JobFailed)
	for i, f := range job.Of(arcp.EventEmit) {
		r := t.retryOf(f)
		want(t, "the attempt to come is told", r.Attempt, i+2)
		want(t, "the reason is told", r.Code, arcp.CodeUnavailable)
		least, most := 8<<i, 12<<i
		t.Want("the wait is told, and doubles", r.DelayMS >= least && r.DelayMS <= most, "it is %d ms, want %d to %d", r.DelayMS, least, most)
	}
	t.wantCode("the last failure is the job's", job.End(), arcp.CodeUnavailable)
	c.ExpectNothing("a job ends once")
}

// wantTypes wants the events of a job to be of these types.
func (t *T) wantTypes(job *Job, types ...arcp.Type) {
	for i, typ := range types {
		t.Want("the events of the job", i < len(job.Events), "got %v, want %v", job.Events, types)
		want(t, "the events of the job", job.Event(i).Type, typ)
	}
	want(t, "the events of the job", len(job.Events), len(types))
}

func retryFinal(_ context.Context, t *T) {
	c := t.Open()
	for _, args := range []string{`{"code":"DATA_LOSS","message":"gone"}`, `{"code":"UNAVAILABLE","message":"for ever","retryable":false}`} {
		job := c.Follow(c.failing(`{"max_attempts":5,"initial_ms":1}`, args))
		t.wantTypes(job, arcp.JobAccepted, arcp.JobStarted, arcp.JobFailed)
	}
}

func retryOff(_ context.Context, t *T) {
	c := t.Open()
	for _, option := range []string{`null`, `{"max_attempts":1}`} {
		job := c.Follow(c.failing(option, unavailable))
		t.wantTypes(job, arcp.JobAccepted, arcp.JobStarted, arcp.JobFailed)
	}
}

func retryFloor(_ context.Context, t *T) {
	c := t.Open()
	job := c.Follow(c.failing(`{"max_attempts":2,"initial_ms":1}`, `{"code":"RESOURCE_EXHAUSTED","message":"later","details":{"retry_after_seconds":0.2}}`))
	t.wantTypes(job, arcp.JobAccepted, arcp.JobStarted, arcp.EventEmit, arcp.JobStarted, arcp.JobFailed)
	r := t.retryOf(job.Event(2))
	t.Want("the error's own floor counts", r.DelayMS >= 200, "the wait is %d ms", r.DelayMS)
	waited := job.Event(3).Timestamp.Sub(job.Event(2).Timestamp)
	t.Want("the wait is made", waited.Milliseconds() >= 190, "it took %v", waited)
}

func retryQueued(_ context.Context, t *T) {
	c := t.Open()
	submit := c.failing(`{"max_attempts":2,"initial_ms":60000}`, unavailable)
	f := c.Await("a retry is announced", arcp.EventEmit, submit)
	want(t, "between two attempts a job waits", c.entry(f.JobID, c.Session).Status, string(arcp.StateQueued))
	c.Cancel(f.JobID, 5000)
	c.Await("a job that waits can be cancelled", arcp.JobCancelled, submit)
	c.ExpectNothing("a job ends once")
}

func retryAway(_ context.Context, t *T) {
	c := t.Open()
	submit := c.failing(`{"max_attempts":2,"initial_ms":30}`, unavailable)
	c.Await("a retry is announced", arcp.EventEmit, submit)
	c = c.Cut()
	c.Expect("the next attempt is made", arcp.JobStarted, submit)
	c.Expect("the job ends", arcp.JobFailed, submit)
}

func retryMalformed(_ context.Context, t *T) {
	c := t.Open()
	for _, option := range []string{`{}`, `[]`, `"twice"`, `3`, `{"max_attempts":0}`, `{"max_attempts":-1}`, `{"max_attempts":11}`, `{"max_attempts":"3"}`,
		`{"max_attempts":1.5}`, `{"max_attempts":2,"initial_ms":-1}`, `{"max_attempts":2,"factor":0.5}`, `{"max_attempts":2,"initial_ms":100,"max_ms":10}`} {
		c.ExpectRefused("a retry option that cannot be followed is refused: "+option, c.failing(option, unavailable),
			arcp.CodeInvalidRequest, arcp.CodeInvalidArgument)
	}
	want(t, "a refused submit makes no job", len(c.listAll(c.here(), 100)), 0)
}
