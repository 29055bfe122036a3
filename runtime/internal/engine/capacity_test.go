package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Jobs beyond a tool's concurrency wait in order of arrival. A slot passes to the next job
// however its job ends.
func TestQueue(t *testing.T) {
	for name, end := range map[string]struct {
		fn       tool.Func
		terminal string
	}{
		"completed": {echo, "job.completed"},
		"failed":    {func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return nil, errors.New("x") }, "job.failed"},
		"panicked":  {func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { panic("x") }, "job.failed"},
	} {
		t.Run(name, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.tool("t", oneAtATime, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
					time.Sleep(time.Second)
					return end.fn(ctx, j, args)
				})
				f.submitAtOnce(func() {
					for range 3 {
						f.submit("t", "{}")
					}
				})
				frames := f.want("one runs", "job.accepted msg_1", "job.accepted msg_2", "job.accepted msg_3", "job.started msg_1")
				if row := f.row(jobOf(frames, "msg_2")); row.State != arcp.StateQueued {
					t.Errorf("the second is %s, want queued", row.State)
				}
				for i := 1; i < 3; i++ {
					time.Sleep(time.Second)
					f.want("the next one's turn", fmt.Sprintf("%s msg_%d", end.terminal, i), fmt.Sprintf("job.started msg_%d", i+1))
				}
				time.Sleep(time.Second)
				f.want("the last", end.terminal+" msg_3")
				f.expectNoState("")
			})
		})
	}
}

// Among the waiting jobs of a principal the most urgent one starts next, and every eighth time the
// oldest one. The places of other principals in the queue do not change.
func TestQueueByPriority(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		ran := make(chan string, 20)
		f.tool("t", oneAtATime, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
			ran <- strings.Trim(string(args), `"`)
			time.Sleep(time.Second)
			return args, nil
		})
		send := func(principal, name string, p arcp.Priority) {
			q := f.request("sess_1", "t", fmt.Sprintf("%q", name))
			q.Principal, q.env.Priority = principal, p
			f.send(q)
		}
		f.submitAtOnce(func() {
			send("alice", "runs", "")
			send("alice", "low", arcp.PriorityLow)
			send("bob", "bob's", "")
			send("alice", "normal", arcp.PriorityNormal)
			for i := range 9 {
				send("alice", fmt.Sprintf("high %d", i), arcp.PriorityHigh)
			}
			send("alice", "critical", arcp.PriorityCritical)
		})
		time.Sleep(time.Minute)
		f.frames("sess_1") // which waits until all has come to rest
		close(ran)
		var order []string
		for name := range ran {
			order = append(order, name)
		}
		want := "runs, critical, bob's, high 0, high 1, high 2, high 3, high 4, high 5, low, high 6, high 7, high 8, normal"
		if got := strings.Join(order, ", "); got != want {
			t.Errorf("ran in the order\n%s, want\n%s", got, want)
		}
		f.expectNoState("")
	})
}

// However many urgent jobs a principal submits, another's starts when those before it
// have, and no sooner if it is more urgent itself.
func TestPriorityPassesNoOtherPrincipal(t *testing.T) {
	for _, p := range []arcp.Priority{arcp.PriorityLow, arcp.PriorityNormal, arcp.PriorityCritical} {
		t.Run(string(p), func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				ran := make(chan string, 100)
				f.tool("t", oneAtATime, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
					ran <- strings.Trim(string(args), `"`)
					time.Sleep(time.Second)
					return args, nil
				})
				send := func(principal string, p arcp.Priority) {
					q := f.request("sess_1", "t", fmt.Sprintf("%q", principal))
					q.Principal, q.env.Priority = principal, p
					f.send(q)
				}
				var want []string
				f.submitAtOnce(func() {
					for i := range 66 { // one runs
						principal, priority := "alice", arcp.PriorityLow
						switch {
						case i%10 == 6:
							principal, priority = "bob", p
						case i > 6:
							priority = arcp.PriorityHigh
						}
						want = append(want, principal)
						send(principal, priority)
					}
				})
				time.Sleep(2 * time.Minute)
				f.frames("sess_1") // which waits until all has come to rest
				close(ran)
				var got []string
				for principal := range ran {
					got = append(got, principal)
				}
				if !slices.Equal(got, want) {
					t.Errorf("ran in the order\n%s, want\n%s", got, want)
				}
				f.expectNoState("")
			})
		})
	}
}

