package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// submitWith submits a tool with options.
func (c *Conn) submitWith(tool string, arguments any, o arcp.SubmitOptions) arcp.MessageID {
	return c.submit(arcp.ToolInvokePayload{Tool: tool, Arguments: c.raw(arguments), SubmitOptions: o})
}

// leased are options with a lease.
func (c *Conn) leased(lease any) arcp.SubmitOptions {
	return arcp.SubmitOptions{LeaseRequest: c.raw(lease)}
}

type patterns map[string][]string

// access asks a job with a lease whether it may do something.
func (c *Conn) access(lease any, member, target string) *Job {
	return c.Follow(c.submitWith("demo.access", map[string]any{"namespace": member, "target": target}, c.leased(lease)))
}

// allows wants each of the targets to be covered.
func (c *Conn) allows(member, pattern string, targets ...string) {
	for _, target := range targets {
		job := c.access(patterns{member: {pattern}}, member, target)
		c.Completed(fmt.Sprintf("%s %q covers %q", member, pattern, target), job)
	}
}

// denies wants none of the targets to be covered. They are submitted all at once.
func (c *Conn) denies(member, pattern string, targets ...string) {
	submits := map[arcp.MessageID]string{}
	for _, target := range targets {
		submits[c.submitWith("demo.access", map[string]any{"namespace": member, "target": target}, c.leased(patterns{member: {pattern}}))] = target
	}
	for len(submits) > 0 {
		f := c.event("every job ends")
		target, ok := submits[f.CorrelationID]
		if !ok || !f.Type.Terminal() {
			continue
		}
		delete(submits, f.CorrelationID)
		why := fmt.Sprintf("%s %q does not cover %q", member, pattern, target)
		if f.Type != arcp.JobFailed {
			c.t.Failf("%s: got %s", why, f)
		}
		c.t.wantCode(why, f, arcp.CodePermissionDenied)
	}
}

// refusedLease wants a submit with a lease to be refused with INVALID_REQUEST.
func (c *Conn) refusedLease(why string, o arcp.SubmitOptions) {
	c.ExpectRefused(why, c.submitWith("demo.echo", map[string]any{}, o), arcp.CodeInvalidRequest)
}

// acceptedWith submits an echo and returns its job.accepted.
func (c *Conn) acceptedWith(o arcp.SubmitOptions) arcp.JobAcceptedPayload {
	job := c.Follow(c.submitWith("demo.echo", map[string]any{}, o))
	c.Completed("the job ends well", job)
	return payload[arcp.JobAcceptedPayload](c.t, job.Event(0))
}

// membersOfLease decodes the lease of a job.
func (t *T) membersOfLease(raw arcp.Raw) map[string]arcp.Raw {
	var m map[string]arcp.Raw
	if err := arcp.Unmarshal(raw, &m); err != nil {
		t.Failf("a lease is an object: %s: %v", raw, err)
	}
	return m
}

// wantStrings wants raw to be a list of strings.
func wantStrings(t *T, why string, raw arcp.Raw, expected ...string) {
	var list []string
	if err := arcp.Unmarshal(raw, &list); raw == nil || err != nil {
		t.Failf("%s: got %s, want a list of strings", why, orNone(raw))
	}
	want(t, why, fmt.Sprintf("%q", list), fmt.Sprintf("%q", expected))
}

func leaseNone(_ context.Context, t *T) {
	c := t.Open()
	for _, options := range []arcp.SubmitOptions{{}, {LeaseRequest: arcp.Raw(`{}`)}} {
		for _, ask := range [][2]string{{"fs.read", "/"}, {"fs.write", "/a"}, {"net.fetch", "https://example.com/"},
			{"tool.call", "demo.echo"}, {"agent.delegate", "a"}, {"order.refund", "order:1"}} {
			job := c.Follow(c.submitWith("demo.access", map[string]any{"namespace": ask[0], "target": ask[1]}, options))
			c.failedWith("without a lease there is no authority", job, arcp.CodePermissionDenied)
		}
	}
}

func leaseOwnTool(_ context.Context, t *T) {
	c := t.Open()
	c.acceptedWith(arcp.SubmitOptions{})
	c.acceptedWith(c.leased(patterns{"tool.call": {}}))
}

func leaseDenied(_ context.Context, t *T) {
	c := t.Open()
	end := c.failedWith("what is not covered is denied", c.access(patterns{"fs.read": {"/a/**"}}, "fs.read", "/b"), arcp.CodePermissionDenied)
	want(t, "a denial is final", end.Retryable, false)
}

