package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance"
	"github.com/arcpd/arcpd/transport"
)

func TestConformanceList(t *testing.T) {
	all := strings.Fields(cli(t, "conformance", "list", "-o", "name").stdout)
	if len(all) < 500 {
		t.Errorf("conformance list prints %d checks, want all of both dialects", len(all))
	}
	for id := range strings.FieldsSeq(cli(t, "conformance", "list", "--dialect", "draft", "-o", "name").stdout) {
		if !strings.HasPrefix(id, "draft.") {
			t.Errorf("--dialect draft lists %s", id)
		}
	}
	var page arcp.Page[checkView]
	o := cli(t, "conformance", "list", "--group", "cancel", "--level", "must", "--section", "RFC §10.4", "--dialect", "rfc", "-o", "json")
	if err := json.Unmarshal([]byte(o.stdout), &page); err != nil {
		t.Fatalf("%v: %s", err, o.stderr)
	}
	list := page.Items
	if len(list) == 0 {
		t.Error("no check of the group cancel is listed")
	}
	for _, c := range list {
		if c.Group != "cancel" || c.Level != "must" || c.Section != "RFC §10.4" || c.Title == "" {
			t.Errorf("%+v was not selected", c)
		}
	}
	wantOutcome(t, "text", cli(t, "conformance", "list", "--group", "cancel"), exitOK, "cancel.running", "")
	wantOutcome(t, "nothing", cli(t, "conformance", "list", "--section", "RFC §999", "-o", "json"), exitOK, `{"items":[]}`, "")
	wantOutcome(t, "bad dialect", cli(t, "conformance", "list", "--dialect", "auto"), exitUsage, "", `--dialect: "auto" is not one of rfc, draft`)
	wantOutcome(t, "bad level", cli(t, "conformance", "list", "--level", "runtime"), exitUsage, "", `--level: "runtime" is not one of must, should, may, house, all`)
	wantOutcome(t, "bad group", cli(t, "conformance", "list", "--group", "x"), exitUsage, "", `--group: "x" is not one of`)
}

func TestConformanceShow(t *testing.T) {
	o := cli(t, "conformance", "show", "cancel.running")
	for _, want := range []string{"section  RFC §10.4", "needs    tool:demo.sleep", "== running: ", "R072  RFC §10.4 (MUST)", "def c sleeping options", "# scripts/cancel.txt, line "} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("conformance show prints\n%s, want %q in it", o.stdout, want)
		}
	}
	wantOutcome(t, "Go", cli(t, "conformance", "show", "takeover.race"), exitOK, "The check is in Go: the function takeoverRace", "")
	wantOutcome(t, "frames", cli(t, "conformance", "show", "frames.envelope"), exitOK, "a rule of every frame", "")
	wantOutcome(t, "JSON", cli(t, "conformance", "show", "cancel.running", "-o", "json"), exitOK, `"script":"== running: `, "")
	wantOutcome(t, "unknown", cli(t, "conformance", "show", "cancel.x"), exitUsage, "", "`arcp conformance list` lists the checks")
}

// A failed check makes the exit code 1 if its level is strong enough and the baseline does not have it.
func TestFailurePolicy(t *testing.T) {
	result := func(id string, l conformance.Level) conformance.Result {
		return conformance.Result{ID: id, Level: l, Status: conformance.Failed}
	}
	baseline := conformance.Baseline{"known": conformance.Failed, "passed": conformance.Passed}
	for _, c := range []struct {
		policy failurePolicy
		res    conformance.Result
		want   bool
	}{
		{failurePolicy{failOn: "must"}, result("x", conformance.Must), true},
		{failurePolicy{failOn: "must"}, result("x", conformance.Should), false},
		{failurePolicy{failOn: "should"}, result("x", conformance.Should), true},
		{failurePolicy{failOn: "should"}, result("x", conformance.May), false},
		{failurePolicy{failOn: "must", strict: true}, result("x", conformance.House), true},
		{failurePolicy{failOn: "must"}, conformance.Result{ID: "x", Level: conformance.Must, Status: conformance.KnownDeviation}, false},
		{failurePolicy{failOn: "must", baseline: baseline}, result("known", conformance.Must), false},
		{failurePolicy{failOn: "must", baseline: baseline}, result("passed", conformance.Must), true},
		{failurePolicy{failOn: "must", baseline: baseline}, result("new", conformance.Must), true},
		{failurePolicy{failOn: "must", baseline: baseline}, result("passed", conformance.Should), false},
	} {
		if err := c.policy.read(); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		a := &app{stdout: &out}
		err := c.policy.exit(a, &conformance.Report{Results: []conformance.Result{c.res}})
		if got := c.policy.counts(&c.res); got != c.want || (exitCode(err) == exitFailed) != c.want {
			t.Errorf("%+v: %s of the level %s counts: %v, exit code %d, want %v", c.policy, c.res.ID, c.res.Level, got, exitCode(err), c.want)
		}
		if said := strings.Contains(out.String(), "exit code 0: "); said == c.want && c.res.Status == conformance.Failed {
			t.Errorf("%+v: %s: the output is %q", c.policy, c.res.ID, out.String())
		}
		c.policy.failFast = true
		if got := c.policy.stopAfter()(c.res); got != c.want {
			t.Errorf("%+v: --fail-fast ends the run after %s: %v, want %v", c.policy, c.res.ID, got, c.want)
		}
	}
	if (&failurePolicy{}).stopAfter() != nil {
		t.Error("without --fail-fast a check ends the run")
	}
}

