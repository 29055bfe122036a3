package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func mcpContent(_ context.Context, t *T) {
	c := t.Open()
	var got struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		Structured arcp.Raw `json:"structuredContent"`
	}
	c.call(&got, mcpTools+"echo", map[string]any{"text": "ü \x00 <&>"})
	t.Want("the content is the server's", len(got.Content) == 1 && got.Content[0].Type == "text" && got.Content[0].Text == "ü \x00 <&>", "it is %+v", got)
	t.Want("and nothing is added", got.Structured == nil, "there is %s", got.Structured)
}

func mcpStructured(_ context.Context, t *T) {
	c := t.Open()
	want(t, "the structured content is the result", string(c.Completed("it ends well", c.Invoke(mcpTools+"count", map[string]any{"text": "seven77"}))), `{"n":7}`)
}

func mcpSchema(_ context.Context, t *T) {
	t.Open().fault("a result that does not fit is none", mcpTools+"count", map[string]any{"text": "seven", "invalid": true}, arcp.CodeInternal)
}

func mcpArguments(_ context.Context, t *T) {
	c := t.Open()
	c.ExpectRefused("arguments that do not fit are not sent", c.Submit(mcpTools+"echo", map[string]any{}), arcp.CodeInvalidArgument)
}

func mcpError(_ context.Context, t *T) {
	p := payload[arcp.ErrorPayload](t, t.Open().fault("an error is no result", mcpTools+"fail", map[string]any{"text": "out of paper"}, arcp.CodeUnknown))
	want(t, "its text is why", p.Message, "out of paper")
}

func mcpRefused(_ context.Context, t *T) {
	c := t.Open()
	p := payload[arcp.ErrorPayload](t, c.fault("it was not done", mcpTools+"refuse", map[string]any{"text": "not today", "code": -32042}, arcp.CodeUnknown))
	wantText(t, "the server's words are there", p.Message, "not today")
	want(t, "and its code", string(p.Details), `{"mcp_code":-32042}`)
	p = payload[arcp.ErrorPayload](t, c.fault("invalid params are arguments", mcpTools+"refuse", map[string]any{"text": "not so", "code": -32602}, arcp.CodeInvalidArgument))
	wantText(t, "the server's words are there", p.Message, "not so")
}

func mcpProgress(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke(mcpTools+"progress", map[string]any{"steps": 3})
	c.Completed("it ends well", job)
	var got []string
	for _, f := range job.Of(arcp.JobProgress) {
		p := payload[arcp.JobProgressPayload](t, f)
		t.Want("of how many is told", p.Total != nil, "it is not")
		got = append(got, fmt.Sprint(p.Current, "/", *p.Total, " ", p.Message))
	}
	want(t, "each step is told", strings.Join(got, ", "), "1/3 a step, 2/3 a step, 3/3 a step")
}

func mcpLog(_ context.Context, t *T) {
	c := t.Open()
	for level, mine := range map[string]string{"info": "info", "warning": "warn", "error": "error", "emergency": "critical"} {
		job := c.Invoke(mcpTools+"log", map[string]any{"text": "about " + level, "level": level})
		c.Completed("it ends well", job)
		logs := job.Of(arcp.Log)
		want(t, "what is logged is an event of the job", len(logs), 1)
		p := payload[arcp.LogPayload](t, logs[0])
		want(t, "with its level and its words", p.Level+" "+p.Message, mine+" about "+level)
	}
}

func mcpCancel(_ context.Context, t *T) {
	c, key := t.Open(), newTrace()
	submit := c.Submit(mcpTools+"wait", map[string]any{"key": key})
	job := c.AwaitStarted(submit)
	c.Await("the server has the call", arcp.JobProgress, submit)
	c.Expect("a cancel is answered before its effect", arcp.CancelAccepted, c.Cancel(job, 5000))
	want(t, "the job ends", c.outcomeOf(submit).End().Type, arcp.JobCancelled)
	var told struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	answer := ""
	for late := t.late(); answer != "true" && time.Now().Before(late); {
		c.call(&told, mcpTools+"told", map[string]any{"key": key})
		want(t, "the content is the server's", len(told.Content), 1)
		answer = told.Content[0].Text
	}
	want(t, "the server is told", answer, "true")
	c.ExpectNothing("a job ends once")
}

func mcpChanged(_ context.Context, t *T) {
	c, watcher := t.Open(), t.Open()
	watcher.catalogue = true
	name := strings.ToLower(strings.TrimPrefix(string(arcp.NewMessageID()), arcp.MessagePrefix))
	told := func(why string, in func(data catalogueChange) []string) string {
		for {
			if data, ok := watcher.changed(why); ok {
				if i := slices.IndexFunc(in(data), func(ref string) bool { return strings.HasPrefix(ref, mcpTools+name+"@") }); i >= 0 {
					return in(data)[i]
				}
			}
		}
	}
	c.Completed("the server makes a tool", c.Invoke(mcpTools+"add", map[string]any{"name": name}))
	ref := told("what is new is told", func(data catalogueChange) []string { return data.Added })
	c.Completed("and can be called", c.Invoke(ref, map[string]any{"text": "x"}))
	c.Completed("the server takes it away", c.Invoke(mcpTools+"remove", map[string]any{"name": name}))
	told("what is gone is told", func(data catalogueChange) []string { return data.Removed })
	c.fault("and is not there", ref, map[string]any{"text": "x"}, arcp.CodeAgentNotAvailable)
}

func mcpSource(_ context.Context, t *T) { t.Open().wantSource(mcpTools+"echo", "mcp") }

// catalogueChange is the data of tools.changed.
type catalogueChange struct {
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
}

// changed reads the next frame, which may be a tools.changed.
func (c *Conn) changed(why string) (data catalogueChange, ok bool) {
	f := c.next(why)
	if f.Type != arcp.EventEmit {
		return data, false
	}
	p := payload[arcp.EventEmitPayload](c.t, f)
	if p.Name != arcp.EventToolsChanged {
		return data, false
	}
	if err := arcp.Unmarshal(p.Data, &data); err != nil {
		c.t.Failf("the data is %s: %v", p.Data, err)
	}
	return data, true
}
