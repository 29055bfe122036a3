package main

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// nine is a rule with one occurrence a day.
const nine = "FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0"

// schedule schedules demo.echo and returns the id of the schedule.
func (p *process) schedule(flags ...string) (id string) {
	p.t.Helper()
	o := p.cli(append([]string{"schedule", "add", "demo.echo", `{"a":1}`}, flags...)...)
	id = strings.TrimSpace(o.stdout)
	if o.code != exitOK || !arcp.JobID(id).Valid() || o.stderr != "" {
		p.t.Fatalf("schedule add %s: got %v\nwant the id of a schedule", strings.Join(flags, " "), o)
	}
	return id
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	wantOutcome(t, "a schedule ends with the outcome of its job", p.cli("jobs", "wait", p.schedule("--after", "0s")), exitOK, `{"a":1}`, "")
	wantOutcome(t, "a rule ends with counts", p.cli("jobs", "wait", p.schedule("--every", "FREQ=SECONDLY;COUNT=1")), exitOK, `{"fired":1,"skipped":0}`, "")
	after, at, every := p.schedule("--after", "24h"), p.schedule("--at", "2090-01-02T15:04:05Z"), p.schedule("--every", nine)
	golden(t, "schedule-ls.txt", scrub(p.cli("schedule", "ls").stdout))
	golden(t, "schedule-ls.json", scrub(p.cli("schedule", "ls", "-o", "json").stdout))
	wantOutcome(t, "a schedule is a job", p.cli("jobs", "ls", "--status", "queued"), exitOK, every, "")
	o := p.cli("schedule", "rm", after, at)
	if want := after + " is removed\n" + at + " is removed\n"; o.code != exitOK || o.stdout != want {
		t.Errorf("rm: got %v\nwant %s", o, want)
	}
	if o := p.cli("schedule", "rm", every, "-o", "json"); o.code != exitOK || o.stdout != `{"job_id":"`+every+`","accepted":true}`+"\n" {
		t.Errorf("rm -o json: got %v", o)
	}
	if o := p.cli("schedule", "ls", "-o", "json"); o.code != exitOK || o.stdout != `{"items":[]}`+"\n" {
		t.Errorf("after rm, ls prints %v, want no schedule", o)
	}
	wantOutcome(t, "a removed schedule is cancelled", p.cli("jobs", "wait", every), exitCancelled, "", "schedule removed")
}

func TestScheduleNext(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	wantOutcome(t, "a rule", p.cli("schedule", "next", "DTSTART:20900101T000000Z RRULE:"+nine, "-n", "3"), exitOK,
		"Sun 2090-01-01 09:00:00 UTC\nMon 2090-01-02 09:00:00 UTC\nTue 2090-01-03 09:00:00 UTC\n", "")
	wantOutcome(t, "a rule with a zone, in JSON", p.cli("schedule", "next", "DTSTART;TZID=Europe/Berlin:20900101T000000 "+nine, "-n", "1", "-o", "json"), exitOK,
		`{"items":["2090-01-01T08:00:00.000000Z"]}`+"\n", "")
	if o := p.cli("schedule", "next", nine); o.code != exitOK || strings.Count(o.stdout, "09:00:00 UTC\n") != 5 {
		t.Errorf("next prints %v, want five times", o)
	}
	wantOutcome(t, "a schedule", p.cli("schedule", "next", p.schedule("--at", "2090-01-02T15:04:05Z")), exitOK, "Mon 2090-01-02 15:04:05 UTC\n", "")
	wantOutcome(t, "no schedule", p.cli("schedule", "next", "job_nope"), exitFailed, "", "NOT_FOUND: no such schedule")
	wantOutcome(t, "no rule", p.cli("schedule", "next", "FREQ=NEVER"), exitFailed, "", "INVALID_ARGUMENT")
}

