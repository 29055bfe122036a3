package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// Jobs, events, feeds and idempotency keys older than the retention are deleted; younger ones
// stay.
func TestRetention(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.Retention = 2 * time.Hour }, func(b *fixture) {
		p := b.dial("alice")
		keyed := `{"tool":"demo.echo","arguments":{},"idempotency_key":"k"}`
		p.send("tool.invoke", keyed)
		old := p.expect("job.accepted").JobID
		p.until("job.completed")
		time.Sleep(90 * time.Minute)
		p.send("tool.invoke", keyed)
		if again := p.expect("job.accepted").JobID; again != old {
			t.Fatalf("the key made another job: %s and %s", old, again)
		}
		p.until("job.completed")
		young := p.submit("demo.echo", `{}`)
		p.until("job.completed")
		time.Sleep(45 * time.Minute)

		p.send("session.list_jobs", "{}")
		if list := string(p.expect("session.jobs").Payload); strings.Contains(list, string(old)) || !strings.Contains(list, string(young)) {
			t.Errorf("jobs after the retention of the first: %s", list)
		}
		p.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, old))
		if e := refusal(t, p.expect("nack")); e.Code != arcp.CodeJobNotFound {
			t.Errorf("subscribe to a job that is gone: %+v", e)
		}
		p.send("tool.invoke", keyed)
		if again := p.expect("job.accepted").JobID; again == old {
			t.Errorf("the key holds a job that is gone")
		}
		p.until("job.completed")
		time.Sleep(3 * time.Hour)
		if st := b.st.Stat(); st.Jobs != 0 {
			t.Errorf("%d jobs are left", st.Jobs)
		}
	})
}

// A session that has something to acknowledge lives longer than the resume
// window, as long as there is something of it.
func TestRetentionOfUnacknowledgedEvents(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.Retention = time.Hour }, func(b *fixture) {
		p, token := b.dialToken("alice")
		p.send("session.ack", `{"last_processed_seq":0}`)
		p.submit("demo.echo", `{}`)
		p.until("job.completed")
		_ = p.conn.Abort()
		time.Sleep(30 * time.Minute) // longer than the resume window
		p = b.resume(token, 1)
		token = resumeToken(t, p.expect("session.resumed"))
		p.expect("job.started", "job.completed")
		_ = p.conn.Abort()
		time.Sleep(2 * time.Hour)
		b.resume(token, 1).expect("session.rejected")
	})
}

// Near the end of the disk no job is accepted, and running jobs end.
func TestDiskFloor(t *testing.T) {
	var free atomic.Uint64
	var told atomic.Int64
	free.Store(1 << 30)
	inBubble(t, func(c *runtime.Config) {
		c.FreeSpace = func() (uint64, error) { return free.Load(), nil }
		c.OnFull = func(full bool) { told.Add(1) }
	}, func(b *fixture) {
		p := b.dial("alice")
		p.submit("demo.emit", `{"count":3,"bytes":1,"interval_ms":2000}`)
		p.expect("job.started", "log")
		free.Store(100 << 20)
		time.Sleep(1500 * time.Millisecond)
		p.send("tool.invoke", `{"tool":"demo.echo"}`)
		if e := refusal(t, p.until("job.failed")); e.Code != arcp.CodeResourceExhausted || !strings.Contains(string(e.Details), "retry_after") {
			t.Errorf("a submit while the disk is full: %+v", e)
		}
		q := b.connect(nil)
		q.open("alice")
		if e := refusal(t, q.expect("session.rejected")); e.Code != arcp.CodeResourceExhausted {
			t.Errorf("a session while the disk is full: %+v", e)
		}
		time.Sleep(time.Minute) // the tool waits
		free.Store(1 << 30)
		p.until("job.completed")
		b.dial("alice")
		synctest.Wait() // tools and sessions may continue before the announcement
		if told.Load() != 2 {
			t.Errorf("told %d times of a change", told.Load())
		}
	})
}

// A runtime that starts on a full disk accepts nothing from the first connection on.
func TestFullFromTheStart(t *testing.T) {
	inBubble(t, func(c *runtime.Config) {
		c.FreeSpace = func() (uint64, error) { return 1, nil }
	}, func(b *fixture) {
		p := b.connect(nil)
		p.open("alice")
		if e := refusal(t, p.expect("session.rejected")); e.Code != arcp.CodeResourceExhausted {
			t.Errorf("the first session: %+v", e)
		}
	})
}

