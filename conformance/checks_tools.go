package conformance

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// tools are the names of tools.list, page by page.
func (c *Conn) tools(limit int) (names []string) {
	args := map[string]any{"limit": limit}
	for {
		var page struct {
			Items []struct {
				Name string `json:"name"`
			} `json:"items"`
			NextCursor string `json:"next_cursor"`
		}
		c.call(&page, "tools.list", args)
		c.t.Want("a page holds no more than was asked for", len(page.Items) <= limit, "it holds %d", len(page.Items))
		for _, e := range page.Items {
			c.t.Want("the tools are listed by name, each once", len(names) == 0 || names[len(names)-1] < e.Name, "%s comes after %v", e.Name, names)
			names = append(names, e.Name)
		}
		if page.NextCursor == "" {
			return names
		}
		args["cursor"] = page.NextCursor
	}
}

// steady are the names that do not come and go with other checks.
func steady(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return strings.HasPrefix(name, workerTools) || strings.HasPrefix(name, mcpTools)
	})
}

// overlay sets an overlay and returns its revision.
func (c *Conn) overlay(args map[string]any) (revision uint64) {
	var set struct {
		Revision uint64 `json:"revision"`
	}
	c.call(&set, "tools.overlay", args)
	return set.Revision
}

// fault wants a tool to fail, at once or as a job, with a code.
func (c *Conn) fault(why, tool string, args any, code arcp.Code) *Frame {
	f := c.Invoke(tool, args).End()
	want(c.t, why, f.Type, arcp.JobFailed)
	c.t.wantCode(why, f, code)
	return f
}

func toolsList(_ context.Context, t *T) {
	c := t.Open()
	var told []string
	for _, a := range c.Accepted.Capabilities.Agents {
		told = append(told, a.Name)
	}
	slices.Sort(told)
	names := steady(c.tools(7))
	told = steady(told)
	t.Want("what session.accepted tells is listed", slices.Equal(names, told), "%v is listed, %v told", names, told)
}

func toolsDescribe(_ context.Context, t *T) {
	c := t.Open()
	var d struct {
		Name       string         `json:"name"`
		Version    string         `json:"version"`
		Versions   []string       `json:"versions"`
		SideEffect string         `json:"side_effect"`
		Limits     map[string]any `json:"limits"`
		Approval   arcp.Raw       `json:"approval_policy"`
		Recovery   string         `json:"recovery"`
		Idempotent *bool          `json:"idempotent"`
		Source     string         `json:"source"`
	}
	c.call(&d, "tools.describe", map[string]any{"name": "demo.echo"})
	want(t, "it is the tool", d.Name, "demo.echo")
	want(t, "echoing touches nothing", d.SideEffect, "none")
	want(t, "nobody approves it", string(d.Approval), `"none"`)
	t.Want("its version is one of its versions", slices.Contains(d.Versions, d.Version), "%s is not among %v", d.Version, d.Versions)
	t.Want("all is said", d.Recovery != "" && d.Source != "" && d.Idempotent != nil && d.Limits != nil, "%+v", d)
	for _, v := range d.Versions {
		c.call(&d, "tools.describe", map[string]any{"name": "demo.echo@" + v})
		want(t, "it is the version that was asked for", d.Version, v)
	}
	c.fault("what is not there cannot be described", "tools.describe", map[string]any{"name": "demo.nobody"}, arcp.CodeAgentNotAvailable)
	c.fault("nor a version that is not there", "tools.describe", map[string]any{"name": "demo.echo@99"}, arcp.CodeAgentVersionNotAvailable)
}