// A run in which every check is skipped is an error, with any policy.
func TestNothingJudged(t *testing.T) {
	skipped := conformance.Result{ID: "x", Level: conformance.Must, Status: conformance.Skipped}
	passed := conformance.Result{ID: "y", Level: conformance.Must, Status: conformance.Passed}
	for _, c := range []struct {
		results []conformance.Result
		want    int
	}{
		{[]conformance.Result{skipped, skipped}, exitFailed},
		{[]conformance.Result{skipped, passed}, exitOK},
	} {
		err := (&failurePolicy{weakest: conformance.Must}).exit(&app{stdout: &strings.Builder{}}, &conformance.Report{Results: c.results})
		if exitCode(err) != c.want || err != nil && err.Error() != "no check was judged: 2 of 2 are skipped, and the report says what each needs" {
			t.Errorf("%d results: exit code %d, %v, want %d", len(c.results), exitCode(err), err, c.want)
		}
	}
}

func TestRunProgress(t *testing.T) {
	got := runProgress(map[conformance.Status]int{conformance.Passed: 12, conformance.Failed: 1}, 595, "jobs")
	if want := "12 passed, 1 failed, 0 skipped of 595: jobs"; got != want {
		t.Errorf("runProgress = %q, want %q", got, want)
	}
}

func TestConformanceFlagsAreChecked(t *testing.T) {
	dir := t.TempDir()
	odd := write(t, filepath.Join(dir, "odd.json"), "{}")
	draft := write(t, filepath.Join(dir, "draft.json"), `{"results":[{"id":"draft.a.b","status":"passed","dialect":"draft"}]}`)
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"level", `--level: "runtime" is not one of must, should, may, house, all`, []string{"--level", "runtime"}},
		{"check", `--check: there is no check "x.y"`, []string{"--check", "x.y"}},
		{"fail-on", `--fail-on: "all" is not one of must`, []string{"--fail-on", "all"}},
		{"strict", "--fail-on and --strict exclude each other: give one of them", []string{"--strict", "--fail-on", "may"}},
		{"report without a file", "--report html: give FORMAT=FILE, for example html=report.html", []string{"--report", "html"}},
		{"report with an empty file", "--report html=: give FORMAT=FILE", []string{"--report", "html="}},
		{"format", `--report: "pdf" is not one of json, junit, markdown, html, sarif, badge`, []string{"--report", "pdf=x"}},
		{"directory", "does not exist", []string{"--report", "json=" + filepath.Join(dir, "no", "x.json")}},
		{"same file", "two reports have the same file", []string{"--report", "json=" + dir + "/x", "--report", "html=" + dir + "/./x"}},
		{"since", "--since /nonexistent: no such file", []string{"--since", "/nonexistent"}},
		{"baseline", "--baseline " + odd + ": not a JSON report", []string{"--baseline", odd}},
		{"dialect of the baseline", "the report is about the dialect draft, and this run about rfc", []string{"--baseline", draft, "--dialect", "rfc"}},
		{"section", "no check is chosen", []string{"--section", "RFC §999", "--since", draft, "--dialect", "draft"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"conformance", "run", "--url", "ws://127.0.0.1:1/arcp", "--token", "t"}, c.args...)
			wantRefusal(t, cli(t, args...), exitUsage, c.want)
		})
	}
}

