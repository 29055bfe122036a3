package main

import (
	"strings"
	"testing"
)

// The commands for jobs work in both dialects, also on a runtime where auto has to choose.
func TestJobCommandsWorkInBothDialects(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	for _, dialect := range []string{"draft", "auto"} {
		t.Run(dialect, func(t *testing.T) {
			run := func(args ...string) outcome { return p.cli(append(args, "--dialect", dialect)...) }
			wantOutcome(t, "a result", run("invoke", "demo.echo", `{"hello":"world"}`), exitOK, "{\"hello\":\"world\"}\n", "")
			wantOutcome(t, "progress", run("invoke", "demo.progress", `{"steps":3,"interval_ms":1}`), exitOK, "{\"steps\":3}\n",
				"progress   2/3 67%\n")
			wantOutcome(t, "a failure", run("invoke", "demo.fail", `{"code":"UNAVAILABLE","message":"so it is"}`), exitFailed,
				"", "failed: UNAVAILABLE: so it is")
			wantOutcome(t, "a timeout", run("invoke", "demo.sleep", `{"ms":3600000}`, "--timeout", "50ms"), exitTimeout, "", "failed: ")
			wantOutcome(t, "no tool", run("invoke", "demo.nope"), exitFailed, "", "AGENT_NOT_AVAILABLE")

			id := strings.TrimSpace(run("invoke", "demo.sleep", `{"ms":3600000}`, "--detach").stdout)
			wantOutcome(t, "the job in the list", run("jobs", "ls", "--agent", "demo.sleep"), exitOK, id, "")
			wantOutcome(t, "cancel", run("jobs", "cancel", id, "--reason", "enough"), exitOK, id, "")
			wantOutcome(t, "watch", run("jobs", "watch", id), exitCancelled, "", "enough")
			wantOutcome(t, "cancel again", run("jobs", "cancel", id), exitFailed, "", "already_terminal")
			wantOutcome(t, "no job", run("jobs", "watch", "job_nope"), exitFailed, "", "JOB_NOT_FOUND")
			wantOutcome(t, "no credentials", cli(t, "jobs", "ls", "--url", p.url, "--token", "wrong", "--dialect", dialect),
				exitAuth, "", "UNAUTHENTICATED")
		})
	}
	wantRefusal(t, p.cli("tail", "--dialect", "draft"), exitUsage, "the draft dialect has no subscribe; use --dialect rfc")
	wantRefusal(t, p.cli("jobs", "cancel", "job_nope", "--deadline", "1s", "--dialect", "draft"), exitUsage,
		"the draft dialect has no cancel with deadline_ms; use --dialect rfc")
}

// The environment has the default of --dialect.
func TestDialectOfTheEnvironment(t *testing.T) {
	p := demoServer(t)
	t.Setenv("ARCP_DIALECT", "draft")
	wantRefusal(t, p.cli("tail"), exitUsage, "the draft dialect has no subscribe")
	t.Setenv("ARCP_DIALECT", "x")
	wantRefusal(t, p.cli("jobs", "ls"), exitUsage, `--dialect: "x" is not one of rfc, draft, auto`)
}