// A tool that waits for room on the disk can be cancelled.
func TestCancelWhileFull(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 30)
	left := make(chan error, 1)
	inBubble(t, func(c *runtime.Config) {
		c.FreeSpace = func() (uint64, error) { return free.Load(), nil }
		waits := tool.MustNew(tool.Capability{Name: "waits", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (int, error) {
			for {
				if err := job.Log("info", "on", nil); err != nil {
					left <- err
					return 0, err
				}
				time.Sleep(time.Second)
			}
		})
		if err := c.Tools.Register(waits); err != nil {
			t.Fatal(err)
		}
	}, func(b *fixture) {
		p := b.dial("alice")
		job := p.submit("waits", `{}`)
		p.until("job.started")
		free.Store(1 << 20)
		time.Sleep(time.Minute)
		asked := time.Now()
		p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, job))
		p.until("job.cancelled")
		if d := time.Since(asked); d > time.Second {
			t.Errorf("the job is cancelled after %v: the tool was not woken", d)
		}
		if err := <-left; err == nil {
			t.Error("the tool is not told that it wrote nothing")
		}
	})
}

// subscribe opens a subscription and returns its id.
func (p *peer) subscribe(payload string) arcp.SubscriptionID {
	p.Helper()
	p.send("subscribe", payload)
	return p.until("subscribe.accepted").SubscriptionID
}

// original is the envelope in a subscribe.event.
func (p *peer) original() arcp.Envelope {
	p.Helper()
	var payload struct {
		Event arcp.Raw `json:"event"`
	}
	env := p.until("subscribe.event")
	if err := arcp.Unmarshal(env.Payload, &payload); err != nil {
		p.Fatal(err)
	}
	inner, err := arcp.Decode(payload.Event)
	if err != nil {
		p.Fatalf("%s: %v", payload.Event, err)
	}
	return inner
}

// A subscriber that is far behind is not sent events of low priority, and is told so.
func TestFeedGap(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		watcher, p := b.dial("alice"), b.dial("alice")
		watcher.subscribe(`{"filter":{"types":["log","job.completed"]}}`)
		watcher.send("backpressure", `{"desired_rate_per_second":1}`)
		synctest.Wait()
		p.n = 500
		frame := `{"arcp":"1.1","id":"msg_low","type":"tool.invoke","timestamp":"2030-01-02T15:04:05Z","priority":"low",
			"payload":{"tool":"demo.emit","arguments":{"count":15000,"bytes":1}}}`
		if err := p.conn.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		if err := p.conn.Flush(); err != nil {
			t.Fatal(err)
		}
		p.until("job.completed")
		watcher.send("backpressure", `{"desired_rate_per_second":0}`)
		sent, skipped := 0, 0
		for {
			e := watcher.original()
			switch {
			case e.Type == arcp.JobCompleted:
				if skipped == 0 || sent+skipped != 15000 {
					t.Errorf("%d events were sent and %d skipped of 15000", sent, skipped)
				}
				return
			case e.Type == arcp.EventEmit:
				var g struct {
					Data struct {
						Skipped int    `json:"skipped"`
						FirstID string `json:"first_id"`
						LastID  string `json:"last_id"`
					} `json:"data"`
				}
				if err := arcp.Unmarshal(e.Payload, &g); err != nil || g.Data.FirstID > g.Data.LastID {
					t.Fatalf("gap %s: %v", e.Payload, err)
				}
				skipped += g.Data.Skipped
			default:
				sent++
			}
		}
	})
}

// A subscription sees the jobs of all sessions of its principal only, and ends on unsubscribe.
func TestFeed(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		watcher, p, other := b.dial("alice"), b.dial("alice"), b.dial("bob")
		id := watcher.subscribe(`{}`)
		other.submit("demo.echo", `{"secret":"bob"}`)
		other.until("job.completed")
		job := p.submit("demo.echo", `{"x":1}`)
		p.until("job.completed")
		for _, want := range []arcp.Type{"job.accepted", "job.started", "job.completed"} {
			if e := watcher.original(); e.Type != want || e.JobID != job || e.SessionID != p.session {
				t.Errorf("%+v, want %s of %s", e, want, job)
			}
		}
		watcher.send("unsubscribe", fmt.Sprintf(`{"subscription_id":%q}`, id))
		synctest.Wait()
		p.submit("demo.echo", `{}`)
		p.until("job.completed")
		watcher.send("ping", "{}")
		watcher.expect("pong")
	})
}

