package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// writeRecorder is a store that records the writes of jobs, each as the types of its events. A write
// with a claim begins with "claim".
type writeRecorder struct {
	store.Store
	writes []string
}

func (r *writeRecorder) Commit(writes []*store.Write, results []store.Result) error {
	for _, w := range writes {
		var parts []string
		if store.Find[*store.SubmitJob](w) != nil {
			parts = append(parts, "claim")
		}
		if log := store.Find[*store.AppendEvents](w); log != nil {
			for _, ev := range log.Events {
				parts = append(parts, string(ev.Type))
			}
		}
		if len(parts) > 0 {
			r.writes = append(r.writes, strings.Join(parts, " "))
		}
	}
	return r.Store.Commit(writes, results)
}

// The claim and the outcome of a quick tool are one write. A tool that is slow, waits for its job or is
// tried again gets its claim first.
func TestWritesOfAnEarlyJob(t *testing.T) {
	log := func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) { return nil, j.Log("info", "x", nil) }
	for _, c := range []struct {
		name   string
		fn     tool.Func
		change func(*request)
		writes []string
	}{
		{"quick", log, nil, []string{"claim job.accepted job.started log job.completed"}},
		{"quick failure", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return nil, errors.New("no") }, nil,
			[]string{"claim job.accepted job.started job.failed"}},
		{"panic", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { panic("ouch") }, nil,
			[]string{"claim job.accepted job.started job.failed"}},
		{"direct", echo, func(q *request) { q.payload.Direct = true }, []string{"claim tool.result"}},
		{"result in chunks", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return arcp.Raw(`"` + strings.Repeat("x", maxPayload) + `"`), nil
		}, nil, []string{"claim job.accepted job.started job.result_chunk job.result_chunk job.completed"}},
		{"end of the goroutine", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { runtime.Goexit(); return nil, nil }, nil,
			[]string{"claim job.accepted job.started job.failed"}},
		{"slow", sleeper(time.Second), nil, []string{"claim job.accepted", "job.started", "job.completed"}},
		{"slow after an event", func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			return args, errors.Join(j.Log("info", "x", nil), sleep(ctx))
		}, nil, []string{"claim job.accepted", "job.started log", "job.completed"}},
		{"checkpoint", func(_ context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			return args, j.Checkpoint("here", arcp.Raw("1"))
		}, nil, []string{"claim job.accepted", "job.started job.checkpoint", "job.completed"}},
		{"second attempt", func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if j.Attempt() == 1 {
				return nil, arcp.Errorf(arcp.CodeUnavailable, "later")
			}
			return nil, sleep(ctx)
		}, func(q *request) { q.payload.Retry = arcp.Raw(`{"max_attempts":2}`) },
			[]string{"claim job.accepted", "job.started event.emit", "job.started", "job.completed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.tool("t", func(c *tool.Capability) { withoutSideEffect(c); oneAtATime(c) }, c.fn)
				f.session("sess_1")
				recorder := &writeRecorder{Store: f.st.Store}
				f.st.Store = recorder
				q := f.request("sess_1", "t", "{}")
				if c.change != nil {
					c.change(q)
				}
				f.send(q)
				time.Sleep(time.Hour)
				synctest.Wait()
				if !slices.Equal(recorder.writes, c.writes) {
					t.Errorf("writes\n\t%s\nwant\n\t%s", strings.Join(recorder.writes, "\n\t"), strings.Join(c.writes, "\n\t"))
				}
				f.expectNoState("the job has ended")
			})
		})
	}
}

// sleep sleeps for a second, or until ctx ends.
func sleep(ctx context.Context) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A refused claim refuses the outcome that is part of the same write. The session's later submits are
// not blocked.
func TestRefusedClaimWithOutcome(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { withoutSideEffect(c); oneAtATime(c) }, echo)
		for range 2 {
			q := f.request("sess_1", "t", "{}")
			q.Session = "sess_gone" // the store does not know it
			decided := 0
			q.OnDecided = func() { decided++ }
			f.send(q)
			f.want("the client is told", "job.failed "+string(q.env.ID)+" UNAVAILABLE")
			if decided != 1 {
				t.Errorf("decided %d times, want once", decided)
			}
		}
		f.expectNoState("the refused jobs have left their places")
		if n := f.gauge("arcp_jobs_submitted_total"); n != 0 {
			t.Errorf("arcp_jobs_submitted_total counts %v jobs that do not exist", n)
		}
		f.st.breakWith(errCrash)
		id := f.submit("t", "{}")
		f.want("the store fails", "job.failed "+string(id)+" UNAVAILABLE")
		f.expectNoState("the refused job has left its place")
	})
}

