package main

import (
	"strings"
	"testing"
)

func TestSchedules(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	add := func(flags ...string) string {
		t.Helper()
		o := p.cli(append([]string{"schedule", "add", "demo.echo", `{"a":1}`}, flags...)...)
		wantOutcome(t, "add", o, exitOK, "job_", "")
		return strings.TrimSpace(o.stdout)
	}
	wantOutcome(t, "an end", p.cli("jobs", "wait", add("--after", "0s")), exitOK, `{"a":1}`, "")
	waiting := []string{add("--after", "24h"), add("--at", "2090-01-02T15:04:05Z"), add("--every", "FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0")}
	for _, id := range waiting {
		wantOutcome(t, "listed", p.cli("schedule", "ls"), exitOK, id, "")
		wantOutcome(t, "removed", p.cli("schedule", "rm", id), exitOK, id, "")
	}
	if o := p.cli("schedule", "ls", "-o", "json"); o.code != exitOK || strings.Contains(o.stdout, "job_") {
		t.Errorf("after rm, ls prints %v, want no schedule", o)
	}
	o := p.cli("schedule", "next", "FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "-n", "3")
	if o.code != exitOK || strings.Count(o.stdout, "\n") != 3 {
		t.Errorf("next prints %v, want three times", o)
	}
	wantOutcome(t, "no time", p.cli("schedule", "add", "demo.echo"), exitUsage, "", "at")
	wantOutcome(t, "two times", p.cli("schedule", "add", "demo.echo", "--after", "1s", "--every", "FREQ=DAILY"), exitUsage, "", "after")
	wantOutcome(t, "wrong time", p.cli("schedule", "add", "demo.echo", "--at", "noon"), exitUsage, "", "--at noon: give a time")
	o = p.cli("schedule", "add", "demo.echo", "--every", "FREQ=NEVER")
	if o.code == exitOK || !strings.Contains(o.stderr, "INVALID_ARGUMENT") {
		t.Errorf("a wrong rule ends with %v, want INVALID_ARGUMENT", o)
	}
}
