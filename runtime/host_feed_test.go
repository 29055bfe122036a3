package runtime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/internal/host"
)

// hostEvent reads the next event of a subscription, which is to be one of the host.
func (p *peer) hostEvent() (arcp.MessageID, host.Event) {
	p.Helper()
	env := p.original()
	var f hostFrame
	if err := arcp.Unmarshal(env.Payload, &f); err != nil || env.Type != arcp.EventEmit || f.Name != "host.event" {
		p.Fatalf("%+v %s, want an event of the host: %v", env, env.Payload, err)
	}
	if env.JobID != "" || env.SessionID != "" || env.CorrelationID != "" || env.TraceID != "" || env.EventSeq != 0 || !env.Timestamp.Equal(f.Data.Timestamp) {
		p.Errorf("an event of no job is in the envelope %+v", env)
	}
	return env.ID, f.Data.Event
}

// Events of agents, approvals and resources are in the subscriptions of their principal, in
// order with the events of jobs, and in no other's.
func TestHostEventsInSubscriptions(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		watcher, another, p, stranger := b.dial("alice"), b.dial("alice"), b.dial("alice"), b.dial("bob")
		watcher.subscribe(`{"filter":{"types":["event.emit","job.completed"]}}`)
		another.subscribe(`{"filter":{"types":["event.emit"],"min_priority":"normal"}}`)
		for _, filter := range []string{`{"types":["log"]}`, `{"session_id":["` + string(p.session) + `"],"types":["event.emit"]}`,
			`{"job_id":["job_x"],"types":["event.emit"]}`, `{"trace_id":["x"]}`, `{"types":["event.emit"],"min_priority":"high"}`} {
			watcher.subscribe(`{"filter":` + filter + `}`) // none of these selects any
		}
		stranger.subscribe(`{"filter":{"types":["event.emit"]}}`)
		p.must("host.register_agent", `{"id":"x","name":"zoe","kind":"k"}`)
		p.must("host.set_status", `{"agent_id":"x","status":"running","message":"at work","payload":{"n":1.50}}`)
		q := p.must("approval.request", `{"action":"ship it?"}`)["approval_id"].(string)
		p.must("approval.resolve", `{"approval_id":"`+q+`","approved":true}`)
		p.must("registry.register", `{"resource_id":"r","kind":"sandbox"}`)
		p.must("host.unregister_agent", `{"agent_id":"x"}`)

		var events []host.Event
		for i, kind := range []string{"agent.registered", "agent.status_changed", "approval.requested", "approval.resolved", "resource.registered", "agent.unregistered"} {
			first, e := watcher.hostEvent()
			if e.Kind != kind {
				t.Fatalf("%+v is event %d, want %s", e, i, kind)
			}
			events = append(events, e)
			if second, again := another.hostEvent(); second != first || again.ID != e.ID {
				t.Errorf("two subscriptions have %s and %s", first, second)
			}
			if end := watcher.original(); end.Type != arcp.JobCompleted {
				t.Errorf("%s comes before the end of the call that made it", end.Type)
			}
		}
		if e := events[1]; e.AgentID != "x" || e.Message != "at work" || string(e.Payload) != `{"n":1.50}` {
			t.Errorf("%+v %s", e, e.Payload)
		}
		kept := p.must("host.events", `{"limit":500}`)["items"].([]any)
		slices.Reverse(kept)
		for i, e := range events {
			if len(kept) != len(events) || kept[i].(map[string]any)["id"] != e.ID {
				t.Fatalf("host.events has %v, the subscription %v", kept, events)
			}
		}
		stranger.send("ping", "{}")
		stranger.expect("pong") // and nothing before it
	})
}

