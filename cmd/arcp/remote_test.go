package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

func TestInvokeSurvivesItsConnection(t *testing.T) {
	var request arcp.MessageID
	handle := func(c *fakeConn, env *arcp.Envelope) {
		switch env.Type {
		case arcp.ToolInvoke:
			request = env.ID
			c.event(request, arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: "job_1"})
			c.Close(transport.CloseGoingAway, "shutdown")
		case arcp.SessionResume:
			c.event(request, arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw("7")})
		}
	}
	o := newFakeRuntime(t, handle).cli("invoke", "demo.echo")
	wantOutcome(t, "text", o, exitOK, "7\n", "connection lost, reconnecting: closed by peer")
	if n := strings.Count(o.stderr, "\n"); n != 1 {
		t.Errorf("stderr has %d lines, want one:\n%s", n, o.stderr)
	}
	o = newFakeRuntime(t, handle).cli("invoke", "demo.echo", "-o", "json")
	wantOutcome(t, "JSON", o, exitOK, "7\n", `{"connection":{"message":"closed by peer`)

	r := newFakeRuntime(t, handle)
	r.refuse = true
	wantOutcome(t, "no way back", r.cli("invoke", "demo.echo"), exitUnreachable, "", "job_1 continues: `arcp jobs watch job_1` follows it")
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

func TestSessionsAreListed(t *testing.T) {
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		switch string(env.Payload) {
		case `{"tool":"sessions.list","arguments":{"limit":100}}`:
			c.complete(env, `{"items":[{"session_id":"sess_A","principal":"alice","state":"connected","created_at":"2026-05-09T13:00:00Z",
				"last_event_seq":12,"acked_seq":10,"client_kind":"arcp-cli","transport":"websocket","remote":"192.0.2.1"}],"next_cursor":"c1"}`)
		case `{"tool":"sessions.list","arguments":{"cursor":"c1","limit":100}}`:
			c.complete(env, `{"items":[{"session_id":"sess_B","principal":"alice","state":"detached","created_at":"2026-05-09T13:00:00Z",
				"detached_at":"2026-05-09T14:00:00Z","last_event_seq":0}]}`)
		default:
			t.Errorf("unexpected %s %s", env.Type, env.Payload)
		}
	})
	o := r.cli("sessions", "ls")
	wantOutcome(t, "one page", o, exitOK, "sess_A", "--cursor c1 continues")
	golden(t, "sessions-ls.txt", scrub(r.cli("sessions", "ls", "--all").stdout))
	wantOutcome(t, "JSON", r.cli("sessions", "ls", "-o", "json"), exitOK, `{"items":[{"session_id":"sess_A","principal":"alice"`, "")
	wantOutcome(t, "the next page as JSON", r.cli("sessions", "ls", "--cursor", "c1", "-o", "json"), exitOK, `"last_event_seq":0}]}`+"\n", "")
	o = r.cli("sessions", "ls", "--all", "--cursor", "c1")
	wantOutcome(t, "all that follow", o, exitOK, "sess_B", "")
	if strings.Contains(o.stdout, "sess_A") {
		t.Errorf("what comes before the cursor is listed, too:\n%s", o.stdout)
	}
	wantRefusal(t, r.cli("sessions", "ls", "--limit", "0"), exitUsage, "--limit 0")
}

// Flags are checked without a runtime, and names from others do not control the terminal.
func TestListsCheckFlagsAndEscapeNames(t *testing.T) {
	for _, command := range []string{"tools", "sessions", "jobs", "resources", "approvals", "input"} {
		wantRefusal(t, cli(t, command, "ls", "--limit", "0", "--url", unixURL("/nowhere")), exitUsage, "--limit 0: give 1 to 1000")
	}
	var b strings.Builder
	type row struct{ name string }
	columns := []column[row]{{"NAME", func(r *row) any { return r.name }}, {"BYTES", func(r *row) any { return len(r.name) }}}
	if err := table(&b, columns, []row{{"a\tb\nc"}, {"\x1b[2Jd"}}); err != nil || b.String() != "NAME   BYTES\na b c  5\n[2Jd   5\n" {
		t.Errorf("the table is\n%q, %v", b.String(), err)
	}
}

// The shapes equal those of a real runtime.
func TestSessionsOfAServer(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	o := p.cli("sessions", "ls", "-o", "json")
	wantOutcome(t, "its own session", o, exitOK, `"state":"connected"`, "")
	wantOutcome(t, "no such session", p.cli("sessions", "evict", "sess_nope"), exitFailed, "", "NOT_FOUND")
}

