package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestInvokeReadsArgumentsAndPrintsResult(t *testing.T) {
	p := demoServer(t)
	file := write(t, filepath.Join(t.TempDir(), "args.json"), `{"from":"file"}`)

	wantOutcome(t, "arguments", p.cli("invoke", "demo.echo", `{"hello":"world"}`), exitOK, "{\"hello\":\"world\"}\n", "")
	wantOutcome(t, "no arguments", p.cli("invoke", "demo.echo"), exitOK, "{}\n", "")
	wantOutcome(t, "a file", p.cli("invoke", "demo.echo", "@"+file), exitOK, `{"from":"file"}`, "")
	stdin := cliWith(t, `{"from":"stdin"}`, "invoke", "demo.echo", "-", "--url", p.url, "--token", "secret")
	wantOutcome(t, "standard input", stdin, exitOK, `{"from":"stdin"}`, "")
	wantOutcome(t, "an old version", p.cli("invoke", "demo.echo@0.9.0", `{"a":1}`), exitOK, `{"legacy":{"a":1}}`, "")
	t.Setenv("ARCP_TOKEN", "secret")
	t.Setenv("ARCP_URL", p.url)
	wantOutcome(t, "the environment", cli(t, "invoke", "demo.echo"), exitOK, "{}\n", "")
	t.Setenv("ARCP_TOKEN", "stale")
	wantRefusal(t, cli(t, "invoke", "demo.echo"), exitAuth, "UNAUTHENTICATED: unknown bearer token; the token is the one of $ARCP_TOKEN: unset it")
}

func TestInvokePrintsEvents(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	args := `{"steps":3,"interval_ms":1}`
	o := p.cli("invoke", "demo.progress", args)
	wantOutcome(t, "progress on stderr, the result on stdout", o, exitOK, "{\"steps\":3}\n", "progress   2/3 67%\n")
	golden(t, "invoke.txt", scrub(o.stderr))
	golden(t, "invoke-follow.txt", scrub(p.cli("invoke", "demo.progress", args, "--follow").stderr))
	golden(t, "invoke-log.txt", scrub(p.cli("invoke", "demo.emit", `{"count":2,"bytes":5}`).stderr))

	o = p.cli("invoke", "demo.progress", args, "-o", "json")
	lines := strings.Split(strings.TrimSpace(o.stderr), "\n")
	for i, line := range lines {
		env, err := arcp.Decode([]byte(line))
		if err != nil || env.EventSeq != uint64(i+1) {
			t.Errorf("line %d of stderr = %s, %v, want an envelope with event_seq %d", i+1, line, err, i+1)
		}
	}
	wantOutcome(t, "the result is the same", o, exitOK, "{\"steps\":3}\n", `"type":"job.completed"`)
}

// A script can tell why a job did not give a result.
func TestExitCodesTellWhyAJobFailed(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	fail := func(code string) []string {
		return []string{"invoke", "demo.fail", `{"code":"` + code + `","message":"so it is"}`}
	}
	for _, c := range []struct {
		name   string
		args   []string
		code   int
		stderr string
	}{
		{"failed", fail("UNAVAILABLE"), exitFailed, "failed: UNAVAILABLE: so it is"},
		{"denied", fail("PERMISSION_DENIED"), exitDenied, "PERMISSION_DENIED"},
		{"lease", fail("LEASE_EXPIRED"), exitDenied, "LEASE_EXPIRED"},
		{"budget", fail("BUDGET_EXHAUSTED"), exitDenied, "BUDGET_EXHAUSTED"},
		{"deadline", fail("DEADLINE_EXCEEDED"), exitTimeout, "DEADLINE_EXCEEDED"},
		{"timeout", []string{"invoke", "demo.sleep", `{"ms":3600000}`, "--timeout", "50ms"}, exitTimeout, "failed: TIMEOUT"},
		{"unknown tool", []string{"invoke", "demo.nope"}, exitFailed, "AGENT_NOT_AVAILABLE"},
		{"bad arguments", []string{"invoke", "demo.sleep", `{"ms":"x"}`}, exitFailed, "INVALID_ARGUMENT"},
		{"no such job", []string{"jobs", "show", "job_nope"}, exitFailed, "JOB_NOT_FOUND"},
		{"no such job to watch", []string{"jobs", "watch", "job_nope"}, exitFailed, "JOB_NOT_FOUND"},
		{"no such job to cancel", []string{"jobs", "cancel", "job_nope"}, exitFailed, "not_found"},
		{"panic", []string{"invoke", "demo.panic"}, exitFailed, "INTERNAL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := p.cli(c.args...)
			wantOutcome(t, c.name, o, c.code, "", c.stderr)
			if o.stdout != "" {
				t.Errorf("stdout = %q, want nothing", o.stdout)
			}
		})
	}
	wrong := cli(t, "invoke", "demo.echo", "--url", p.url, "--token", "wrong")
	wantRefusal(t, wrong, exitAuth, "UNAUTHENTICATED")
	none := cli(t, "invoke", "demo.echo", "--url", p.url)
	wantOutcome(t, "no token", none, exitAuth, "", "give --token or set ARCP_TOKEN")
	asJSON := p.cli("invoke", "demo.fail", `{"code":"UNAVAILABLE","message":"no","retryable":true}`, "-o", "json")
	wantOutcome(t, "a failure as JSON", asJSON, exitFailed, "", `{"error":{"exit":1,"code":"UNAVAILABLE","message":"no","retryable":true`)
	loud := p.cli("invoke", "demo.fail", `{"code":"UNAVAILABLE","message":"\u001b]0;owned\u0007\u001b[2Jno\u009b1m"}`)
	if strings.ContainsAny(loud.stderr, "\x1b\a\u009b") || !strings.Contains(loud.stderr, "no") {
		t.Errorf("a failure with control characters is printed as %q", loud.stderr)
	}
}