// A job cancelled in the queue leaves it without having started; the order of the others is
// unchanged.
func TestCancelInTheQueue(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", oneAtATime, sleeper(time.Second))
		f.submitAtOnce(func() {
			for range 4 {
				f.submit("t", "{}")
			}
		})
		frames := f.want("one job runs", "job.accepted", "job.accepted", "job.accepted", "job.accepted", "job.started msg_1")
		f.cancel(jobOf(frames, "msg_2"), 0)
		f.want("it ends at once", "cancel.accepted msg_5", "job.cancelled msg_2 CANCELLED")
		time.Sleep(time.Second)
		f.want("the third is next", "job.completed msg_1", "job.started msg_3")
		time.Sleep(2 * time.Second)
		f.want("the queue continues in order", "job.completed msg_3", "job.started msg_4", "job.completed msg_4")
		f.expectNoState("")
	})
}

// A job whose claim fails frees its slot or queue position.
func TestQueueAndRefusedClaims(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", oneAtATime, sleeper(time.Second))
		bad := func() { q := f.request("sess_1", "t", "{}"); q.Session = "sess_gone"; f.send(q) }
		bad()
		f.submit("t", "{}")
		bad()
		f.submit("t", "{}")
		time.Sleep(2 * time.Second)
		got := strings.Join(lines(f.frames("sess_1")), ", ")
		for _, want := range []string{"job.completed msg_2", "job.completed msg_4", "job.failed msg_1 UNAVAILABLE",
			"job.failed msg_3 UNAVAILABLE"} {
			if !strings.Contains(got, want) {
				t.Errorf("sent %s; want %s too", got, want)
			}
		}
		f.expectNoState("")
	})
}

func TestQueueIsBounded(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", oneAtATime, wait)
		for range 1 + tool.MaxQueue {
			f.submit("t", "{}")
		}
		f.frames("sess_1")
		f.submit("t", "{}")
		wantRetryAfter(t, f.want("the queue is full", "job.failed msg_1026 RESOURCE_EXHAUSTED")[0])
		f.e.SessionJobs().CancelAll("sess_1", "enough")
		f.frames("sess_1")
		f.expectNoState("all were cancelled, running and queued")
	})
}

func wantRetryAfter(t *testing.T, f frame) {
	t.Helper()
	e, err := arcp.DecodePayload[arcp.Error](&f.Envelope)
	if err != nil || !e.Retryable || string(e.Details) != `{"retry_after_seconds":1}` {
		t.Errorf("%+v: want it retryable, with a time to wait", e)
	}
}

// Each limit refuses one job too many, and forgets a job however it ends.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		other  func(*request) // a job outside the limit; nil: there is none
	}{
		"all":       {func(c *Config) { c.MaxJobs = 2 }, nil},
		"principal": {func(c *Config) { c.MaxJobsPerPrincipal = 2 }, func(q *request) { q.Principal = "bob" }},
		"session":   {func(c *Config) { c.MaxJobsPerSession = 2 }, func(q *request) { q.Session = "sess_2" }},
		"arguments": {func(c *Config) { c.MaxData = int64(2 * len("{}")) }, nil},
		"own":       {func(c *Config) { c.MaxJobsPerPrincipal = 100 }, func(q *request) { q.Principal, q.MaxJobs = "bob", 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			runEngine(t, c.change, func(f *fixture) {
				f.session("sess_2")
				f.tool("t", nil, wait)
				f.tool("quick", nil, echo)
				send := func(change func(*request)) arcp.MessageID {
					q := f.request("sess_1", "t", "{}")
					if name == "own" {
						q.MaxJobs = 2
					}
					if change != nil {
						change(q)
					}
					return f.send(q)
				}
				for round := range 3 {
					send(nil)
					send(nil)
					f.frames("sess_1")
					refused := send(nil)
					wantRetryAfter(t, f.want("one too many", "job.failed "+string(refused)+" RESOURCE_EXHAUSTED")[0])
					if c.other != nil {
						if send(c.other); f.e.LiveCount() != 3 {
							t.Errorf("%d jobs, want the third: it counts elsewhere", f.e.LiveCount())
						}
					}
					f.e.SessionJobs().CancelAll("sess_1", "")
					f.e.SessionJobs().CancelAll("sess_2", "")
					f.frames("sess_1")
					f.frames("sess_2")
					f.expectNoState(fmt.Sprintf("round %d", round))
				}
				for range 3 { // a refused claim does not count
					send(func(q *request) { q.Session = "sess_gone" })
					f.frames("sess_1")
					send(func(q *request) { q.payload.Tool = "quick" })
					f.frames("sess_1")
				}
				f.expectNoState("quick and refused ones")
			})
		})
	}
}