func TestSessionsAreEvicted(t *testing.T) {
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		switch string(env.Payload) {
		case `{"tool":"sessions.evict","arguments":{"session_id":"sess_A"}}`,
			`{"tool":"sessions.evict","arguments":{"session_id":"sess_A","forget":true}}`:
			c.complete(env, `{"evicted":true}`)
		default:
			c.event(env.ID, arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: "job_1"})
			c.event(env.ID, arcp.JobFailed, arcp.Errorf(arcp.CodePermissionDenied, "only an admin may"))
		}
	})
	wantOutcome(t, "evict", r.cli("sessions", "evict", "sess_A"), exitOK, "sess_A is evicted\n", "")
	wantOutcome(t, "forget", r.cli("sessions", "evict", "sess_A", "--forget", "-o", "json"), exitOK,
		`{"session_id":"sess_A","evicted":true}`, "")
	wantRefusal(t, r.cli("sessions", "evict", "sess_B"), exitDenied, "only an admin may")
}

// tailed answers a subscription with an event, then breaks the connection; the
// next one with the rest.
func tailed(t *testing.T, last func(c *fakeConn)) *fakeRuntime {
	return newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		if env.Type != arcp.Subscribe {
			return
		}
		accept := arcp.Frame(arcp.SubscribeAccepted, arcp.SubscribeAcceptedPayload{SubscriptionID: "sub_1"})
		accept.CorrelationID, accept.SubscriptionID = env.ID, "sub_1"
		c.send(accept)
		want := `{"filter":{"job_id":["job_1","job_2"],"types":["log"],"min_priority":"high"},"since":{"after_message_id":"msg_0"}}`
		if c.n > 1 {
			want = strings.Replace(want, "msg_0", "msg_1", 1)
		}
		if string(env.Payload) != want {
			t.Errorf("subscribe %s, want %s", env.Payload, want)
		}
		if c.n == 1 {
			c.fed("sub_1", "msg_1", arcp.Log, arcp.LogPayload{Level: "info", Message: "one"})
			c.Close(transport.CloseGoingAway, "shutdown")
			return
		}
		c.fed("sub_1", "msg_m", arcp.EventEmit, arcp.EventEmitPayload{Name: client.FeedCaughtUp})
		c.fed("sub_1", "msg_g", arcp.EventEmit,
			arcp.EventEmitPayload{Name: client.FeedGap, Data: arcp.Raw(`{"skipped":3,"first_id":"msg_2","last_id":"msg_4"}`)})
		c.fed("sub_1", "msg_5", arcp.Log, arcp.LogPayload{Level: "warn", Message: "two"})
		last(c)
	})
}

var tailArgs = []string{"tail", "--job", "job_1", "--job", "job_2", "--type", "log", "--min-priority", "high", "--since", "msg_0"}

func TestTailPrintsTheFeed(t *testing.T) {
	overflow := func(c *fakeConn) {
		env := arcp.Frame(arcp.SubscribeClosed,
			arcp.SubscribeClosedPayload{SubscriptionID: "sub_1", Code: arcp.CodeBackpressureOverflow, Reason: "too slow"})
		env.SubscriptionID = "sub_1"
		c.send(env)
	}
	o := tailed(t, overflow).cli(tailArgs...)
	wantOutcome(t, "the runtime ends it", o, exitFailed,
		"2026-01-02 15:04:05  job_1  info       one\n2026-01-02 15:04:05  job_1  warn       two\n",
		"BACKPRESSURE_OVERFLOW: too slow")
	wantOutcome(t, "the connection", o, exitFailed, "", "connection lost, reconnecting")
	wantOutcome(t, "where live events begin", o, exitFailed, "", "live events follow\n")
	wantOutcome(t, "the gap", o, exitFailed, "", "3 events of low priority were skipped, from msg_2 to msg_4")
	o = tailed(t, overflow).cli(append(tailArgs, "-o", "json")...)
	wantOutcome(t, "JSON", o, exitFailed, `"id":"msg_1"`, `"id":"msg_g"`)
	wantRefusal(t, cli(t, "tail", "--min-priority", "urgent"), exitUsage, `--min-priority: "urgent" is not one of low, normal, high, critical`)
}

func TestTailOfALostPosition(t *testing.T) {
	env := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: client.FeedGap})
	if got, want := feedMarker(&env), "events may be missing here: "; !strings.HasPrefix(got, want) {
		t.Errorf("a gap of unknown size is shown as %q, want %q", got, want)
	}
}

func TestInterruptEndsTail(t *testing.T) {
	t.Parallel()
	shown := make(chan struct{})
	r := tailed(t, func(*fakeConn) { close(shown) })
	p := start(t, nil, append(tailArgs, "--url", r.url)...)
	<-shown
	until(t, "the last event is shown", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(p.out.String(), "two")
	})
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code = %d, want 0: that is how it ends", code)
	}
}