func toolsHidden(_ context.Context, t *T) {
	c := t.Open()
	c.overlay(map[string]any{"hide": []string{"demo.echo"}, "tools": []string{"demo.echo"}})
	for _, ref := range []string{"demo.echo", "demo.echo@1.0.0", "demo.echo@99"} {
		f := c.fault("it cannot be called", ref, map[string]any{}, arcp.CodeAgentNotAvailable)
		_, hint, _ := strings.Cut(payload[arcp.ErrorPayload](t, f).Message, ";")
		t.Want("nothing tells of it", !strings.Contains(hint, `"demo.echo"`), "%s", hint)
		c.fault("nor described", "tools.describe", map[string]any{"name": ref}, arcp.CodeAgentNotAvailable)
	}
	f := c.fault("a slip of the hand", "demo.ecco", map[string]any{}, arcp.CodeAgentNotAvailable)
	t.Want("is no way to it", !strings.Contains(payload[arcp.ErrorPayload](t, f).Message, `"demo.echo"`), "%s", f)
	t.Want("it is not listed", !slices.Contains(c.tools(1000), "demo.echo"), "it is")
}

func toolsOwn(_ context.Context, t *T) {
	c := t.Open()
	before := steady(c.tools(1000))
	c.overlay(map[string]any{"include_base": false, "tools": []string{"demo.echo"}})
	for _, name := range c.tools(2) {
		t.Want("nothing else is listed", name == "demo.echo" || strings.HasPrefix(name, "tools."), "%s is", name)
	}
	c.Completed("what it names is there", c.Invoke("demo.echo", map[string]any{}))
	c.overlay(map[string]any{})
	after := steady(c.tools(1000))
	t.Want("the way back leads back", slices.Equal(after, before), "%v is listed, and %v before", after, before)
}

func toolsRefused(_ context.Context, t *T) {
	c := t.Open()
	c.overlay(map[string]any{"hide": []string{"demo.echo"}})
	c.fault("the way back cannot be hidden", "tools.overlay", map[string]any{"hide": []string{"tools.overlay"}}, arcp.CodeInvalidArgument)
	c.fault("a name that is none", "tools.overlay", map[string]any{"hide": []string{"No Name"}}, arcp.CodeInvalidArgument)
	c.fault("a tool that is not there", "tools.overlay", map[string]any{"tools": []string{"demo.nobody"}}, arcp.CodeAgentNotAvailable)
	c.fault("what was in force still is", "demo.echo", map[string]any{}, arcp.CodeAgentNotAvailable)
}

func toolsCompare(_ context.Context, t *T) {
	c := t.Open()
	first := c.overlay(map[string]any{"hide": []string{"demo.a", "demo.b"}, "expect_revision": 0})
	t.Want("a change moves the revision", first == 1, "it is %d", first)
	same := c.overlay(map[string]any{"hide": []string{"demo.b", "demo.a"}, "include_base": true})
	want(t, "the same again does not", same, first)
	f := c.fault("a change of what is not there any more", "tools.overlay", map[string]any{"expect_revision": 0}, arcp.CodeFailedPrecondition)
	want(t, "it says what is there", string(payload[arcp.ErrorPayload](t, f).Details), `{"expected":0,"actual":1}`)
	want(t, "and can be made of that", c.overlay(map[string]any{"expect_revision": first}), first+1)
}

func toolsSession(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	c.overlay(map[string]any{"hide": []string{"demo.echo"}})
	other.Completed("another session has its own", other.Invoke("demo.echo", map[string]any{}))
	c.Drop()
	again := c.Reopen()
	again.fault("whoever comes back has what they left", "demo.echo", map[string]any{}, arcp.CodeAgentNotAvailable)
	t.Want("and is told so", !slices.ContainsFunc(again.Accepted.Capabilities.Agents, func(a arcp.Agent) bool { return a.Name == "demo.echo" }), "demo.echo is in session.accepted")
}

func toolsChanged(_ context.Context, t *T) {
	c := t.Open()
	c.catalogue = true
	id := c.Submit("tools.overlay", map[string]any{"hide": []string{"demo.echo"}})
	var told, ended *Frame
	for told == nil || ended == nil {
		f := c.next("a session is told what has changed")
		switch {
		case f.CorrelationID == id && f.Type.Terminal():
			ended = f
		case f.Type == arcp.EventEmit && bytes.Contains(f.Payload, []byte("demo.echo@1.0.0")): // other checks have tools come and go
			told = f
		}
	}
	p := payload[arcp.EventEmitPayload](t, told)
	want(t, "it is told by name", p.Name, "tools.changed")
	want(t, "it is no event of a job", told.JobID, "")
	want(t, "and has no number", told.EventSeq, 0)
	var data struct {
		Generation *uint64  `json:"generation"`
		Added      []string `json:"added"`
		Removed    []string `json:"removed"`
	}
	if err := arcp.Unmarshal(p.Data, &data); err != nil || data.Generation == nil {
		t.Failf("the data is %s: %v", p.Data, err)
	}
	t.Want("it says what is gone", slices.Contains(data.Removed, "demo.echo@1.0.0") && !slices.Contains(data.Added, "demo.echo@1.0.0"), "%s", p.Data)
}