// Emitted events wait for the store in a bounded queue. The tool blocks while the queue is
// full, and no event is lost or reordered.
func TestEmitsAreBounded(t *testing.T) {
	const events = 5 * maxQueuedEvents
	runEngine(t, nil, func(f *fixture) {
		emitted := make(chan int, events)
		f.tool("t", early, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for n := range events {
				if err := j.Log("info", fmt.Sprint(n), nil); err != nil {
					return nil, err
				}
				emitted <- n
			}
			return nil, nil
		})
		f.session("sess_1")
		release := f.st.hold()
		f.submit("t", "{}")
		f.st.gate <- struct{}{} // the claim
		f.frames("sess_1")
		if n := len(emitted); n > 2*maxQueuedEvents || n < maxQueuedEvents {
			t.Errorf("%d events emitted while the store stood still, want about the bound of %d", n, maxQueuedEvents)
		}
		release()
		n := 0
		for _, fr := range f.frames("sess_1") {
			if p, err := arcp.DecodePayload[arcp.LogPayload](&fr.Envelope); fr.Type == arcp.Log && err == nil {
				if p.Message != fmt.Sprint(n) {
					f.Fatalf("event %s, want %d", p.Message, n)
				}
				n++
			}
		}
		if n != events {
			t.Errorf("%d events, want %d", n, events)
		}
	})
}

// Large events are bounded by their bytes.
func TestEmitsAreBoundedByBytes(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		emitted := make(chan int, 100)
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for n := range 20 {
				if err := j.Log("info", strings.Repeat("x", 300<<10), nil); err != nil {
					return nil, err
				}
				emitted <- n
			}
			return nil, nil
		})
		f.session("sess_1")
		release := f.st.hold()
		f.submit("t", "{}")
		f.st.gate <- struct{}{}
		f.frames("sess_1")
		if n := len(emitted); n > 2*maxQueuedBytes/(300<<10)+2 {
			t.Errorf("%d events of 300 KiB emitted while the store stood still", n)
		}
		release()
		if n := len(f.frames("sess_1")); n != 20+2 {
			t.Errorf("%d frames, want the rest of the 20 events", n)
		}
	})
}

// An event that the protocol has no room for is refused to the tool, and no
// harm to the job.
func TestEmitRefused(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			nan := 0.0
			for why, err := range map[string]error{
				"too large":           j.Log("info", strings.Repeat("x", maxPayload), nil),
				"not encodable":       j.Emit("n", func() {}),
				"not JSON":            j.Emit("n", arcp.Raw("{")),
				"without a name":      j.Emit("", nil),
				"without a unit":      j.Metric(arcp.MetricPayload{Name: "n"}),
				"going backwards":     j.Progress(arcp.JobProgressPayload{Current: -1}),
				"no number":           j.Progress(arcp.JobProgressPayload{Current: nan / nan}),
				"of another level":    j.Log("notice", "m", nil),
				"of no level":         j.Log("", "m", nil),
				"attributes not JSON": j.Log("info", "m", arcp.Raw("nope")),
			} {
				if e, ok := errors.AsType[*arcp.Error](err); !ok || e.Code != arcp.CodeInvalidArgument && e.Code != arcp.CodeResourceExhausted {
					t.Errorf("an event that is %s: %v, want it refused", why, err)
				}
			}
			return nil, j.Log("info", "still here", nil)
		})
		f.submit("t", "{}")
		f.want("the valid event is taken", "job.accepted", "job.started", "log", "job.completed")
	})
}

func TestProgressPercent(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			return nil, errors.Join(j.Progress(arcp.JobProgressPayload{Current: 1, Total: new(4.0)}),
				j.Progress(arcp.JobProgressPayload{Current: 1, Total: new(0.0)}))
		})
		f.submit("t", "{}")
		frames := f.want("both events are taken", "job.accepted", "job.started", "job.progress", "job.progress", "job.completed")
		if got := string(frames[2].Payload); !strings.Contains(got, `"percent":25`) {
			t.Errorf("%s: want the percentage said too", got)
		}
		if got := string(frames[3].Payload); strings.Contains(got, "percent") {
			t.Errorf("%s: there is no percentage of nothing", got)
		}
	})
}