// The answers of a session have the order of its submits, however long its tools run.
func TestOrderOfEarlyJobs(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("quick", withoutSideEffect, echo)
		f.tool("slow", withoutSideEffect, sleeper(time.Second))
		f.tool("writes", nil, echo)
		for _, name := range []string{"slow", "quick", "slow", "none", "writes", "quick"} {
			f.submit(name, "{}")
		}
		f.send(f.requestWithKey("sess_1", "k", "quick", "{}"))
		time.Sleep(time.Minute)
		var answers []string
		for _, fr := range f.frames("sess_1") {
			if fr.Type == arcp.JobAccepted || fr.Type == arcp.JobFailed {
				answers = append(answers, string(fr.CorrelationID))
			}
		}
		if want := []string{"msg_1", "msg_2", "msg_3", "msg_4", "msg_5", "msg_6", "msg_7"}; !slices.Equal(answers, want) {
			t.Errorf("answers to %v, want %v", answers, want)
		}
		f.expectNoState("all have ended")
	})
}

// A store that stands still delays the answers, but not the tools of the submits.
func TestEarlyToolsRunDuringACommit(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var ran atomic.Int32
		f.tool("slow", withoutSideEffect, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			ran.Add(1)
			return nil, sleep(ctx)
		})
		f.tool("quick", withoutSideEffect, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { ran.Add(1); return nil, nil })
		f.session("sess_1")
		release := f.st.hold()
		for _, name := range []string{"slow", "quick", "slow", "quick"} {
			f.submit(name, "{}")
		}
		time.Sleep(2 * handoverAfter)
		f.want("nothing is durable")
		if n := ran.Load(); n != 4 {
			t.Errorf("%d tools ran, want 4", n)
		}
		release()
		time.Sleep(time.Second)
		if n := len(f.frames("sess_1")); n != 12 {
			t.Errorf("%d frames, want three a job", n)
		}
	})
}

// A cancel and a stop of the runtime reach a tool that runs before its claim is in the log. The claim
// follows.
func TestEndBeforeTheClaim(t *testing.T) {
	early := func(c *tool.Capability) { withoutSideEffect(c); oneAtATime(c); c.Recovery = tool.RecoveryRerun }
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", early, wait)
		f.submit("t", "{}")
		synctest.Wait() // the tool runs
		f.e.SessionJobs().CancelAll("sess_1", "enough")
		f.want("neither is in the log")
		time.Sleep(handoverAfter)
		f.want("the claim precedes the end", "job.accepted msg_1", "job.started msg_1", "job.cancelled msg_1")
		f.expectNoState("the job has ended")
	})
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", early, wait)
		f.submit("t", "{}")
		f.e.SessionJobs().CancelAll("sess_1", "enough") // maybe before the tool runs
		time.Sleep(handoverAfter)
		if frames := lines(f.frames("sess_1")); len(frames) < 2 || frames[0] != "job.accepted msg_1" || frames[len(frames)-1] != "job.cancelled msg_1 CANCELLED" {
			t.Errorf("%v is sent, want the claim and the end", frames)
		}
		f.expectNoState("the job has ended")
	})
	runEngine(t, nil, func(f *fixture) {
		var cause error
		f.tool("t", early, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil, cause
		})
		f.submit("t", "{}")
		synctest.Wait()
		f.stop(0)
		f.want("the claim", "job.accepted msg_1")
		if !errors.Is(cause, ErrStopping) {
			t.Errorf("cause of the tool's context = %v, want the stop", cause)
		}
		f.restart(1)
		f.want("it runs again", "job.started msg_1")
		f.e.SessionJobs().CancelAll("sess_1", "enough")
		f.want("the end", "job.cancelled msg_1")
	})
}

// The end of a session waits until the log has the claims of early jobs, and of the submits behind them.
func TestAwaitClaims(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("slow", withoutSideEffect, sleeper(time.Second))
		f.session("sess_1")
		recorder := &writeRecorder{Store: f.st.Store}
		f.st.Store = recorder
		f.submit("slow", "{}")
		f.submit("slow", "{}")
		f.e.SessionJobs().AwaitClaims(f.Context(), "sess_1")
		synctest.Wait()
		if n := len(slices.DeleteFunc(slices.Clone(recorder.writes), func(w string) bool { return w != "claim job.accepted" })); n != 2 {
			t.Errorf("writes %q, want both claims", recorder.writes)
		}
		f.e.SessionJobs().AwaitClaims(f.Context(), "sess_1") // does not wait for the jobs
		if n := len(f.frames("sess_1")); n != 4 {
			t.Errorf("%d frames, want job.accepted and job.started of both", n)
		}
		f.submit("slow", "{}")
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		f.e.SessionJobs().AwaitClaims(ctx, "sess_1") // nor longer than ctx
	})
}

