package main

import (
	"strings"
	"testing"

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