// spellings are the members of a lease with the ways to write them, and a pattern
// with a target it covers.
var spellings = []struct {
	names           []string
	pattern, target string
}{
	{[]string{"fs.read", "fs_read", "filesystem.read"}, "/a/**", "/a/b"},
	{[]string{"fs.write", "fs_write", "filesystem.write"}, "/a/**", "/a/b"},
	{[]string{"net.fetch", "net_fetch", "network.fetch"}, "https://example.com/**", "https://example.com/b"},
	{[]string{"tool.call", "tool_call"}, "demo.*", "demo.echo"},
	{[]string{"agent.delegate", "agent_delegate"}, "team/*", "team/a"},
	{[]string{"model.use", "model_use"}, "a/*", "a/b"},
}

func leaseSpellings(_ context.Context, t *T) {
	c := t.Open()
	for _, s := range spellings {
		for _, name := range s.names {
			job := c.access(patterns{name: {s.pattern}}, s.names[0], s.target)
			c.Completed(name+" means "+s.names[0], job)
			lease := t.membersOfLease(payload[arcp.JobAcceptedPayload](t, job.Event(0)).Lease)
			wantStrings(t, name+" is accepted as "+s.names[0], lease[s.names[0]], s.pattern)
			wantStrings(t, "and in the other spelling", lease[s.names[1]], s.pattern)
		}
	}
}

func leaseSpellingsAgree(_ context.Context, t *T) {
	c := t.Open()
	c.acceptedWith(c.leased(patterns{"fs.read": {"/a", "/b"}, "fs_read": {"/b", "/a"}, "filesystem.read": {"/a", "/b"}}))
	c.acceptedWith(c.leased(patterns{"cost.budget": {"USD:1.00"}, "cost_budget": {"USD:1.00"}}))
}

func leaseSpellingsDiffer(_ context.Context, t *T) {
	c := t.Open()
	for _, s := range spellings {
		for _, name := range s.names[1:] {
			c.refusedLease(name+" and "+s.names[0]+" must not differ", c.leased(patterns{s.names[0]: {s.pattern}, name: {}}))
		}
	}
	c.refusedLease("the budget must not differ", c.leased(patterns{"cost.budget": {"USD:1"}, "cost_budget": {"USD:2"}}))
}

func leaseAccepted(_ context.Context, t *T) {
	c := t.Open()
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	o := c.leased(map[string]any{"fs_read": []string{"/a/**", "/b"}, "net.fetch": []string{"https://example.com/**"}, "tool.call": []string{"*"},
		"order.refund": []string{"order:*"}, "cost_budget": []string{"USD:1.50", "EUR:2"}, "expires_at": end.Format(time.RFC3339)})
	p := c.acceptedWith(o)
	lease := t.membersOfLease(p.Lease)
	for _, name := range []string{"fs.read", "fs_read"} {
		wantStrings(t, "the lease has "+name, lease[name], "/a/**", "/b")
	}
	for _, name := range []string{"net.fetch", "net_fetch"} {
		wantStrings(t, "the lease has "+name, lease[name], "https://example.com/**")
	}
	for _, name := range []string{"tool.call", "tool_call"} {
		wantStrings(t, "the lease has "+name, lease[name], "*")
	}
	for _, name := range []string{"cost.budget", "cost_budget"} {
		wantStrings(t, "the lease has "+name, lease[name], "USD:1.50", "EUR:2")
	}
	wantStrings(t, "names of permissions are kept", lease["order.refund"], "order:*")
	t.wantEnd(p, end)
	t.wantBudget(p.Budget, map[string]string{"USD": "1.50", "EUR": "2"})
}

// wantEnd wants both places of an accepted lease's end to be there and to say end.
func (t *T) wantEnd(p arcp.JobAcceptedPayload, end time.Time) {
	t.Want("job.accepted has lease_constraints", p.LeaseConstraints != nil, "they are absent")
	at := p.LeaseConstraints.ExpiresAt
	t.Want("lease_constraints have the end", at.Equal(end), "got %v, want %v", at, end)
	var in time.Time
	if err := arcp.Unmarshal(t.membersOfLease(p.Lease)["expires_at"], &in); err != nil || !in.Equal(end) {
		t.Failf("the lease has its end: got %v, want %v", in, end)
	}
}