// CancelAll cancels the jobs of all submits up to now, also of those that wait behind an early job.
func TestCancelAllBehindAnEarlyJob(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", withoutSideEffect, wait)
		f.submit("t", "{}")
		f.submit("t", "{}")
		f.e.SessionJobs().CancelAll("sess_1", "enough")
		time.Sleep(time.Second)
		cancelled := 0
		for _, fr := range f.frames("sess_1") {
			if fr.Type == arcp.JobCancelled {
				cancelled++
			}
		}
		if cancelled != 2 {
			t.Errorf("%d jobs were cancelled, want both", cancelled)
		}
		f.expectNoState("both have ended")
	})
}

// A tool whose last call was slow begins when its claim has its position in the log: its job.accepted
// does not wait for the handover. After a quick call it begins early again.
func TestSlowToolIsNotEarly(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var duration time.Duration
		f.tool("t", func(c *tool.Capability) { withoutSideEffect(c); oneAtATime(c) }, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			time.Sleep(duration)
			return nil, nil
		})
		f.session("sess_1")
		recorder := &writeRecorder{Store: f.st.Store}
		f.st.Store = recorder
		duration = time.Second
		f.submit("t", "{}")
		f.want("the first call is early")
		time.Sleep(duration)
		f.want("it ends", "job.accepted msg_1", "job.started msg_1", "job.completed msg_1")
		f.submit("t", "{}")
		f.want("the second one is not", "job.accepted msg_2", "job.started msg_2")
		time.Sleep(duration)
		f.want("it ends", "job.completed msg_2")
		duration = 0
		f.submit("t", "{}")
		f.want("the third one is not", "job.accepted msg_3", "job.started msg_3", "job.completed msg_3")
		recorder.writes = nil
		f.submit("t", "{}")
		f.want("the fourth one is", "job.accepted msg_4", "job.started msg_4", "job.completed msg_4")
		if len(recorder.writes) != 1 {
			t.Errorf("writes %q, want one", recorder.writes)
		}
	})
}

// job.accepted has the budget with which the job begins, whatever the tool spends before the claim is in the log.
func TestEarlyToolSpends(t *testing.T) {
	for _, hold := range []time.Duration{0, time.Second} {
		runEngine(t, nil, func(f *fixture) {
			f.tool("spend", withoutSideEffect, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				err := j.Metric(arcp.MetricPayload{Name: "cost.calls", Value: "0.1", Unit: "USD"})
				time.Sleep(hold)
				return nil, err
			})
			q := f.request("sess_1", "spend", "{}")
			q.payload.CostBudget = []string{"USD:0.20"}
			f.send(q)
			time.Sleep(hold)
			frames := f.want("it spends", "job.accepted", "job.started", "metric", "metric", "job.completed")
			p, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&frames[0].Envelope)
			if err != nil || string(p.Budget) != `{"USD":0.20}` {
				t.Errorf("accepted with the budget %s, %v; want all of it", p.Budget, err)
			}
		})
	}
}

// admitted returns a submit of a tool that is in the tables, and its run.
func (f *fixture) admitted(name string) (*Submit, *run) {
	f.Helper()
	q := f.request("sess_1", name, "{}")
	q.Submit.Envelope, q.Submit.Payload = &q.env, &q.payload
	r, refusal := q.prepare(f.e)
	if refusal == nil {
		refusal = f.e.admit(r, 0)
	}
	if refusal != nil {
		f.Fatal(refusal)
	}
	return &q.Submit, r
}

// A job that was admitted before the runtime stopped gets its claim, but no supervisor. It runs after
// the next start.
func TestEarlyStartAfterStop(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", withoutSideEffect, echo)
		s, r := f.admitted("t")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		f.stopEngine(ctx)
		s.startEarly(r)
		if r.supervised() {
			t.Error("a supervisor has started after Stop")
		}
		f.want("the claim", "job.accepted msg_1")
		if n := len(f.e.order.waiting); n != 0 {
			t.Errorf("submits of %d sessions are blocked", n)
		}
		f.cfg.Log.Close()
		f.restart(1)
		f.want("it runs", "job.started msg_1", "job.completed msg_1")
	})
}