// One run writes every report. A later run compares with it, or repeats what did not pass.
func TestConformanceReports(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: left out with -short")
	}
	t.Parallel()
	p := demoServer(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) outcome {
		return p.cli(append([]string{"conformance", "run"}, args...)...)
	}
	wrong := func(args ...string) outcome {
		return run(append([]string{"--principal", "nobody", "--strict"}, args...)...)
	}
	args := []string{"--principal", "alice", "--check", "auth.challenge,observers.submit", "--seed", "7"}
	for format, name := range map[string]string{"json": "passed.json", "junit": "r.xml", "markdown": "r.md", "html": "r.html", "sarif": "r.sarif", "badge": "r.svg"} {
		args = append(args, "--report", format+"="+file(name))
	}
	wantOutcome(t, "reports", run(args...), exitOK, "order of the checks: seed 7", "")
	for _, name := range []string{"passed.json", "r.xml", "r.md", "r.html", "r.sarif", "r.svg"} {
		if text, err := os.ReadFile(file(name)); err != nil || len(text) < 100 {
			t.Errorf("%s has %d bytes, %v", name, len(text), err)
		}
	}
	// The token is one of another principal: the check fails.
	o := wrong("--check", "auth.challenge", "--baseline", file("passed.json"), "--report", "json="+file("failed.json"))
	wantOutcome(t, "a regression", o, exitFailed, "regression  auth.challenge", "")
	wantOutcome(t, "a known failure", wrong("--check", "auth.challenge", "--baseline", file("failed.json")), exitOK, "1 known failures", "")
	wantOutcome(t, "mended", run("--principal", "alice", "--check", "auth.challenge", "--baseline", file("failed.json")), exitOK, "mended      auth.challenge", "")
	wantOutcome(t, "since", run("--principal", "alice", "--level", "all", "--since", file("failed.json")), exitOK, "1 passed, 0 failed, 0 skipped", "")
	wantOutcome(t, "since with what was skipped", run("--level", "all", "--since", file("passed.json")), exitFailed, "0 passed, 0 failed, 1 skipped", "no check was judged: 1 of 1 are skipped")
	wantOutcome(t, "since with nothing", run("--principal", "alice", "--check", "auth.challenge", "--since", file("passed.json")), exitOK, "", "every chosen check passed in")
	for _, path := range []string{"failed.json"} {
		if text, err := os.ReadFile(file(path)); err != nil || strings.Contains(string(text), `"secret"`) {
			t.Errorf("%s shows the token, %v", path, err)
		}
	}
	wantOutcome(t, "fail fast", wrong("--group", "auth", "--level", "house", "--fail-fast", "--parallel", "1"), exitFailed, "the run ended before this check", "")
}

// Two servers are compared, and the exit code says whether they differ.
func TestConformanceAgainst(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers: left out with -short")
	}
	t.Parallel()
	p := demoServer(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "report.json")
	html := filepath.Join(dir, "report.html")
	run := func(args ...string) outcome {
		return p.cli(append([]string{"conformance", "run", "--check", "control.ping,auth.challenge", "--principal", "alice"}, args...)...)
	}
	wantOutcome(t, "the same server", run("--against", p.url, "--against-token", "secret"), exitOK, "no difference from arcp-go", "")
	other := serve(t, "--data", ":memory:", "--demo", "--token", "bob=secret")
	o := run("--against", other.url, "--against-token", "secret", "--report", "json="+file, "--report", "html="+html)
	wantOutcome(t, "another principal", o, exitFailed, "differs auth.challenge: outcome: passed / failed: ", "")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report conformance.Report
	if err := json.Unmarshal(text, &report); err != nil || len(report.Against.Differences) != 1 {
		t.Fatalf("the report is %v, %s", err, text)
	}
	for i, entries := range report.Against.Differences[0].Transcripts {
		if len(entries) == 0 {
			t.Errorf("the transcript of server %d is empty", i)
		}
	}
	if page, err := os.ReadFile(html); err != nil || !strings.Contains(string(page), "<summary>auth.challenge: outcome: passed / failed: ") {
		t.Errorf("the page has no difference: %v", err)
	}
	for _, args := range [][]string{{"--against", "http://x", "--against-token", "x"}, {"--against-token", "x"}, {"--against", p.url},
		{"--against", p.url, "--against-token", "x", "--strict"}} {
		if o := run(args...); o.code != exitUsage {
			t.Errorf("%v: exit code %d, want %d", args, o.code, exitUsage)
		}
	}
}

