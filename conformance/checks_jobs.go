package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func jobLife(_ context.Context, t *T) {
	c := t.Open()
	id := c.Submit("demo.echo", map[string]any{"hello": "world"})
	accepted := c.Expect("a right submit is accepted", arcp.JobAccepted, id)
	started := c.Expect("an accepted job is started", arcp.JobStarted, id)
	completed := c.Expect("a started job ends", arcp.JobCompleted, id)

	for i, f := range []*Frame{accepted, started, completed} {
		want(t, "the numbers begin at 1", f.EventSeq, uint64(i+1))
		want(t, "every event names its session", f.SessionID, c.Session)
		t.Want("every event names its job", f.JobID.Valid() && f.JobID == accepted.JobID, "%s has %q", f, f.JobID)
	}
	want(t, "the payload names the job too", payload[arcp.JobAcceptedPayload](t, accepted).JobID, accepted.JobID)
	want(t, "the result is the tool's", string(payload[arcp.JobCompletedPayload](t, completed).Value), `{"hello":"world"}`)
	c.ExpectNothing("a job ends once")
}

func jobNumbers(_ context.Context, t *T) {
	c := t.Open()
	next := uint64(1)
	for i := range 5 {
		job := c.Invoke("demo.emit", map[string]any{"count": i, "bytes": 10})
		for _, f := range job.Events {
			want(t, "numbers go on from job to job", f.EventSeq, next)
			next++
		}
	}
}

func jobSessionsCountApart(_ context.Context, t *T) {
	a, b := t.Open(), t.Open()
	for i := range uint64(3) {
		for _, c := range []*Conn{a, b} {
			job := c.Invoke("demo.echo", map[string]any{})
			want(t, "another session's events are not counted here", job.Event(0).EventSeq, 3*i+1)
		}
	}
}

func jobTraceKept(_ context.Context, t *T) {
	c := t.Open()
	for _, trace := range []string{"trace_789", "4bf92f3577b34da6a3ce929d0e0e4736", "x"} {
		job := c.Invoke("demo.progress", map[string]any{"steps": 3, "interval_ms": 0},
			func(env *arcp.Envelope) { env.TraceID = trace })
		for _, f := range job.Events {
			want(t, "a trace runs through every event of its job: "+f.String(), f.TraceID, trace)
		}
	}
}

func jobTraceMade(_ context.Context, t *T) {
	c := t.Open()
	a := c.Invoke("demo.echo", map[string]any{}).End().TraceID
	b := c.Invoke("demo.echo", map[string]any{}).End().TraceID
	for _, trace := range []string{a, b} {
		t.Want("a trace the server makes is 32 hexadecimal digits", len(trace) == 32 && strings.Trim(trace, "0123456789abcdef") == "",
			"got %q", trace)
	}
	t.Want("every job gets a trace of its own", a != b, "both have %q", a)
}

func jobTraceparent(_ context.Context, t *T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	job := t.Open().Invoke("demo.progress", map[string]any{"steps": 2, "interval_ms": 0},
		func(env *arcp.Envelope) { env.TraceID = "00-" + trace + "-" + span + "-01" })
	own := job.Event(0).SpanID
	t.Want("a job has a span of its own", own != "" && own != span, "got %q", own)
	for _, f := range job.Events {
		want(t, "the trace is the client's: "+f.String(), f.TraceID, trace)
		want(t, "the client's span is the parent: "+f.String(), f.ParentSpanID, span)
		want(t, "every event is in the span of its job: "+f.String(), f.SpanID, own)
	}
}

func jobCausation(_ context.Context, t *T) {
	cause := arcp.NewMessageID()
	job := t.Open().Invoke("demo.progress", map[string]any{"steps": 2, "interval_ms": 0},
		func(env *arcp.Envelope) { env.CausationID = cause })
	for _, f := range job.Events {
		want(t, "what a job comes from can be told from its events: "+f.String(), f.CausationID, cause)
	}
}

func jobAcceptedPayload(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.echo", map[string]any{})
	p := payload[arcp.JobAcceptedPayload](t, job.Event(0))
	want(t, "the client learns which version runs", p.Agent, "demo.echo@1.0.0")
	want(t, "no credential was asked for", len(p.Credentials), 0)
	t.Want("credentials are left out when there are none", !hasMember(job.Event(0).Payload, "credentials"), "they are there")
}