// wantBudget wants a budget to have exactly these numbers.
func (t *T) wantBudget(raw arcp.Raw, expected map[string]string) {
	var budget map[string]arcp.Raw
	if err := arcp.Unmarshal(raw, &budget); raw == nil || err != nil {
		t.Failf("a budget is an object of numbers: got %s", orNone(raw))
	}
	want(t, "a budget has each currency", len(budget), len(expected))
	for currency, amount := range expected {
		want(t, "what is left of "+currency+" is an exact number", exactly(string(budget[currency])), exactly(amount))
	}
}

func leaseExpiresPast(_ context.Context, t *T) {
	c := t.Open()
	past := time.Now().Add(-time.Minute).UTC()
	c.refusedLease("a lease ends in the future", c.leased(map[string]any{"expires_at": past}))
	c.refusedLease("so do lease_constraints", arcp.SubmitOptions{LeaseConstraints: &arcp.LeaseConstraints{ExpiresAt: past}})
	o := c.leased(map[string]any{"expires_at": time.Now().Add(time.Hour).UTC()})
	o.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: past}
	c.refusedLease("the earlier of both has to be in the future", o)
}

func leaseExpiresEarlier(_ context.Context, t *T) {
	c := t.Open()
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	later := soon.Add(time.Hour)
	for _, ends := range [][2]time.Time{{soon, later}, {later, soon}} {
		o := c.leased(map[string]any{"fs.read": []string{"/a"}, "expires_at": ends[0]})
		o.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: ends[1]}
		t.wantEnd(c.acceptedWith(o), soon)
	}
}

func leaseExpiresAlone(_ context.Context, t *T) {
	c := t.Open()
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	t.wantEnd(c.acceptedWith(arcp.SubmitOptions{LeaseConstraints: &arcp.LeaseConstraints{ExpiresAt: end}}), end)
}

func leaseExpiresMalformed(_ context.Context, t *T) {
	c := t.Open()
	for _, bad := range []any{"tomorrow", 4102444800, []string{"2099-01-01T00:00:00Z"}, "2099-01-01", "2099-01-01T02:00:00+02:00"} {
		c.refusedLease("expires_at is a time, in UTC", c.leased(map[string]any{"expires_at": bad}))
	}
}

// leaseExpired has a job hold a permission until its own lease has ended. How soon
// that may be depends on how slow the server is: it is tried with more time if the
// lease had ended when it was read.
func leaseExpired(_ context.Context, t *T) {
	const grace = time.Second
	c := t.Open()
	for margin := 400 * time.Millisecond; ; margin *= 5 {
		id, _ := c.Ping()
		now := c.Await("a ping is answered", arcp.Pong, id).Timestamp
		o := arcp.SubmitOptions{LeaseConstraints: &arcp.LeaseConstraints{ExpiresAt: now.Add(margin)}}
		args := permitArgs("p", "r", "o", 60)
		args["hold_ms"] = (margin + grace).Milliseconds()
		submit := c.submitWith("demo.permit", args, o)
		f := c.Answer("a submit is answered", submit)
		if f.Type == arcp.JobFailed && f.EventSeq == 0 && margin < time.Minute {
			continue // too late
		}
		want(t, "a lease that ends in the future is accepted", f.Type, arcp.JobAccepted)
		c.grant(c.about("the job asks", arcp.PermissionRequest, f.JobID), arcp.PermissionGrantPayload{Permission: "p", Resource: "r", Operation: "o", LeaseSeconds: 60})
		end := c.endsWith("a job whose lease has ended may do nothing", submit, arcp.CodeLeaseExpired)
		want(t, "a lease that has ended is final", end.Retryable, false)
		return
	}
}

func leaseMalformed(_ context.Context, t *T) {
	c := t.Open()
	for _, bad := range []string{`"/a"`, `["fs.read"]`, `1`, `true`, `{"fs.read":"/a"}`, `{"fs.read":[1]}`, `{"fs.read":null}`, `{"fs.read":{"a":1}}`,
		`{"fs.read":[["/a"]]}`, `{"":["a"]}`, `{"a b":["a"]}`, `{"cost.budget":"USD:1"}`} {
		c.refusedLease("a lease is an object of lists of strings, not "+bad, arcp.SubmitOptions{LeaseRequest: arcp.Raw(bad)})
	}
}

