package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

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
	wantOutcome(t, "the gap", o, exitFailed, "", "skipped: 3 events of low priority, from msg_2 to msg_4")
	o = tailed(t, overflow).cli(append(tailArgs, "-o", "json")...)
	wantOutcome(t, "JSON", o, exitFailed, `"id":"msg_1"`, `"id":"msg_g"`)
	wantRefusal(t, cli(t, "tail", "--min-priority", "urgent"), exitUsage, `--min-priority: "urgent" is not one of low, normal, high, critical`)
	wantRefusal(t, cli(t, "tail", "--type", "log,foo.bar"), exitUsage, `--type: "foo.bar" is not an event type`)
	wantRefusal(t, cli(t, "tail", "--type", "job.complete"), exitUsage, `--type: "job.complete" is not an event type`)
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