func jobEchoBytes(_ context.Context, t *T) {
	c := t.Open()
	for _, args := range []string{
		`{}`, `{"a":1}`, `{"b":1,"a":2}`,
		`{"big":123456789012345678901234567890,"neg":-0,"exp":1E400,"small":1e-400,"one":1.0,"same":1}`,
		`{"precise":0.1000000000000000055511151231257827,"max":18446744073709551615,"min":-9223372036854775808}`,
		`{"escape":"\u0041\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\","plain":"Aé😀/"}`,
		`{"html":"<b>&amp;</b>\u2028\u2029","nul":"\u0000"}`,
		`{"":"empty name","a b":"space","ключ":"значение"}`,
		`{"null":null,"list":[null,[],{},[[[]]],true,false,""],"nested":{"a":{"b":{"c":{}}}}}`,
		`{"arcp":"1.1","id":"msg_inner","type":"ping","payload":{"token":"not one"}}`,
	} {
		got := c.Completed("demo.echo returns its arguments", c.Invoke("demo.echo", arcp.Raw(args)))
		want(t, "not a byte is changed", string(got), args)
	}
}

func jobEchoSpace(_ context.Context, t *T) {
	c := t.Open()
	const args = "{ \"spaced\" : [ 1 ,\t2 ] , \"x\": { } }" // a newline could not be kept on every transport
	id := c.Send(arcp.ToolInvoke, arcp.Raw(`{"tool":"demo.echo","arguments":`+args+`}`))
	got := c.Completed("demo.echo returns its arguments", c.Follow(id))
	want(t, "not even white space is changed", string(got), args)
}

func jobArgumentsDefault(_ context.Context, t *T) {
	c := t.Open()
	for _, p := range []string{`{"tool":"demo.echo"}`, `{"tool":"demo.echo","arguments":{}}`, `{"tool":"demo.echo","arguments":null}`} {
		id := c.Send(arcp.ToolInvoke, arcp.Raw(p))
		got := c.Completed("arguments may be left out", c.Follow(id))
		want(t, "no arguments are an empty object", string(got), `{}`)
	}
}

func jobVersionPinned(_ context.Context, t *T) {
	c := t.Open()
	args := map[string]any{"a": 1}
	for _, v := range []struct{ tool, agent, value string }{
		{"demo.echo", "demo.echo@1.0.0", `{"a":1}`},
		{"demo.echo@1.0.0", "demo.echo@1.0.0", `{"a":1}`},
		{"demo.echo@0.9.0", "demo.echo@0.9.0", `{"legacy":{"a":1}}`},
	} {
		job := c.Invoke(v.tool, args)
		want(t, v.tool+" runs what it names", string(c.Completed(v.tool+" is there", job)), v.value)
		want(t, "job.accepted says what runs", payload[arcp.JobAcceptedPayload](t, job.Event(0)).Agent, v.agent)
	}
}

func jobVersionUnknown(_ context.Context, t *T) {
	c := t.Open()
	for _, tool := range []string{"demo.echo@9.9.9", "demo.echo@1", "demo.echo@1.0.0-rc.1", "demo.echo@latest"} {
		c.ExpectRefused(tool+" is not there", c.Submit(tool, map[string]any{}), arcp.CodeAgentVersionNotAvailable)
	}
}

func jobNameUnknown(_ context.Context, t *T) {
	c := t.Open()
	for _, tool := range []string{"no.such.tool", "demo.echoo", "demo", "no.such.tool@1.0.0", "0"} {
		c.ExpectRefused(tool+" is not there", c.Submit(tool, map[string]any{}), arcp.CodeAgentNotAvailable)
	}
	c.ExpectNothing("a refused submit is answered once")
}

func jobNameMalformed(_ context.Context, t *T) {
	c := t.Open()
	for _, tool := range []string{"Demo.echo", "demo echo", "demo.echo@", "@1.0.0", "demo.echo@1.0.0@2", "-demo", ".demo", "démo",
		"demo/echo", "demo.echo@1 0", strings.Repeat("d", 300)} {
		c.ExpectRefused(fmt.Sprintf("%.40q is no name", tool), c.Submit(tool, map[string]any{}), arcp.CodeInvalidArgument)
	}
}

func jobRefusalMakesNoJob(_ context.Context, t *T) {
	c := t.Open()
	c.ExpectRefused("demo.echo@9.9.9 is not there", c.Submit("demo.echo@9.9.9", map[string]any{}), arcp.CodeAgentVersionNotAvailable)
	job := c.Invoke("demo.echo", map[string]any{})
	want(t, "a refusal uses up no number", job.Event(0).EventSeq, 1)
	jobs := c.listAll(c.here(), 100)
	t.Want("only what was accepted is a job", len(jobs) == 1 && jobs[0].JobID == job.ID, "got %d jobs", len(jobs))
}