func leasePatternsRefused(_ context.Context, t *T) {
	c := t.Open()
	bad := patterns{
		"fs.read":   {"", "a", "**", "/a/../b", "/a/./b", "//a", "/a\u0000", `/a\b`, "/a/%2e%2e/**", "/a%2fb", "/\u202e"},
		"net.fetch": {"*", "https://", "https:///a", "https://u@h/a", "https://h/a?b", "https://h/a#b", "https://h/../a", "https://h:0/a", "https://10.0.*.*/", "https://h a/", "/a"},
		"tool.call": {"", "a//b", "/a", "a/../b", "a%2fb"},
		"model.use": {"", "a\u0000"},
	}
	for member, list := range bad {
		for _, pattern := range list {
			c.refusedLease(fmt.Sprintf("%q is no pattern of %s", pattern, member), c.leased(patterns{member: {pattern}}))
		}
	}
}

func leaseBounds(_ context.Context, t *T) {
	c := t.Open()
	members := func(n int) patterns {
		p := patterns{}
		for i := range n {
			p[fmt.Sprintf("x.%d", i)] = []string{"a"}
		}
		return p
	}
	many := func(n int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("/%d", i)
		}
		return list
	}
	amounts := func(n int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("C%d:1", i)
		}
		return list
	}
	long := func(n int) string { return "/" + strings.Repeat("a", n-1) }
	c.acceptedWith(c.leased(members(100)))
	c.refusedLease("101 members are too many", c.leased(members(101)))
	c.acceptedWith(c.leased(patterns{"fs.read": many(1000)}))
	c.refusedLease("1,001 patterns are too many", c.leased(patterns{"fs.read": many(1000), "fs.write": {"/a"}}))
	c.acceptedWith(c.leased(patterns{"fs.read": {long(4096)}}))
	c.refusedLease("a pattern has at most 4,096 bytes", c.leased(patterns{"fs.read": {long(4097)}}))
	c.acceptedWith(c.leased(patterns{"cost.budget": amounts(32)}))
	c.refusedLease("33 amounts are too many", c.leased(patterns{"cost.budget": amounts(33)}))
}

func leasePaths(_ context.Context, t *T) {
	c := t.Open()
	c.allows("fs.read", "/w/**", "/w", "/w/", "/w/a", "/w/a/b/c", "/w/./a", "/w//a", "/w/a/../b", "/x/../w/a", "/w/..a", "/w/.git", "/w/a b", "/w/é")
	c.allows("fs.read", "/w/*", "/w/a", "/w/.git")
	c.allows("fs.read", "/w/*.txt", "/w/a.txt", "/w/.txt")
	c.allows("fs.read", "/w/**/z", "/w/z", "/w/a/z", "/w/a/b/z")
	c.allows("fs.read", "/**", "/", "/a")
	c.allows("fs.read", "/w/[a]?{b}", "/w/[a]?{b}")
}

func leasePathTricks(_ context.Context, t *T) {
	c := t.Open()
	c.denies("fs.read", "/w/**", "/wx", "/wx/a", "/W/a", "/w-other/a", "w/a", "a", "./w/a", "../w/a", "~/w/a", "/", "/..", "/w/..", "/w/../etc/passwd", "/w/a/../../etc/passwd",
		"/../../etc/passwd", "/w/%2e%2e/etc/passwd", "/w/%2E%2E/etc/passwd", "/w/.%2e/etc", "/w/..%2fetc/passwd", "/w%2f..%2fetc", "/w/%5c..", `/w\..\etc`, `/w/..\etc`,
		"/w/a\u0000", "/w/\u0000/../../etc", "/w/a\nb", "/w/\u202ea", "/w/a\u200b", "//w/a", "//evil/w/a", "file:///w/a", "https://example.com/w/a", " /w/a", "/w/"+strings.Repeat("a", 4096))
	c.denies("fs.read", "/w/*", "/w", "/w/a/b", "/w/a/../..", "/wx")
	c.denies("fs.read", "/w/a?c", "/w/abc")
	c.denies("fs.read", "/w/*.txt", "/w/a.txt.exe", "/w/a/b.txt", "/w/atxt")
	c.denies("fs.read", "/w", "/w/a", "/ww", "/")
}