// A schedule has the lease, the budget and the idempotency key of its flags.
func TestScheduleFlags(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	spend := []string{"schedule", "add", "demo.spend", `{"currency":"USD","amount":"0.10","times":3}`, "--after", "0s", "--lease", `{"tool.call":["*"]}`}
	o := p.cli(append(spend, "--budget", "USD:0.20", "--budget", "EUR:1")...)
	wantOutcome(t, "the budget is spent", p.cli("jobs", "wait", strings.TrimSpace(o.stdout)), exitDenied, "", "BUDGET_EXHAUSTED: nothing is left of the budget of USD")
	o = p.cli(append(spend, "--budget", "USD:0.30")...)
	wantOutcome(t, "the budget suffices", p.cli("jobs", "wait", strings.TrimSpace(o.stdout)), exitOK, "", "")
	wantRefusal(t, p.cli("schedule", "add", "demo.echo", "--every", "bogus"), exitUsage, "--every bogus: wrong format; give an RRULE such as FREQ=")
	wantOutcome(t, "a malformed lease", p.cli("schedule", "add", "demo.echo", "--after", "0s", "--lease", `{"tool.call":5}`), exitFailed, "", "INVALID_REQUEST: lease")
	wantOutcome(t, "a malformed budget", p.cli("schedule", "add", "demo.echo", "--after", "0s", "--budget", "much"), exitUsage, "", `--budget "much": give a currency`)

	first := p.schedule("--after", "24h", "--idempotency-key", "k")
	if again := p.schedule("--after", "24h", "--idempotency-key", "k"); again != first {
		t.Errorf("the repeated request made the schedule %s, want %s", again, first)
	}
	wantOutcome(t, "in JSON", p.cli("schedule", "add", "demo.echo", `{"a":1}`, "--after", "24h", "--idempotency-key", "k", "-o", "json"), exitOK,
		`{"job_id":"`+first+`"}`+"\n", "")
	wantOutcome(t, "another request with the key", p.cli("schedule", "add", "demo.echo", "--after", "24h", "--idempotency-key", "k"), exitFailed, "", "DUPLICATE_KEY")
}

func TestScheduleIsRefused(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no tool", []string{"nope", "--after", "1s"}, "AGENT_NOT_AVAILABLE"},
		{"a built-in tool", []string{"tools.list", "--after", "1s"}, "INVALID_ARGUMENT"},
		{"wrong arguments", []string{"demo.sleep", `{"ms":"long"}`, "--after", "1s"}, "INVALID_ARGUMENT: argument /ms"},
		{"past", []string{"demo.echo", "--at", "2020-01-01T00:00:00Z"}, "INVALID_ARGUMENT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantOutcome(t, c.name, p.cli(append([]string{"schedule", "add"}, c.args...)...), exitFailed, "", c.want)
		})
	}
	wantOutcome(t, "an unknown schedule", p.cli("schedule", "rm", "job_nope"), exitFailed, "", "job_nope")
}

func TestScheduleUsage(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no time", []string{"add", "demo.echo"}, "arcp: give --after, --at or --every, for example --after 10m"},
		{"two times", []string{"add", "demo.echo", "--after", "1s", "--every", "FREQ=DAILY"}, "arcp: --after and --every exclude each other: give one of them"},
		{"no tool and no time", []string{"add"},
			"arcp: wrong number of arguments (0); usage: `arcp schedule add TOOL [JSON|@FILE|-] [flags]`; give --after, --at or --every, for example --after 10m"},
		{"wrong time", []string{"add", "demo.echo", "--at", "noon"}, "--at noon: give a time such as"},
		{"empty time", []string{"add", "demo.echo", "--at", ""}, "--at : give a time such as"},
		{"empty rule", []string{"add", "demo.echo", "--every", ""}, "--every is empty: give an RRULE such as"},
		{"negative delay", []string{"add", "demo.echo", "--after", "-1s"}, `--after: "-1s" is not a duration`},
		{"arguments that are not JSON", []string{"add", "demo.echo", "{", "--after", "1s"}, "the arguments: not JSON"},
		{"rm of no id", []string{"rm", ""}, "\"\" is not the id of a schedule; `arcp schedule ls` lists the ids"},
		{"rm of another id", []string{"rm", "job_1", "sess_1"}, `"sess_1" is not the id of a schedule`},
		{"no times", []string{"next", nine, "-n", "0"}, "--number 0: give 1 to 100"},
		{"too many times", []string{"next", nine, "-n", "101"}, "--number 101: give 1 to 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantRefusal(t, cli(t, append([]string{"schedule"}, c.args...)...), exitUsage, c.want)
		})
	}
}