func jobProgress(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.progress", map[string]any{"steps": 5, "interval_ms": 1})
	c.Completed("demo.progress ends well", job)
	steps := job.Of(arcp.JobProgress)
	want(t, "every step is told", len(steps), 5)
	for i, f := range steps {
		p := payload[arcp.JobProgressPayload](t, f)
		want(t, "progress counts up", p.Current, float64(i+1))
		t.Want("progress knows its total", p.Total != nil && *p.Total == 5, "got %s", f.Payload)
		t.Want("percent, where given, is the ratio", p.Percent == nil || *p.Percent == float64(i+1)*20, "got %s", f.Payload)
	}
}

// logged checks the log events of demo.emit.
func (t *T) logged(job *Job, count, size int) {
	logs := job.Of(arcp.Log)
	want(t, "every event arrives", len(logs), count)
	for i, f := range logs {
		p := payload[arcp.LogPayload](t, f)
		var attr struct {
			N *int `json:"n"`
		}
		err := arcp.Unmarshal(p.Attributes, &attr)
		t.Want("events come in the order they were emitted", err == nil && attr.N != nil && *attr.N == i, "event %d has attributes %s", i, p.Attributes)
		want(t, "a message arrives whole", len(p.Message), size)
	}
}

func jobLog(_ context.Context, t *T) {
	c := t.Open()
	for _, count := range []int{0, 1, 500} {
		job := c.Invoke("demo.emit", map[string]any{"count": count, "bytes": 64})
		t.logged(job, count, 64)
		want(t, "the result says how many there were", string(c.Completed("demo.emit ends well", job)), fmt.Sprintf(`{"emitted":%d}`, count))
	}
}

func jobLogLarge(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.emit", map[string]any{"count": 4, "bytes": 262_144})
	t.logged(job, 4, 262_144)
}

func jobMetric(_ context.Context, t *T) {
	c := t.Open()
	id := c.submit(arcp.ToolInvokePayload{Tool: "demo.spend",
		Arguments:     c.raw(map[string]any{"currency": "USD", "amount": "0.25", "times": 3}),
		SubmitOptions: arcp.SubmitOptions{LeaseRequest: arcp.Raw(`{"tool.call":["demo.spend"],"cost.budget":["USD:5.00"]}`)}})
	job := c.Follow(id)
	c.Completed("spending within the budget is fine", job)
	costs := 0
	for _, f := range job.Of(arcp.Metric) {
		p := payload[arcp.MetricPayload](t, f)
		if p.Name != "cost.demo" {
			continue
		}
		costs++
		want(t, "the currency is the unit", p.Unit, "USD")
		want(t, "the amount is the value", string(p.Value), "0.25")
	}
	want(t, "every cost is told", costs, 3)
}

func jobSleep(_ context.Context, t *T) {
	c := t.Open()
	begin := time.Now()
	job := c.Invoke("demo.sleep", map[string]any{"ms": 50})
	c.Completed("demo.sleep ends well", job)
	t.Want("a sleep is not cut short", time.Since(begin) >= 45*time.Millisecond, "it took %v", time.Since(begin))
}

func jobConcurrent(_ context.Context, t *T) {
	c := t.Open()
	long := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := c.AwaitStarted(long)
	for range 3 {
		short := c.Submit("demo.sleep", map[string]any{"ms": 1})
		c.Await("a long job does not hold up a short one", arcp.JobCompleted, short)
	}
	c.Cancel(job, 5000)
	c.Follow(long)
}

func jobTimeout(_ context.Context, t *T) {
	c := t.Open()
	limit := arcp.Number("1")
	id := c.submit(arcp.ToolInvokePayload{Tool: "demo.sleep", Arguments: arcp.Raw(`{"ms":60000}`),
		SubmitOptions: arcp.SubmitOptions{MaxRuntimeSec: &limit}})
	end := c.Follow(id).End()
	t.Want("a job does not run longer than it may", end.Type == arcp.JobFailed, "got %s", end)
	t.wantCode("a job does not run longer than it may", end, arcp.CodeTimeout)
	want(t, "trying again would take as long", payload[arcp.ErrorPayload](t, end).Retryable, false)
}

func jobTimeoutMalformed(_ context.Context, t *T) {
	c := t.Open()
	for _, limit := range []string{`0`, `-1`, `"1"`, `[]`} {
		id := c.Send(arcp.ToolInvoke, arcp.Raw(`{"tool":"demo.echo","arguments":{},"max_runtime_sec":`+limit+`}`))
		c.ExpectRefusal("max_runtime_sec "+limit+" means nothing", id, arcp.CodeInvalidArgument, arcp.CodeInvalidRequest)
	}
}