// From a message on, nothing is missed and nothing comes twice, however much
// happens meanwhile.
func TestFeedSince(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.submit("demo.emit", `{"count":50,"bytes":1}`)
		first := p.expect("job.started")
		p.until("job.completed")
		p.submit("demo.emit", `{"count":100,"bytes":1,"interval_ms":1}`)
		time.Sleep(50 * time.Millisecond)
		q := b.dial("alice")
		q.subscribe(fmt.Sprintf(`{"since":{"after_message_id":%q}}`, first.ID))
		last, n, marks := first.ID, 0, 0
		for n < 50+1+100+3 {
			e := q.original()
			if strings.Contains(string(e.Payload), "subscription.backfill_complete") {
				marks++
				continue
			}
			if e.ID <= last {
				t.Fatalf("%s comes after %s", e.ID, last)
			}
			last = e.ID
			n++
		}
		if marks != 1 {
			t.Errorf("%d marks of the end of the backfill", marks)
		}
		q.send("subscribe", `{"since":{"after_message_id":"msg_00000000000000000000000000"}}`)
		if e := refusal(t, q.until("nack")); e.Code != arcp.CodeDataLoss || !strings.Contains(string(e.Details), "oldest_message_id") {
			t.Errorf("since an unknown message: %+v", e)
		}
	})
}

// A rate counts sent events, not events that the filter leaves out.
func TestFeedRateCountsWhatIsSent(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		watcher, p := b.dial("alice"), b.dial("alice")
		watcher.subscribe(`{"filter":{"types":["job.completed"]}}`)
		watcher.send("backpressure", `{"desired_rate_per_second":10}`)
		synctest.Wait()
		p.submit("demo.emit", `{"count":1000,"bytes":1,"interval_ms":1}`)
		began := time.Now()
		watcher.original()
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("the one event that is wanted came after %s", d)
		}
	})
}

// A client that says how much room it has is sent no more, until it says so again.
func TestFeedBuffer(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		watcher, p := b.dial("alice"), b.dial("alice")
		watcher.subscribe(`{"filter":{"types":["log"]}}`)
		watcher.send("backpressure", `{"buffer_remaining_bytes":3000}`)
		synctest.Wait()
		p.submit("demo.emit", `{"count":100,"bytes":1000}`)
		p.until("job.completed")
		sent := 0
		for range 10 {
			watcher.send("ping", "{}")
			for watcher.read().Type == "subscribe.event" {
				sent++
			}
		}
		if sent != 2 {
			t.Errorf("%d events of more than 1,000 bytes were sent into 3,000", sent)
		}
		watcher.send("backpressure", `{"buffer_remaining_bytes":1000000}`)
		for range 98 {
			watcher.original()
		}
	})
}

// A connection that ends takes its subscriptions with it.
func TestFeedEndsWithTheConnection(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, token := b.dialToken("alice")
		p.subscribe(`{}`)
		_ = p.conn.Close(transport.CloseNormal, "")
		synctest.Wait()
		q := b.resume(token, 0)
		q.expect("session.resumed")
		q.submit("demo.echo", `{}`)
		q.expect("job.started", "job.completed")
		q.send("ping", "{}")
		q.expect("pong")
	})
}

// A connection has its number of subscriptions at most, also when it asks for all at once.
func TestSubscriptionLimit(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		const asked, allowed = 100, 64
		for range asked {
			p.send("subscribe", `{}`)
		}
		counts := map[arcp.Type]int{}
		for range asked {
			env := p.read()
			counts[env.Type]++
			if env.Type == arcp.Nack && refusal(t, env).Code != arcp.CodeResourceExhausted {
				t.Errorf("refused with %s", env.Payload)
			}
		}
		if counts[arcp.SubscribeAccepted] != allowed || counts[arcp.Nack] != asked-allowed {
			t.Errorf("%v, want %d accepted and the others refused", counts, allowed)
		}
	})
}