// The id of an event of the host is a position like any other, also over a restart,
// until it is as old as the retention.
func TestHostEventsArePositions(t *testing.T) {
	keep := func(c *runtime.Config) { c.Retention = time.Hour }
	inBubble(t, keep, func(b *fixture) {
		w, p := b.dial("alice"), b.dial("alice")
		w.subscribe(`{"filter":{"types":["event.emit","job.completed"]}}`)
		register := func(p *peer, id string) { p.must("host.register_agent", `{"id":"`+id+`","name":"n","kind":"k"}`) }
		register(p, "a")
		position, _ := w.hostEvent()
		register(p, "b")
		var ids []arcp.MessageID
		for len(ids) < 3 {
			ids = append(ids, w.original().ID) // the end of a's call, b, the end of its call
		}
		b.shutdown(0)
		b.serve.Wait()
		b.boot(keep)
		w, p = b.dial("alice"), b.dial("alice")
		if n := len(p.must("host.events", `{}`)["items"].([]any)); n != 0 {
			t.Errorf("%d events are in memory after a restart", n)
		}
		since := func(p *peer, id arcp.MessageID) {
			p.send("subscribe", fmt.Sprintf(`{"filter":{"types":["event.emit","job.completed"]},"since":{"after_message_id":%q}}`, id))
		}
		since(w, position)
		for _, id := range ids {
			if got := w.original(); got.ID != id {
				t.Errorf("%s %s comes after a restart, want %s", got.Type, got.ID, id)
			}
		}
		for !strings.Contains(string(w.original().Payload), "subscription.backfill_complete") {
			continue // calls of before and after the restart
		}
		register(p, "c")
		if _, e := w.hostEvent(); e.AgentID != "c" {
			t.Errorf("what comes then is %+v", e)
		}
		time.Sleep(3 * time.Hour)
		b.wantTrimmed("nothing has happened for longer than the retention", "alice")
		q := b.dial("alice")
		since(q, position)
		if e := refusal(t, q.until("nack")); e.Code != arcp.CodeDataLoss {
			t.Errorf("since what is not kept any more: %+v", e)
		}
	})
}

// A subscriber that does not read gets all events in order once it reads, and delays no other.
func TestSlowSubscriberToTheHost(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		slow, p := b.dial("alice"), b.dial("alice")
		slow.subscribe(`{"filter":{"types":["event.emit"]}}`)
		slow.send("backpressure", `{"desired_rate_per_second":1}`)
		synctest.Wait()
		p.must("host.register_agent", `{"id":"x","name":"n","kind":"k"}`)
		began := time.Now()
		const changes = 2 * host.MaxEvents
		for i := range changes {
			p.must("host.set_status", fmt.Sprintf(`{"agent_id":"x","status":"running","payload":%d}`, i))
		}
		if d := time.Since(began); d > time.Minute {
			t.Errorf("the changes took %s of the subscriber's pace", d)
		}
		slow.send("backpressure", `{"desired_rate_per_second":0}`)
		slow.hostEvent()
		for i := range changes {
			if _, e := slow.hostEvent(); string(e.Payload) != fmt.Sprint(i) {
				t.Fatalf("change %s comes as number %d", e.Payload, i)
			}
		}
	})
}

// A connection has at most 64 subscriptions. Subscriptions that are refused or have ended do not
// count.
func TestLimitOfSubscriptions(t *testing.T) {
	const limit = 64
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		for range limit + 1 {
			p.send("subscribe", `{"since":{"after_message_id":"msg_none"}}`)
			if e := refusal(t, p.until("nack")); e.Code != arcp.CodeDataLoss {
				t.Fatalf("after an unknown message: %v", e)
			}
		}
		var last arcp.SubscriptionID
		for range limit {
			p.send("subscribe", `{}`)
			last = p.until("subscribe.accepted").SubscriptionID
		}
		for range 2 {
			p.send("subscribe", `{}`)
			if e := refusal(t, p.until("nack")); e.Code != arcp.CodeResourceExhausted {
				t.Fatalf("one above the limit: %v", e)
			}
			p.send("unsubscribe", fmt.Sprintf(`{"subscription_id":%q}`, last))
			p.send("subscribe", `{}`)
			last = p.until("subscribe.accepted").SubscriptionID
		}
	})
}