func jobSurvivesDrop(_ context.Context, t *T) {
	a := t.Open()
	submit := a.Submit("demo.sleep", map[string]any{"ms": 100})
	job := a.AwaitStarted(submit)
	session := a.Session
	a.Drop()
	t.outcome(job, session)
}

// jobWholeResult is about a client that did not list result_chunk.
func jobWholeResult(_ context.Context, t *T) {
	c := t.Open()
	args := `{"data":"` + strings.Repeat("é0123456789", 70_000) + `"}`
	job := c.Invoke("demo.echo", arcp.Raw(args))
	p := payload[arcp.JobCompletedPayload](t, job.End())
	want(t, "the result arrives whole", string(p.Value), args)
	want(t, "without a reference to chunks", p.ResultID, "")
	want(t, "no chunk is sent", len(job.Of(arcp.JobResultChunk)), 0)
}

func jobLargeResult(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureResultChunk))
	args := `{"data":"` + strings.Repeat("é0123456789", 70_000) + `"}`
	job := c.Invoke("demo.echo", arcp.Raw(args))
	end := job.End()
	p := payload[arcp.JobCompletedPayload](t, end)
	if p.Value != nil {
		want(t, "the result arrives whole", string(p.Value), args)
		return
	}
	var result bytes.Buffer
	for i, f := range job.Of(arcp.JobResultChunk) {
		chunk := payload[arcp.JobResultChunkPayload](t, f)
		want(t, "chunks belong to the result", chunk.ResultID, p.ResultID)
		want(t, "chunks are counted", chunk.ChunkSeq, uint64(i))
		want(t, "only the last says that there are no more", chunk.More, i < len(job.Of(arcp.JobResultChunk))-1)
		if chunk.Encoding == "base64" {
			part, err := base64.StdEncoding.DecodeString(chunk.Data)
			t.Want("base64 decodes", err == nil, "%v", err)
			result.Write(part)
		} else {
			result.WriteString(chunk.Data)
		}
	}
	t.Want("the chunks add up", result.String() == args, "got %d bytes, want %d", result.Len(), len(args))
	t.Want("the size is the decoded one", p.ResultSize != nil && *p.ResultSize == uint64(len(args)), "got %s", end.Payload)
}

// longestInterval is how long a check may wait for a heartbeat.
const longestInterval = 2

func jobHeartbeat(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureHeartbeat))
	interval := c.Accepted.Capabilities.HeartbeatInterval
	switch {
	case interval <= 0:
		t.Skipf("the server does not say how often jobs send heartbeats")
	case interval > longestInterval:
		t.Skipf("heartbeats come every %d s, which is too long to wait for", interval)
	}
	submit := c.Submit("demo.sleep", map[string]any{"ms": interval * 3500})
	job := c.AwaitAccepted(submit)
	var beats []arcp.JobHeartbeatPayload
	for {
		f := c.next("a job ends")
		if f.JobID == job && f.Type == arcp.JobHeartbeat {
			beats = append(beats, payload[arcp.JobHeartbeatPayload](t, f))
		}
		if f.CorrelationID == submit && f.Type.Terminal() {
			break
		}
	}
	t.Want("three intervals bring at least two heartbeats", len(beats) >= 2, "got %d", len(beats))
	for i, b := range beats {
		want(t, "the job runs", b.State, string(arcp.StateRunning))
		t.Want("heartbeats are counted", i == 0 || b.Sequence > beats[i-1].Sequence, "%d follows %d", b.Sequence, beats[max(i-1, 0)].Sequence)
	}
}

func jobUnknownOptions(_ context.Context, t *T) {
	c := t.Open()
	id := c.Send(arcp.ToolInvoke, arcp.Raw(`{"tool":"demo.echo","arguments":{"a":1},"something_new":{"x":[1,null]},"y":null}`))
	want(t, "a newer client may say more", string(c.Completed("a newer client may say more", c.Follow(id))), `{"a":1}`)
}

func jobPriority(_ context.Context, t *T) {
	c := t.Open()
	for _, p := range []arcp.Priority{arcp.PriorityLow, arcp.PriorityHigh, arcp.PriorityCritical} {
		job := c.Invoke("demo.echo", map[string]any{}, func(env *arcp.Envelope) { env.Priority = p })
		c.Completed("priority "+string(p)+" is taken", job)
	}
}
