package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// A value that means nothing is refused, not listed as nothing.
func TestValuesAreChecked(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	wantRefusal(t, p.cli("jobs", "ls", "--status", "foo"), exitUsage, `"foo" is not one of accepted, queued, running`)
	wantRefusal(t, p.cli("tail", "--type", "foo.bar"), exitUsage, `"foo.bar" is not an event type`)
	if help := p.cli("jobs", "ls", "--help").stdout; strings.Contains(help, "--token arcp dev") || !strings.Contains(help, "--token string") {
		t.Errorf("help of --token:\n%s", help)
	}
}

// A truncated list shows the newest entries, and the number of omitted ones.
func TestNewestJobsAreListed(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	var ids []string
	for range 3 {
		ids = append(ids, p.detach("demo.echo", `{}`))
	}
	o := p.cli("jobs", "ls", "--limit", "2")
	newest, older := strings.Index(o.stdout, ids[2]), strings.Index(o.stdout, ids[1])
	if strings.Contains(o.stdout, ids[0]) || newest < 0 || older < newest || !strings.Contains(o.stderr, "more rows follow: --limit 0 lists all, --cursor ") {
		t.Errorf("jobs %v are listed so:\n%s%s", ids, o.stdout, o.stderr)
	}
	all := p.cli("jobs", "list", "--all", "--limit", "1").stdout
	if at := strings.Index(all, ids[0]); at < strings.Index(all, ids[2]) || !strings.Contains(all, ids[2]) || !strings.Contains(all, "AGE") {
		t.Errorf("jobs %v are all listed so:\n%s", ids, all)
	}
}

func TestWatchStartsAtAnEvent(t *testing.T) {
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		p, _ := arcp.DecodePayload[arcp.JobSubscribePayload](env)
		if p.FromEventSeq == nil || *p.FromEventSeq != 41 || !p.History {
			t.Errorf("asked for %s, want the history after 41", env.Payload)
		}
		c.reply(env, arcp.JobSubscribed, arcp.JobSubscribedPayload{JobID: "job_1", CurrentStatus: "completed", Replayed: true})
		done := arcp.Frame(arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw("7")})
		done.JobID, done.EventSeq = "job_1", 1
		done.Extensions = arcp.Raw(`{"arcpx.arcp.origin.v1":{"event_seq":42}}`)
		c.send(done)
	})
	wantOutcome(t, "numbers are those of the submitting session", r.cli("jobs", "watch", "job_1", "--from", "41"), exitOK,
		"7\n", "  42  completed")
}

// The filters that the runtime does not know are applied by the command, over all pages.
func TestJobFilters(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	p.cli("invoke", "demo.fail", `{"code":"UNAVAILABLE","message":"no"}`)
	var ids []string
	for range 3 {
		ids = append(ids, p.detach("demo.echo", `{}`))
	}
	names := func(args ...string) string {
		t.Helper()
		o := p.cli(append([]string{"jobs", "ls", "-o", "name"}, args...)...)
		if o.code != exitOK {
			t.Fatalf("jobs ls %s: %v", strings.Join(args, " "), o)
		}
		return o.stdout
	}
	all := ids[2] + "\n" + ids[1] + "\n" + ids[0] + "\n"
	for _, args := range [][]string{{"--since", "1w1d", "--tool", "demo.echo"}, {"--tool", "demo.e*"}, {"--tool", "demo.echo"}, {"--tool", "*.echo@1.?.0"}, {"--agent", "demo.echo"}} {
		if got := names(args...); got != all {
			t.Errorf("%s: got %q, want %q", strings.Join(args, " "), got, all)
		}
	}
	if got := names("--tool", "demo.e*", "--limit", "1"); got != ids[2]+"\n" {
		t.Errorf("the newest that matches is %q, want %s", got, ids[2])
	}
	if got := names("--tool", "demo.[^e]*", "--since", "1h"); len(jobIDs(got)) != 1 {
		t.Errorf("the others are %q, want one", got)
	}
	if got := names("--since", "1ns"); got != "" {
		t.Errorf("since 1 ns there are %q", got)
	}
	page := p.cli("jobs", "ls", "-o", "name", "--tool", "demo.e*", "--limit", "2")
	_, cursor, _ := strings.Cut(page.stderr, "--cursor ")
	cursor, _, _ = strings.Cut(cursor, " ")
	if got := page.stdout + names("--tool", "demo.e*", "--cursor", cursor); got != all {
		t.Errorf("two pages have %q, want %q", got, all)
	}
	session := p.cli("jobs", "show", ids[0], "-o", "json").stdout
	_, session, _ = strings.Cut(session, `"session_id":"`)
	session, _, _ = strings.Cut(session, `"`)
	o := p.cli("jobs", "ls", "--session", session)
	if got := jobIDs(o.stdout); len(got) != 1 || got[0] != ids[0] || !strings.Contains(o.stdout, "SESSION") || !strings.Contains(o.stdout, session) {
		t.Errorf("of session %s: %v", session, o)
	}
	wantRefusal(t, p.cli("jobs", "ls", "--tool", "demo.["), exitUsage, "--tool demo.[: give a name or a pattern")
	wantRefusal(t, p.cli("jobs", "ls", "--since", "-1h"), exitUsage, `--since: "-1h" is not a duration such as`)
}