func toolsPolicy(_ context.Context, t *T) {
	c := t.Open()
	var policy struct {
		Principal string   `json:"principal"`
		Trust     string   `json:"trust"`
		Roles     []string `json:"roles"`
		Items     []struct {
			Name   string `json:"name"`
			Submit bool   `json:"submit"`
		} `json:"items"`
	}
	c.call(&policy, "tools.policy", map[string]any{"prefix": "demo.echo"})
	t.Want("it says for whom", policy.Principal != "" && policy.Trust != "" && len(policy.Roles) > 0, "%+v", policy)
	want(t, "it speaks of the tools that were asked for", len(policy.Items), 1)
	t.Want("what may be submitted can be", policy.Items[0].Submit, "it may not")
	c.Completed("and ends well", c.Invoke("demo.echo", map[string]any{}))
}

// callRecord is an item of tools.calls.
type callRecord struct {
	Name     string `json:"name"`
	Status   string `json:"status"`
	Request  string `json:"request_digest"`
	Response string `json:"response_digest"`
	Error    struct {
		Code arcp.Code `json:"code"`
	} `json:"error"`
}

// record is the one call of a job that has called nothing.
func (c *Conn) record(job arcp.JobID) callRecord {
	var page struct {
		Items []callRecord `json:"items"`
	}
	c.call(&page, "tools.calls", map[string]any{"job_id": job})
	want(c.t, "a job is a call", len(page.Items), 1)
	return page.Items[0]
}

func toolsCalls(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.echo", arcp.Raw(`{ "b":1 , "a":2 }`))
	const digest = "993ab5b3a4e7eb1917a25c478f82e6028ec301bfb3a0f2e111ad41be9a2f0055" // SHA3-256 of {"a":2,"b":1}
	got := c.record(job.ID)
	want(t, "the call ended well", got.Status, "ok")
	want(t, "the digest of the arguments", got.Request, digest)
	want(t, "the digest of the result, which is the same", got.Response, digest)
}

func toolsCallsFailed(_ context.Context, t *T) {
	c := t.Open()
	for code, status := range map[arcp.Code]string{arcp.CodeDataLoss: "error", arcp.CodePermissionDenied: "denied", arcp.CodeDeadlineExceeded: "timeout"} {
		job := c.Invoke("demo.fail", map[string]any{"code": code, "message": "so it is"})
		got := c.record(job.ID)
		want(t, "how the call ended", got.Status, status)
		want(t, "and why", got.Error.Code, code)
		want(t, "without a result there is no digest", got.Response, "")
	}
}

func toolsRestart(ctx context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.echo", arcp.Raw(`{"b":1,"a":2}`))
	before := c.record(job.ID)
	revision := c.overlay(map[string]any{"hide": []string{"demo.echo"}})
	t.Restart(ctx)
	c = c.Cut()
	c.fault("what was hidden still is", "demo.echo", map[string]any{}, arcp.CodeAgentNotAvailable)
	want(t, "the record is the same", c.record(job.ID), before)
	want(t, "the overlay is the same", c.overlay(map[string]any{"hide": []string{"demo.echo"}, "expect_revision": revision}), revision)
}

func toolsCallsForeign(_ context.Context, t *T) {
	c, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	job := c.Invoke("demo.echo", map[string]any{})
	stranger.fault("what one may not see is not there", "tools.calls", map[string]any{"job_id": job.ID}, arcp.CodeJobNotFound)
}