func TestJobsAreListedAndDescribed(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	wantOutcome(t, "no jobs", p.cli("jobs", "ls"), exitOK, "JOB", "")
	p.cli("invoke", "demo.progress", `{"steps":2,"interval_ms":1}`)
	p.cli("invoke", "demo.fail", `{"code":"UNAVAILABLE","message":"no","details":{"why":"because"}}`)
	sleeper := p.detach("demo.sleep", `{"ms":3600000}`)
	p.untilRunning(1)

	o := p.cli("jobs", "ls")
	golden(t, "jobs-ls.txt", scrub(o.stdout))
	golden(t, "jobs-ls.json", scrub(p.cli("jobs", "ls", "-o", "json").stdout))
	ids := jobIDs(o.stdout)
	if len(ids) != 3 || ids[0] != sleeper {
		t.Fatalf("jobs = %q, want three, the first %s", ids, sleeper)
	}
	slices.Reverse(ids)

	for _, c := range []struct {
		why  string
		args []string
		want int
	}{
		{"by status", []string{"--status", "running"}, 1},
		{"by two", []string{"--status", "completed,failed"}, 2},
		{"by tool", []string{"--agent", "demo.fail"}, 1},
		{"limited", []string{"--limit", "2"}, 2},
		{"all", []string{"--all"}, 3},
	} {
		if got := jobIDs(p.cli(append([]string{"jobs", "ls"}, c.args...)...).stdout); len(got) != c.want {
			t.Errorf("%s: %d jobs, want %d", c.why, len(got), c.want)
		}
	}
	golden(t, "jobs-show.txt", scrub(p.cli("jobs", "show", ids[0]).stdout))
	golden(t, "jobs-show-failed.txt", scrub(p.cli("jobs", "show", ids[1]).stdout))
	wantOutcome(t, "show as JSON", p.cli("jobs", "show", ids[0], "-o", "json"), exitOK, `"status":"completed"`, "")

	wantOutcome(t, "more than fit", p.cli("jobs", "ls", "--limit", "2"), exitOK, "", "--limit 0 lists all, --cursor ")

	wantOutcome(t, "watch an ended job", p.cli("jobs", "watch", ids[0]), exitOK, "{\"steps\":2}\n", "progress   2/2 100%")
	wait := p.cli("jobs", "wait", ids[0])
	wantOutcome(t, "wait for an ended job", wait, exitOK, "{\"steps\":2}\n", "")
	if wait.stderr != "" {
		t.Errorf("wait says %q, want nothing", wait.stderr)
	}
	wantOutcome(t, "wait for a failed job", p.cli("jobs", "wait", ids[1]), exitFailed, "", "UNAVAILABLE: no")
	timeout := p.cli("jobs", "wait", sleeper, "--timeout", "20ms")
	wantOutcome(t, "wait in vain", timeout, exitTimeout, "", sleeper+" continues")

	wantOutcome(t, "cancel", p.cli("jobs", "cancel", sleeper, "--reason", "enough"), exitOK, sleeper+" will be cancelled", "")
	wantOutcome(t, "wait for a cancelled job", p.cli("jobs", "wait", sleeper), exitCancelled, "", "cancelled")
	wantOutcome(t, "show a cancelled job", p.cli("jobs", "show", sleeper), exitOK, "enough", "")
	wantOutcome(t, "cancel again", p.cli("jobs", "cancel", sleeper), exitFailed, "", "already_terminal")

	wantOutcome(t, "delete", p.cli("jobs", "rm", ids[0], sleeper), exitOK, sleeper+" is deleted", "")
	wantOutcome(t, "delete as JSON", p.cli("jobs", "rm", ids[1], "-o", "json"), exitOK, `"deleted":true`, "")
	wantOutcome(t, "delete again", p.cli("jobs", "rm", sleeper), exitFailed, "", "JOB_NOT_FOUND")
	wantOutcome(t, "all are deleted", p.cli("jobs", "ls"), exitOK, "JOB", "")
	if left := jobIDs(p.cli("jobs", "ls").stdout); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
}