// A runtime that ignores the order lists the oldest jobs first: the newest are found all the same.
func TestNewestJobsOfAnEarlierRuntime(t *testing.T) {
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		p, _ := arcp.DecodePayload[arcp.SessionListJobsPayload](env)
		page := arcp.SessionJobsPayload{RequestID: env.ID, NextCursor: new("2")}
		for _, id := range []string{"job_1", "job_2", "job_3"} {
			if p.Cursor != "" {
				id += "b"
			}
			page.Jobs = append(page.Jobs, arcp.JobEntry{JobID: arcp.JobID(id), Agent: "a@1", Status: "completed"})
		}
		if p.Cursor != "" {
			page.NextCursor = nil
		}
		c.reply(env, arcp.SessionJobs, page)
	})
	wantOutcome(t, "the newest", r.cli("jobs", "ls", "--limit", "4", "-o", "name"), exitOK, "job_3b\njob_2b\njob_1b\njob_3\n", "not shown: 2 older rows; --limit 0 lists all")
	wantOutcome(t, "all", r.cli("jobs", "ls", "--all", "-o", "name"), exitOK, "job_3b\njob_2b\njob_1b\njob_3\njob_2\njob_1\n", "")
}

// With --watch new and changed jobs are printed until an interrupt.
func TestJobsAreWatched(t *testing.T) {
	lists := 0
	signalled := make(chan struct{})
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		lists++
		page := arcp.SessionJobsPayload{RequestID: env.ID, Order: arcp.NewestFirst}
		status := "running"
		if lists > 2 {
			status = "completed"
			page.Jobs = append(page.Jobs, arcp.JobEntry{JobID: "job_2", Agent: "b@1", Status: "queued", CreatedAt: time.Now()})
		}
		page.Jobs = append(page.Jobs, arcp.JobEntry{JobID: "job_1", Agent: "a@1", Status: status, CreatedAt: time.Now()})
		c.reply(env, arcp.SessionJobs, page)
		if lists == 4 {
			close(signalled)
		}
	})
	go func() {
		<-signalled
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Signal(os.Interrupt) // without it the command does not end
		}
	}()
	o := r.cli("jobs", "ls", "--watch", "-o", "jsonl")
	var seen []string
	for line := range strings.Lines(o.stdout) {
		id, rest, _ := strings.Cut(strings.TrimPrefix(line, `{"job_id":"`), `"`)
		_, status, _ := strings.Cut(rest, `"status":"`)
		status, _, _ = strings.Cut(status, `"`)
		seen = append(seen, id+" "+status)
	}
	if want := []string{"job_1 running", "job_1 completed", "job_2 queued"}; o.code != exitInterrupted || !slices.Equal(seen, want) {
		t.Errorf("watch prints %q and %v, want %q and exit code 130", seen, o, want)
	}
}

