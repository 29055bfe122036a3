package main

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// A worker is listed with its tools, its jobs and its connection, also after it has lost it.
func TestWorkersAreListed(t *testing.T) {
	t.Parallel()
	auth := write(t, filepath.Join(t.TempDir(), "auth.yaml"), `principals:
  - {name: alice, tokens: ["`+hashOf("secret")+`"], roles: [client, worker]}
  - {name: root, tokens: ["`+hashOf("root")+`"], roles: [client, admin]}
  - {name: bob, tokens: ["`+hashOf("bob")+`"]}
`)
	p := serve(t, "--data", ":memory:", "--demo", "--auth-file", auth)
	wantOutcome(t, "none", p.cli("workers", "ls"), exitOK, "WORKER", "")
	c, err := client.Dial(t.Context(), p.url, client.Options{Auth: client.Auth{Token: "secret"},
		Capabilities: arcp.Capabilities{Flags: map[arcp.Feature]bool{arcp.FeatureExecutes: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	wait := func(ctx context.Context, _ *client.WorkerCall) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- c.Work(t.Context(), client.WorkerConfig{ID: "kid", Concurrency: 4, Tools: []client.WorkerTool{{Ref: "py.rev@1.0.0", Handle: wait, Description: map[string]any{"start_timeout_ms": 90000}}}})
	}()
	until(t, "the worker is registered", func() bool { return p.cli("workers", "ls", "-o", "name").stdout == "kid\n" })
	p.detach("py.rev", `{}`)
	p.untilRunning(1)
	want := func(why, pattern string, args ...string) {
		t.Helper()
		if o := p.cli(args...); o.code != exitOK || !regexp.MustCompile(pattern).MatchString(o.stdout) {
			t.Errorf("%s: got %v\nwant %s", why, o, pattern)
		}
	}
	want("a connected worker", `\nkid +\S+ +alice +py\.rev@1\.0\.0 +connected +\d+m?s +now +1 of 4\n`, "workers", "ls")
	want("an agent", `\nkid +\S+ +alice +\S+ +\w+ +\d+m?s +now +1 of 4 +-\n`, "agents", "ls")
	wantOutcome(t, "a worker of another principal", cli(t, "workers", "ls", "--url", p.url, "--token", "root", "-o", "name"), exitOK, "kid\n", "")
	root, err := (&target{url: p.url, token: "root"}).dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Abort()
	if s := (&topWatch{c: root}).snapshot(t.Context()); s.Err != nil || len(s.Agents) != 1 || s.Agents[0].Principal != "alice" || s.Agents[0].Tools != 1 {
		t.Errorf("arcp top of an admin shows the agents %+v, %v, want the worker of alice", s.Agents, s.Err)
	}
	for _, list := range []string{"workers", "agents"} {
		if o := cli(t, list, "ls", "--url", p.url, "--token", "bob", "-o", "name"); o.code != exitOK || o.stdout != "" {
			t.Errorf("%s ls of a principal that observes nobody: %v, want nothing", list, o)
		}
	}
	want("its start timeout", `\nstart timeout +1m30s\n`, "tools", "show", "py.rev")
	want("its tool", `\npy\.rev +1\.0\.0 +\w+ +worker +1 `, "tools", "ls")
	c.Abort()
	<-ended
	until(t, "the session has no connection", func() bool {
		return regexp.MustCompile(`\nkid .* detached +- +\d+s ago `).MatchString(p.cli("workers", "ls").stdout)
	})
	want("a tool without a connected worker", `\npy\.rev +1\.0\.0 +\w+ +worker +0 `, "tools", "ls")
	want("an agent without a connection", `\nkid .* disconnected `, "agents", "ls")
	waiting := p.detach("py.rev", `{}`)
	until(t, "the wait is logged", func() bool { return strings.Contains(p.errs.String(), `"job_id":"`+waiting+`"`) })
	wantOutcome(t, "doctor of an admin", cli(t, "doctor", "--url", p.url, "--token", "root"), exitFailed,
		"jobs of alice that wait for a connected worker of py.rev@1.0.0: 1, the oldest "+waiting+" since ", "")
}

func TestFirstWords(t *testing.T) {
	for want, words := range map[string][]string{
		"": nil, "a b c": {"a", "b", "c"}, "a b c +1": {"a", "b", "c", "d"}, "a b c +2": {"a", "b", "c", "d", "e"},
	} {
		given := slices.Clone(words)
		if got := firstWords(words, 3); got != want || !slices.Equal(words, given) {
			t.Errorf("firstWords(%q) = %q, and the words are %q; want %q", given, got, words, want)
		}
	}
}

// An agent was last seen when its connection ended, also if it ended later.
func TestLastSeen(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for want, v := range map[string]agentView{
		"now":     {SessionState: arcp.SessionConnected},
		"15s ago": {SessionState: arcp.SessionDetached, DetachedAt: ago(15 * time.Second)},
		"17s ago": {SessionState: sessionEnded, DetachedAt: ago(17 * time.Second), EndedAt: ago(2 * time.Second)},
		"3s ago":  {SessionState: sessionEnded, UpdatedAt: ago(time.Hour), EndedAt: ago(3 * time.Second)},
	} {
		if got := v.lastSeen(); got != want {
			t.Errorf("%+v was last seen %s, want %s", v, got, want)
		}
	}
}