func leaseURLs(_ context.Context, t *T) {
	c := t.Open()
	c.allows("net.fetch", "https://api.example.com/p/**", "https://api.example.com/p", "https://api.example.com/p/a", "HTTPS://API.Example.COM/p/a", "https://api.example.com:443/p/a",
		"https://api.example.com/p/a?x=1&y=../..", "https://api.example.com/p/a#f", "https://api.example.com/%70/a", "https://api.example.com/x/../p/a")
	c.allows("net.fetch", "api.example.com/**", "https://api.example.com/a", "https://api.example.com")
	c.allows("net.fetch", "https://*.example.com/**", "https://a.example.com", "https://a.example.com/b/c")
	c.allows("net.fetch", "https://**.example.com/**", "https://example.com/", "https://a.b.example.com/x")
	c.allows("net.fetch", "http://localhost:8080/**", "http://localhost:8080/a", "http://LOCALHOST:8080/")
	c.allows("net.fetch", "http://[::1]:8080/**", "http://[0:0:0:0:0:0:0:1]:8080/a")
}

func leaseURLTricks(_ context.Context, t *T) {
	c := t.Open()
	const host = "https://api.example.com"
	c.denies("net.fetch", host+"/p/**", "http://api.example.com/p/a", "ftp://api.example.com/p/a", "api.example.com/p/a", "//api.example.com/p/a", "/p/a", host, host+"/", host+"/px", host+"/P/a",
		host+"/p/../x", host+"/p/%2e%2e/x", host+"/p/%2E%2e/x", host+"/p/.%2e/x", host+"/p/..%2fx", host+"/p/%2f..%2fx", host+"/p/..;a/x", host+"/p%2fa", host+"/p/%5c..", host+`/p\..\x`,
		host+"/p/a\u0000", host+"/p/%00", host+"/p//a", host+"/p/%zz", host+"/p/a b", host+"/p/a\n",
		"https://evil.example/p/a", host+".evil.example/p/a", "https://evilapi.example.com/p/a", "https://x.api.example.com/p/a", host+"./p/a", "https://example.com/p/a",
		host+"@evil.example/p/a", "https://evil.example@api.example.com/p/a", "https://user:pw@api.example.com/p/a", "https://@api.example.com/p/a", "https://evil.example#@api.example.com/p/a",
		"https://evil.example?@api.example.com/p/a", `https://evil.example\@api.example.com/p/a`, host+"%00.evil.example/p/a", "https://api.example%2ecom/p/a", host+"?/p/a", host+"#/p/a",
		host+":80/p/a", host+":8443/p/a", host+":/p/a", host+":0443/p/a", host+":99999/p/a", " "+host+"/p/a", host+" /p/a", "https://аpi.example.com/p/a", "https://api。example。com/p/a",
		"https://api.ex\u00adample.com/p/a", "https://*.example.com/p/a", "https:///p/a", "file:///p/a", "javascript://api.example.com/p/a")
	c.denies("net.fetch", "https://*.example.com/**", "https://example.com/", "https://a.b.example.com/", "https://evilexample.com/", "https://evil.example/a.example.com/", "https://a.example.com:8443/")
	c.denies("net.fetch", "http://127.0.0.1/**", "http://0x7f.0.0.1/", "http://2130706433/", "http://017700000001/", "http://127.1/", "http://0177.0.0.1/", "http://localhost/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://127.0.0.1:8080/")
	c.denies("net.fetch", "https://**/**", "http://a/", "https://127.0.0.1/", "https://169.254.169.254/latest/", "https://[::1]/", "https://0x7f.1/", "https://0/")
	c.denies("net.fetch", host+"/a", host+"/a/b", host+"/A", host+"/a/")
}

func leaseNames(_ context.Context, t *T) {
	c := t.Open()
	for _, member := range []string{"tool.call", "agent.delegate"} {
		c.allows(member, "*", "a", "demo.echo", "a/b/c")
		c.allows(member, "demo.*", "demo.echo", "demo.a.b")
		c.allows(member, "team/**", "team", "team/a", "team/a/b")
	}
}

func leaseNameTricks(_ context.Context, t *T) {
	c := t.Open()
	c.denies("tool.call", "demo.echo", "demo.echo2", "demo.Echo", "demo", "echo", "demo.echo@1.0.0", "demo/echo", " demo.echo", "demo.echo ", "demo.echo\u0000", "demo.ech\u043e",
		"demo\u200b.echo", "demo%2eecho", "*", "**")
	c.denies("tool.call", "demo.*", "demo", "xdemo.echo", "Demo.echo", "demo.a/b", "demo.a/../b")
	c.denies("agent.delegate", "team/*", "team", "team/", "team/a/b", "team/../other", "teams/a", "team//a", "team/..", "team/%2e%2e")
}