// A job is shown with all that it was given and did, and repeated with the same.
func TestJobsAreShownAndRepeated(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	o := p.cli("invoke", "--detach", "demo.spend", `{"currency":"USD","amount":"0.10","times":2}`, "--lease", `{"tool.call":["*"]}`, "--budget", "USD:1")
	id := strings.TrimSpace(o.stdout)
	wantOutcome(t, "its end", p.cli("jobs", "wait", id), exitOK, "", "")
	shown := p.cli("jobs", "show", id, "--events", "2").stdout
	for _, want := range []string{`arguments   {"currency":"USD","amount":"0.10","times":2}`, `lease       {"cost.budget":["USD:1"],"tool.call":["*"]}`, "last events:", "completed\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the job is shown without %s:\n%s", want, shown)
		}
	}
	if _, events, _ := strings.Cut(shown, "last events:\n"); strings.Count(events, "\n") != 2 {
		t.Errorf("want two events:\n%s", shown)
	}
	wantOutcome(t, "the events in JSON", p.cli("jobs", "show", id, "--events", "1", "-o", "json"), exitOK, `"events":[{"`, "")
	wantOutcome(t, "the lease in JSON is the wire's", p.cli("jobs", "show", id, "-o", "json"), exitOK, `"cost_budget":["USD:1"]`, "")
	live := p.cli("invoke", "--detach", "demo.sleep", `{"ms":3600000}`, "--lease", `{"tool.call":["*"]}`, "--budget", "USD:1.50")
	wantOutcome(t, "the budget of a live job", p.cli("jobs", "show", strings.TrimSpace(live.stdout)), exitOK, "budget      1.50 of 1.50 USD left\n", "")
	wantRefusal(t, p.cli("jobs", "show", id, "--events", "-1"), exitUsage, "--events -1: give 0 to 1000")

	echo := p.detach("demo.echo", `{"n":1}`)
	wantOutcome(t, "again", p.cli("jobs", "rerun", echo), exitOK, `{"n":1}`, "")
	wantOutcome(t, "with other arguments", p.cli("jobs", "rerun", echo, "--arguments", `{"n":2}`), exitOK, `{"n":2}`, "")
	detached := strings.TrimSpace(p.cli("jobs", "rerun", echo, "--detach").stdout)
	if wantOutcome(t, "the new job", p.cli("jobs", "wait", detached), exitOK, `{"n":1}`, ""); detached == echo {
		t.Error("the job itself is returned, want a new one")
	}
	wantOutcome(t, "no such job", p.cli("jobs", "rerun", "job_nope"), exitFailed, "", "JOB_NOT_FOUND")
	wantRefusal(t, p.cli("jobs", "rerun", echo, "--arguments", "{"), exitUsage, "the arguments: not JSON")
}

// The text of a lease has each namespace once.
func TestLeaseText(t *testing.T) {
	for _, c := range []struct{ why, lease, want string }{
		{"both spellings", `{"fs.read":["/a"],"fs_read":["/a"],"x_y":["1"]}`, `{"fs.read":["/a"],"x_y":["1"]}`},
		{"different values stay", `{"fs.read":["/a"],"fs_read":["/b"]}`, `{"fs.read":["/a"],"fs_read":["/b"]}`},
		{"only underscores stay", `{"fs_read":["/a"]}`, `{"fs_read":["/a"]}`},
		{"no lease", "", ""},
		{"an empty lease", "{}", ""},
	} {
		if got := leaseText(arcp.Raw(c.lease)); got != c.want {
			t.Errorf("%s: lease of %s = %s, want %s", c.why, c.lease, got, c.want)
		}
	}
}