// detach submits a job and returns its id.
func (p *process) detach(tool, args string) string {
	p.t.Helper()
	o := p.cli("invoke", "--detach", tool, args)
	wantOutcome(p.t, "detach", o, exitOK, "job_", "")
	return strings.TrimSpace(o.stdout)
}

func jobIDs(table string) (ids []string) {
	for line := range strings.Lines(table) {
		if id, _, _ := strings.Cut(line, " "); strings.HasPrefix(id, "job_") {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestIdempotencyKeyFindsTheJob(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	first := p.cli("invoke", "--detach", "--idempotency-key", "k", "demo.echo", `{"a":1}`)
	again := p.cli("invoke", "--detach", "--idempotency-key", "k", "demo.echo", `{"a":1}`)
	if first.stdout != again.stdout || first.code != exitOK {
		t.Errorf("%v and %v are not the same job", first, again)
	}
	wantOutcome(t, "another request", p.cli("invoke", "--idempotency-key", "k", "demo.echo", `{"a":2}`), exitFailed, "", "DUPLICATE_KEY")
}

func TestMetricsAndHealth(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	p.cli("invoke", "demo.echo")
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"/livez", 200, "ok"}, {"/readyz", 200, "ok"}, {"/healthz", 200, "ok"},
		{"/readyz?verbose", 200, "[+] runtime ok"}, {"/version", 200, `"protocol":"1.1"`},
		{"/metrics", 200, "arcp_build_info"}, {"/debug/pprof/", 200, "goroutine"},
		{"/debug/pprof/cmdline", 404, ""}, {"/", 200, adminIndex},
		{"/nope", 404, "there is no page /nope\n\n" + adminIndex},
	} {
		if status, body := get(t, p.admin+c.path); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s = %d %.200s, want %d with %q", c.path, status, body, c.status, c.want)
		}
	}
	main := strings.TrimSuffix(strings.Replace(p.url, "ws://", "http://", 1), "/arcp")
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 404, "/debug/pprof/": 404, "/arcp": 426} {
		if status, _ := get(t, main+path); status != want {
			t.Errorf("%s on the main listener = %d, want %d", path, status, want)
		}
	}
}

func TestAdminOnMain(t *testing.T) {
	t.Parallel()
	p := listening(start(t, nil, "serve", "--listen", "127.0.0.1:0", "--admin", "", "--data", ":memory:", "--token", "a=b"))
	if want := "http://" + strings.TrimSuffix(strings.TrimPrefix(p.url, "ws://"), "/arcp"); p.admin != want {
		t.Errorf("admin = %s, want the main listener %s", p.admin, want)
	}
	for path, want := range map[string]int{"/metrics": 200, "/readyz?verbose": 200, "/debug/pprof/": 404} {
		if status, _ := get(t, p.admin+path); status != want {
			t.Errorf("%s = %d, want %d", path, status, want)
		}
	}
}

func TestServeListensOnAUnixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "arcp.sock")
	p := listening(start(t, nil, "serve", "--listen", "", "--admin", "127.0.0.1:0", "--unix", socket, "--demo", "--data", ":memory:"))
	if p.url != "unix://"+socket {
		t.Errorf("url = %s, want unix://%s", p.url, socket)
	}
	wantOutcome(t, "no token is needed", cli(t, "invoke", "demo.echo", `{"a":1}`, "--url", p.url), exitOK, `{"a":1}`, "")
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket = %v, %v, want mode 0600", info, err)
	}
}