func leaseMembersApart(_ context.Context, t *T) {
	c := t.Open()
	for _, other := range []string{"fs.write", "net.fetch", "tool.call", "x.fs.read", "fs.read.x", "FS.READ"} {
		c.failedWith("fs.read is not "+other, c.access(patterns{"fs.read": {"/**"}}, other, "/a"), arcp.CodePermissionDenied)
	}
	c.failedWith("tool.call is not agent.delegate", c.access(patterns{"tool.call": {"*"}}, "agent.delegate", "a"), arcp.CodePermissionDenied)
}

func leasePermissions(_ context.Context, t *T) {
	c := t.Open()
	c.allows("order.refund", "order:*", "order:1", "order:")
	c.denies("order.refund", "order:*", "order", "xorder:1", "order:1/2", "Order:1", "invoice:1", "order:1\u0000")
}

func leaseCapabilities(_ context.Context, t *T) {
	c := t.Open()
	job := c.access(map[string]any{"capabilities": []string{"fs.read", "tool.call"}}, "fs.read", "/a")
	c.failedWith("names without patterns allow nothing", job, arcp.CodePermissionDenied)
}

// model asks a job with a lease whether it may use a model.
func (c *Conn) model(o arcp.SubmitOptions, model string) *Job {
	return c.Follow(c.submitWith("demo.model", map[string]any{"model": model}, o))
}

func leaseModelAbsent(_ context.Context, t *T) {
	c := t.Open()
	for _, o := range []arcp.SubmitOptions{{}, c.leased(patterns{"fs.read": {"/a"}})} {
		c.Completed("nothing is said of models", c.model(o, "any/model-1"))
	}
}

func leaseModel(_ context.Context, t *T) {
	c := t.Open()
	for _, x := range []struct{ pattern, model string }{{"*", "a/b/c"}, {"a*b", "abxb"}, {"fast/*", "fast/a"}, {"fast/**", "fast/a/b"}, {"fast/**", "fast"}, {"gpt-4", "gpt-4"}, {"v/claude-*-4*", "v/claude-x-4-1"}} {
		c.Completed(fmt.Sprintf("%q covers %q", x.pattern, x.model), c.model(c.leased(patterns{"model_use": {x.pattern}}), x.model))
	}
	for _, x := range []struct{ pattern, model string }{{"a*b", "abx"}, {"a*b", "xab"}, {"a*b", "a"}, {"gpt-4", "gpt-4o"}, {"gpt-4", "GPT-4"}, {"gpt-4", "gpt-4 "}, {"v/*", "w/a"}, {"v/*", "v"},
		{"v/*", "v/a/b"}, {"a*b", "a/b/b"}, {"v/*", "v/../w/a"}, {"v/*", "v/\u0000"}, {"gpt-4", "*"}} {
		c.failedWith(fmt.Sprintf("%q does not cover %q", x.pattern, x.model), c.model(c.leased(patterns{"model.use": {x.pattern}}), x.model), arcp.CodePermissionDenied)
	}
}

func leaseModelNone(_ context.Context, t *T) {
	c := t.Open()
	c.failedWith("no model is allowed", c.model(c.leased(patterns{"model.use": {}}), "a"), arcp.CodePermissionDenied)
}

func leaseShown(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	o := owner.leased(patterns{"fs.read": {"/a/**"}, "cost.budget": {"USD:1.50"}})
	o.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: end}
	submit := owner.submitWith("demo.sleep", map[string]any{"ms": 60_000}, o)
	job := owner.AwaitStarted(submit)
	_, p := follower.subscribe(arcp.JobSubscribePayload{JobID: job})
	wantStrings(t, "job.subscribed has the lease", t.membersOfLease(p.Lease)["fs.read"], "/a/**")
	t.wantEnd(arcp.JobAcceptedPayload{Lease: p.Lease, LeaseConstraints: p.LeaseConstraints}, end)
	t.wantBudget(p.Budget, map[string]string{"USD": "1.50"})
	e := follower.entry(job, owner.Session)
	t.Want("the job is listed", e != nil, "it is not")
	wantStrings(t, "a list has the lease", t.membersOfLease(e.Lease)["fs.read"], "/a/**")
	owner.finish(submit, job)
}

func leaseRefusalNoJob(_ context.Context, t *T) {
	c := t.Open()
	c.refusedLease("a path is absolute", c.leased(patterns{"fs.read": {"a"}}))
	want(t, "there is no job", len(c.listAll(c.here(), 10)), 0)
}
