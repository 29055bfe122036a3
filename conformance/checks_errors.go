package conformance

import (
	"context"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// fails runs demo.fail and returns how its job failed.
func (c *Conn) fails(args map[string]any) arcp.ErrorPayload {
	end := c.Invoke("demo.fail", args).End()
	if end.Type != arcp.JobFailed {
		c.t.Failf("demo.fail fails: got %s", end)
	}
	return payload[arcp.ErrorPayload](c.t, end)
}

// failureCodes are the codes a job can fail with: cancelling has an event of
// its own.
func failureCodes() []arcp.CodeInfo {
	var list []arcp.CodeInfo
	for _, info := range arcp.Codes {
		if info.Code != arcp.CodeOK && info.Code != arcp.CodeCancelled {
			list = append(list, info)
		}
	}
	return list
}

func errorCodes(_ context.Context, t *T) {
	c := t.Open()
	for _, info := range failureCodes() {
		p := c.fails(map[string]any{"code": info.Code, "message": "because \"of\" this"})
		want(t, "the code is the tool's", p.Code, info.Code)
		want(t, "the message is the tool's", p.Message, "because \"of\" this")
	}
}

func errorRetryableDefault(_ context.Context, t *T) {
	c := t.Open()
	for _, info := range failureCodes() {
		p := c.fails(map[string]any{"code": info.Code, "message": "m"})
		want(t, string(info.Code)+" may be retried as the table says", p.Retryable, info.Retryable)
	}
}

func errorRetryableSaid(_ context.Context, t *T) {
	c := t.Open()
	p := c.fails(map[string]any{"code": "NOT_FOUND", "message": "m", "retryable": true})
	want(t, "the tool knows better", p.Retryable, true)
	p = c.fails(map[string]any{"code": "UNAVAILABLE", "message": "m", "retryable": false})
	want(t, "the tool knows better", p.Retryable, false)
}

func errorDetails(_ context.Context, t *T) {
	c := t.Open()
	details := `{"retry_after_seconds":30,"code":"MINE","n":1.0,"list":[null,"é"]}`
	p := c.fails(map[string]any{"code": "RESOURCE_EXHAUSTED", "message": "m", "details": arcp.Raw(details)})
	got, err := arcp.Canonical(p.Details)
	t.Want("details are JSON", err == nil, "%v", err)
	expected, _ := arcp.Canonical(arcp.Raw(details)) // a constant
	want(t, "details are the tool's", string(got), string(expected))

	f := c.Invoke("demo.fail", map[string]any{"code": "NOT_FOUND", "message": "m"}).End()
	t.Want("details are left out when there are none", !hasMember(f.Payload, "details"), "got %s", f.Payload)
}

func errorForeignCode(_ context.Context, t *T) {
	c := t.Open()
	for _, code := range []string{"MY_OWN_CODE", "RATE_LIMITED", "INTERNAL_ERROR", "OK", "", "not found"} {
		p := c.fails(map[string]any{"code": code, "message": "m"}) // the validator wants a canonical code
		t.Want("a failure has a code", p.Code.Known() && p.Code != arcp.CodeOK, "%q became %q", code, p.Code)
	}
}

func errorPanic(_ context.Context, t *T) {
	c := t.Open()
	end := c.Invoke("demo.panic", map[string]any{}).End()
	t.Want("a panic is a failure", end.Type == arcp.JobFailed, "got %s", end)
	t.wantCode("a panic is nobody's fault but the server's", end, arcp.CodeInternal)
	for _, inside := range []string{"goroutine ", ".go:", "runtime error", "/usr/", "/home/"} {
		t.Want("a client learns nothing of the inside", !strings.Contains(string(end.Payload), inside), "got %s", end.Payload)
	}
}

func errorPanicSurvived(_ context.Context, t *T) {
	c := t.Open()
	other := t.Open()
	submit := other.Submit("demo.sleep", map[string]any{"ms": 100})
	other.AwaitStarted(submit)
	for range 5 {
		c.Invoke("demo.panic", map[string]any{})
	}
	c.Completed("the session works", c.Invoke("demo.echo", map[string]any{}))
	other.Completed("other jobs are not touched", other.Follow(submit))
	t.Open().ExpectNothing("the server lives")
}