// With --stdio standard output has frames only.
func TestStdioPrintsFramesOnly(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--stdio", "--demo", "--data", ":memory:")
	open := `{"arcp":"1.1","id":"msg_1","type":"session.open","timestamp":"2026-01-02T15:04:05Z","payload":{"auth":{"scheme":"none"},"client":{"kind":"test","version":"1"}}}`
	if _, err := p.stdin.Write([]byte(open + "\n")); err != nil {
		t.Fatal(err)
	}
	line := <-p.first
	env, err := arcp.Decode([]byte(line))
	if err != nil || env.Type != arcp.SessionAccepted {
		t.Fatalf("first line = %q, %v, want session.accepted", line, err)
	}
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code = %d, want 0 when the peer is gone; log:\n%s", code, p.errs)
	}
}

// A script may end its input before it has read the answer.
func TestStdioInAPipeline(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--stdio", "--demo", "--data", ":memory:")
	send := func(typ, payload string) {
		t.Helper()
		if _, err := fmt.Fprintf(p.stdin, `{"arcp":"1.1","id":"msg_%s","type":%[1]q,"timestamp":"2026-01-02T15:04:05Z","payload":%s}`+"\n", typ, payload); err != nil {
			t.Fatal(err)
		}
	}
	send("session.open", `{"auth":{"scheme":"none"},"client":{"kind":"test","version":"1"}}`)
	if line := <-p.first; !strings.Contains(line, `"session.accepted"`) {
		t.Fatalf("first line = %q, want session.accepted", line)
	}
	send("tool.invoke", `{"tool":"demo.progress","arguments":{"steps":3,"interval_ms":300}}`)
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code = %d, want 0 when all is said; log:\n%s", code, p.errs)
	}
	for typ, n := range map[string]int{"job.accepted": 1, "job.progress": 3, "job.completed": 1} {
		if got := strings.Count(p.out.String(), `"type":"`+typ+`"`); got != n {
			t.Errorf("%d %s, want %d:\n%s", got, typ, n, p.out.String())
		}
	}
}

func TestConformanceOfTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all conformance checks: left out with -short")
	}
	t.Parallel()
	p := demoServer(t)
	junit := filepath.Join(t.TempDir(), "report.xml")
	o := p.cli("conformance", "run", "--check", "handshake.accepted", "--junit", junit)
	wantOutcome(t, "text", o, exitOK, "passed", "")
	if text, err := os.ReadFile(junit); err != nil || !strings.Contains(string(text), "<testsuite") {
		t.Errorf("JUnit report = %.100s, %v", text, err)
	}
	wantOutcome(t, "JSON", p.cli("conformance", "run", "--check", "handshake.accepted", "-o", "json"), exitOK, `"status": "passed"`, "")
	secret := write(t, filepath.Join(t.TempDir(), "secret"), strings.Repeat("s", 32))
	short := write(t, filepath.Join(t.TempDir(), "short"), "s")
	jwt := []string{"conformance", "run", "--check", "jwt.accepted", "--principal", "alice"}
	wantOutcome(t, "no key", p.cli(jwt...), exitFailed, "no key for signing tokens was given", "no check was judged")
	wantOutcome(t, "an issuer alone", p.cli(append(jwt, "--jwt-issuer", "i")...), exitUsage, "", "--jwt-key is missing")
	wantOutcome(t, "a key alone", p.cli(append(jwt, "--jwt-key", secret)...), exitUsage, "", "--jwt-issuer is missing")
	wantOutcome(t, "a short key", p.cli(append(jwt, "--jwt-key", short, "--jwt-issuer", "i")...), exitUsage, "",
		"the secret has 1 bytes, want at least 32")
	wantOutcome(t, "no such key", p.cli(append(jwt, "--jwt-key", short+"er", "--jwt-issuer", "i")...), exitFailed, "", "no such file")
	wantOutcome(t, "an issuer that is not known", p.cli(append(jwt, "--jwt-key", secret, "--jwt-issuer", "i")...), exitFailed, "FAIL", "")
	wantOutcome(t, "no observer", p.cli("conformance", "run", "--check", "observers.submit"), exitFailed, "no token of an observer was given", "no check was judged")
	wantOutcome(t, "an observer that is not known",
		p.cli("conformance", "run", "--check", "observers.submit", "--strict", "--observer-token", "nobody's"), exitFailed, "FAIL", "")
}