// draftRuntime is a server on a unix socket that answers session.hello only, and reports the token of each.
func draftRuntime(t *testing.T) (url string, tokens <-chan string) {
	t.Helper()
	l, url := listenUnix(t)
	received := make(chan string, 100)
	serve := func(c transport.Conn) {
		defer c.Abort()
		frame, err := c.Read()
		if err != nil {
			return
		}
		var hello struct {
			Type    string
			Payload struct{ Auth struct{ Token string } }
		}
		if json.Unmarshal(frame, &hello) != nil || hello.Type != "session.hello" {
			return
		}
		received <- hello.Payload.Auth.Token
		_ = c.Write([]byte(`{"arcp":"1.1","id":"m1","type":"session.welcome","payload":{"session_id":"s1"}}`)) // or the client has gone
		_ = c.Flush()                                                                                          // likewise
		_, _ = c.Read()                                                                                        // until the client sends more or goes
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return url, received
}

// Without --dialect the checks speak the dialect in which the server answers.
func TestConformanceDialect(t *testing.T) {
	p := demoServer(t)
	check := []string{"conformance", "run", "--check", "control.ping"}
	wantOutcome(t, "a server of both", p.cli(check...), exitOK, "\ndialect: rfc\n", "")
	wantRefusal(t, p.cli(append(check, "--library", "python")...), exitUsage, "--library is for --dialect draft")

	url, _ := draftRuntime(t)
	draft := []string{"conformance", "run", "--url", url, "--timeout", "1s", "--check", "draft.cancel.acknowledged"}
	wantOutcome(t, "a server of the draft", cli(t, draft...), exitFailed, "\ndialect: draft\n", "")
	wantOutcome(t, "with a library", cli(t, append(draft, "--library", "python")...), exitFailed, "\ndialect: draft\n", "")
	wantRefusal(t, p.cli(append(check, "--against", url)...), exitUnreachable, "the second server: session.open of the dialect rfc: ")

	silent, _ := draftRuntime(t)
	wantOutcome(t, "another dialect", cli(t, append(check, "--url", silent, "--dialect", "rfc", "--timeout", "1s")...), exitFailed, "\ndialect: rfc\n", "no check was judged")
}

// A refused credential ends the run with one error. It names the credential, and not its value.
func TestConformanceRefusedCredential(t *testing.T) {
	p := demoServer(t)
	const wrong = "wrong-token-0123456789"
	dir := t.TempDir()
	mapping := write(t, filepath.Join(dir, "mapping.yaml"), "token: {env: THEIR_TOKEN}\n")
	refused := func(why, want string, args ...string) {
		t.Helper()
		o := cli(t, append([]string{"conformance", "run", "--url", p.url}, args...)...)
		wantRefusal(t, o, exitAuth, want)
		if !strings.Contains(o.stderr, "UNAUTHENTICATED") || strings.Contains(o.stderr, wrong) {
			t.Errorf("%s: the error is %s", why, o.stderr)
		}
	}
	refused("none", "no token was sent: give --token or set ARCP_TOKEN")
	refused("flag", "the token is the one of --token: ", "--token", wrong)
	refused("flag in the draft", "the token is the one of --token: ", "--token", wrong, "--dialect", "draft")
	refused("second", "the token is the one of --against-token: ", "--token", "secret", "--against", p.url, "--against-token", wrong, "--check", "control.ping")
	t.Setenv("THEIR_TOKEN", wrong)
	refused("mapping", "the token is the one of `token` in "+mapping, "--mapping", mapping)
	t.Setenv("ARCP_TOKEN", wrong)
	refused("variable", "the token is the one of $ARCP_TOKEN: ")
}

// The checks send the token of the variable to a unix socket too. Without it none is sent.
func TestTokenForUnixSocket(t *testing.T) {
	url, tokens := draftRuntime(t)
	run := []string{"conformance", "run", "--url", url, "--dialect", "draft", "--timeout", "1s", "--check", "draft.cancel.acknowledged"}
	for _, token := range []string{"", "token-of-the-variable"} {
		t.Setenv("ARCP_TOKEN", token)
		cli(t, run...)
		if got := <-tokens; got != token {
			t.Errorf("the token in session.hello is %q, want %q", got, token)
		}
	}
}

// The help says that more than one check may fail with --fail-fast.
func TestFailFastHelp(t *testing.T) {
	wantOutcome(t, "help", cli(t, "conformance", "run", "--help"), exitOK, "checks that run already, see --parallel, are finished", "")
}