// A text that is not the id of a job is refused before the runtime is asked, by each command in the same way.
func TestJobIDsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"jobs", "show"}, {"jobs", "watch"}, {"jobs", "wait"}, {"jobs", "rerun"}, {"jobs", "cancel", "job_1"}, {"jobs", "rm", "job_1"},
		{"jobs", "interrupt", "--prompt", "go on?"}, {"workflow", "show"}, {"tail", "--job"},
	} {
		o := cli(t, append(args, "nosuch", "--url", unixURL("/nowhere"))...)
		wantRefusal(t, o, exitUsage, "arcp: \"nosuch\" is not the id of a job, such as job_01M8E7WV8WEGB8R14NWFHFE89P; `arcp jobs ls` lists the ids")
	}
}

// A budget is shown for each currency, with what is left of the sum in the lease.
func TestBudgetTexts(t *testing.T) {
	for _, c := range []struct{ why, lease, left, want string }{
		{"a currency", `{"cost.budget":["USD:5.00"]}`, `{"USD":3.00}`, "3.00 of 5.00 USD left"},
		{"two currencies", `{"cost.budget":["USD:1","EUR:2.50"]}`, `{"USD":-0.2,"EUR":0}`, "0 of 2.50 EUR left; -0.2 of 1 USD left"},
		{"amounts of one currency", `{"cost.budget":["usd:1","USD:0.25"]}`, `{"usd":1.25}`, "1.25 of 1.25 usd left"},
		{"no limit", `{"tool.call":["*"]}`, `{"USD":3}`, "3 USD left"},
		{"a malformed limit", `{"cost.budget":["USD"]}`, `{"USD":3}`, "3 USD left"},
		{"nothing is known", `{"cost.budget":["USD:1"]}`, "", ""},
		{"no lease", "", "{}", ""},
	} {
		got := strings.Join(budgetTexts(&arcp.JobView{Lease: arcp.Raw(c.lease), Budget: arcp.Raw(c.left)}), "; ")
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}

func TestArgumentsThatAreNotComplete(t *testing.T) {
	for _, c := range []struct {
		view  arcp.JobView
		error string
	}{
		{arcp.JobView{Arguments: arcp.Raw(`{"key":"[redacted]"}`), ArgumentsState: arcp.ArgumentsRedacted, ArgumentsMessage: "no secrets"}, "not available in full: no secrets; "},
		{arcp.JobView{ArgumentsState: arcp.ArgumentsOmitted, ArgumentsMessage: "too long"}, "not available in full: too long; "},
		{arcp.JobView{ArgumentsState: "encrypted"}, "not available in full: encrypted; "},
		{arcp.JobView{}, "does not tell the arguments"},
	} {
		if raw, err := storedArguments(&c.view); err == nil || !strings.Contains(err.Error(), c.error) || !strings.Contains(err.Error(), "--arguments") {
			t.Errorf("%+v: arguments %s, error %v, want %s", c.view, raw, err, c.error)
		}
	}
}

// DURATION counts from the start of a job.
func TestJobDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		created := time.Now()
		time.Sleep(time.Hour)
		started := time.Now()
		time.Sleep(3 * time.Second)
		ended := time.Now()
		time.Sleep(2 * time.Second)
		for _, c := range []struct {
			why, want string
			job       arcp.JobEntry
		}{
			{"it has not started", "", arcp.JobEntry{Status: "queued"}},
			{"the draft dialect has no start", "-", arcp.JobEntry{Status: "running"}},
			{"it runs", "5.0s", arcp.JobEntry{Status: "running", StartedAt: started}},
			{"it waits for another attempt", "5.0s", arcp.JobEntry{Status: "queued", StartedAt: started}},
			{"it has ended", "3.0s", arcp.JobEntry{Status: "completed", StartedAt: started, EndedAt: ended}},
			{"it was cancelled in the queue", "-", arcp.JobEntry{Status: "cancelled", EndedAt: ended}},
			{"its end is unknown", "-", arcp.JobEntry{Status: "failed", StartedAt: started}},
		} {
			c.job.CreatedAt = created
			if got := jobDuration(&c.job); got != c.want {
				t.Errorf("%s: %q, want %q", c.why, got, c.want)
			}
		}
	})
}
