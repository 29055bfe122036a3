package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// The order of a job's events, whether its tool starts before the claim is
// durable or after.
func TestLifecycle(t *testing.T) {
	for _, change := range []func(*tool.Capability){nil, withoutSideEffect} {
		runEngine(t, nil, func(f *fixture) {
			f.tool("t", change, func(_ context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				return args, errors.Join(j.Log("info", "one", nil), j.Emit("two", nil), j.Progress(arcp.JobProgressPayload{Current: 1}),
					j.Metric(arcp.MetricPayload{Name: "n", Value: "1", Unit: "u"}))
			})
			q := f.request("sess_1", "t", `{"n":1.0}`)
			q.env.TraceID, q.env.CausationID = "trace_1", "msg_cause"
			f.send(q)
			frames := f.want("every job goes this way", "job.accepted msg_1", "job.started msg_1", "log msg_1", "event.emit msg_1",
				"job.progress msg_1", "metric msg_1", "job.completed msg_1")
			for _, fr := range frames {
				if fr.JobID != frames[0].JobID || fr.TraceID != "trace_1" || fr.CausationID != "msg_cause" || fr.SessionID != "sess_1" {
					t.Errorf("%v: job %s, trace %s, cause %s", fr, fr.JobID, fr.TraceID, fr.CausationID)
				}
			}
			done, err := arcp.DecodePayload[arcp.JobCompletedPayload](&frames[6].Envelope)
			if err != nil || string(done.Value) != `{"n":1.0}` {
				t.Errorf("value %s, %v; want the bytes that came in", done.Value, err)
			}
			row := f.row(frames[0].JobID)
			if row.State != arcp.StateCompleted || row.LastSeq != 7 || row.Agent != "t@1.0.0" {
				t.Errorf("row %+v, want it completed with 7 events", row)
			}
			f.expectNoState("the job has ended")
		})
	}
}

// The table lists the job's outcome for each return of its tool.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   tool.Func
		want string
		row  arcp.JobState
	}{
		{"an error of its own", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return nil, arcp.Errorf(arcp.CodeOutOfRange, "no")
		}, "job.failed msg_1 OUT_OF_RANGE", arcp.StateFailed},
		{"any error", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return nil, errors.New("no") },
			"job.failed msg_1 UNKNOWN", arcp.StateFailed},
		{"it says it was cancelled", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return nil, arcp.Errorf(arcp.CodeCancelled, "changed my mind")
		}, "job.cancelled msg_1 CANCELLED", arcp.StateCancelled},
		{"a panic", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { panic("ouch") },
			"job.failed msg_1 INTERNAL", arcp.StateFailed},
		{"a panic with nil", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { panic(nil) },
			"job.failed msg_1 INTERNAL", arcp.StateFailed},
		{"it ends its goroutine", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			runtime.Goexit()
			return nil, nil
		}, "job.failed msg_1 INTERNAL", arcp.StateFailed},
		{"no JSON", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw("{"), nil },
			"job.failed msg_1 INTERNAL", arcp.StateFailed},
		{"nothing", func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return nil, nil },
			"job.completed msg_1", arcp.StateCompleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.tool("t", oneAtATime, c.fn)
				f.submit("t", "{}")
				frames := f.want(c.name, "job.accepted msg_1", "job.started msg_1", c.want)
				if row := f.row(frames[0].JobID); row.State != c.row {
					t.Errorf("row %s, want %s", row.State, c.row)
				}
				if strings.Contains(string(frames[2].Payload), "ouch") {
					t.Errorf("%s: the value of a panic is nobody's business", frames[2].Payload)
				}
				f.expectNoState("its slot is free again")
			})
		})
	}
}

// A supervisor started before the claim is in the log waits for it, because otherwise its
// events would precede the job.
func TestNothingIsAppendedBeforeTheClaim(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		ran := false
		f.tool("t", withoutSideEffect, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { ran = true; return nil, nil })
		q := f.request("sess_1", "t", "{}")
		s := q.Submit
		s.Envelope, s.Payload = &q.env, &q.payload
		run, refusal := s.prepare(f.e)
		if refusal == nil {
			refusal = f.e.admit(run, 0)
		}
		if refusal != nil {
			f.Fatal(refusal)
		}
		run.launch()
		run.wakeOrLaunch()
		synctest.Wait()
		if ran {
			f.Fatal("the tool ran before its claim was in the log")
		}
		s.claim(run)
		f.want("then all goes its way", "job.accepted", "job.started", "job.completed")
	})
}

// A tool that changes nothing starts while the claim is being committed, one
// that does not.
func TestEarlyStart(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var reads, writes, keyed atomic.Bool
		note := func(started *atomic.Bool) tool.Func {
			return func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { started.Store(true); return nil, nil }
		}
		f.tool("reads", withoutSideEffect, note(&reads))
		f.tool("writes", nil, note(&writes))
		f.tool("keyed", withoutSideEffect, note(&keyed))
		f.session("sess_1")
		release := f.st.hold()
		f.submit("reads", "{}")
		f.submit("writes", "{}")
		q := f.request("sess_1", "keyed", "{}")
		q.env.IdempotencyKey = "k"
		f.send(q)
		synctest.Wait()
		if !reads.Load() || writes.Load() || keyed.Load() {
			t.Errorf("started while the claim was being committed: reads %t, writes %t, keyed %t; want only the one that reads and is no repetition",
				reads.Load(), writes.Load(), keyed.Load())
		}
		if got := f.frames("sess_1"); len(got) != 0 {
			f.Fatalf("%v was sent before it was durable", got)
		}
		release()
		if got := f.frames("sess_1"); len(got) != 9 {
			t.Errorf("%v, want three frames a job", got)
		}
	})
}

// When the claim of a started job fails, the job does not exist: the tool is stopped, its
// events are dropped, and the submit is refused.
func TestEarlyStartOfARefusedClaim(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var cause error
		f.tool("t", func(c *tool.Capability) { withoutSideEffect(c); oneAtATime(c) }, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			if err := j.Log("info", "late", nil); err == nil {
				t.Error("Log of a job that does not exist = nil, want an error")
			}
			return nil, nil
		})
		q := f.request("sess_1", "t", "{}")
		q.Session = "sess_gone" // the store does not know it
		release := f.st.hold()
		f.send(q)
		time.Sleep(handoverAfter)
		synctest.Wait()
		release()
		f.want("the client is told", "job.failed msg_1 UNAVAILABLE")
		if cause == nil {
			t.Error("cause of the tool's context = nil, want the end of the job")
		}
		f.expectNoState("the refused job has left its place")
	})
}

// Under concurrent completions and cancellations a job ends once, after all its other events.
// Every cancel is answered once: accepted before the end, or refused.
func TestJobEndsOnceUnderRaces(t *testing.T) {
	const jobs = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	runEngine(t, nil, func(f *fixture) {
		rng := rand.New(rand.NewPCG(seed, 0))
		f.tool("t", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Second)
			j.Log("info", "x", nil)
			switch string(args) {
			case `{"do":"panic"}`:
				panic("x")
			case `{"do":"fail"}`:
				return nil, errors.New("x")
			case `{"do":"obey"}`:
				return nil, context.Cause(ctx)
			}
			return args, nil
		})
		for range jobs {
			q := f.request("sess_1", "t", fmt.Sprintf(`{"do":%q}`, []string{"panic", "fail", "obey", "complete"}[rng.IntN(4)]))
			if rng.IntN(2) == 0 {
				q.payload.MaxRuntimeSec = new(arcp.Number("1"))
			}
			f.send(q)
		}
		accepted := f.frames("sess_1")
		asked := make(map[arcp.MessageID]arcp.JobID)
		time.Sleep(time.Second - time.Duration(rng.IntN(2)))
		for _, fr := range accepted {
			if fr.Type == arcp.JobAccepted {
				for range rng.IntN(3) {
					asked[f.cancel(fr.JobID, time.Duration(rng.IntN(2))*time.Nanosecond)] = fr.JobID
				}
			}
		}
		time.Sleep(time.Minute)
		checkEnds(t, append(accepted, f.frames("sess_1")...), asked, jobs)
		f.expectNoState("all jobs have ended")
	})
}

// checkEnds looks at everything that a session was sent about its jobs.
func checkEnds(t *testing.T, frames []frame, asked map[arcp.MessageID]arcp.JobID, jobs int) {
	t.Helper()
	ended, answered := make(map[arcp.JobID]bool), make(map[arcp.MessageID]bool)
	for _, f := range frames {
		id, isAnswer := asked[f.CorrelationID]
		switch {
		case isAnswer && answered[f.CorrelationID]:
			t.Errorf("%v: a second answer", f)
		case isAnswer:
			answered[f.CorrelationID] = true
			if f.Type == arcp.CancelAccepted && ended[id] {
				t.Errorf("%v: accepted after the end", f)
			}
		case ended[f.JobID]:
			t.Errorf("%v after the end of its job", f)
		case f.Type.Terminal():
			ended[f.JobID] = true
		}
	}
	if len(ended) != jobs {
		t.Errorf("%d jobs have ended, want %d", len(ended), jobs)
	}
	if len(answered) != len(asked) {
		t.Errorf("%d cancels were answered, want %d", len(answered), len(asked))
	}
}

// A cancel that reaches the job in its very last turn is answered, too.
func TestCancelInTheLastTurn(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		finish := make(chan struct{})
		f.tool("t", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { <-finish; return nil, nil })
		f.submit("t", "{}")
		id := f.frames("sess_1")[0].JobID
		release := f.st.hold()
		close(finish)
		synctest.Wait() // the supervisor waits for the commit of the end
		f.e.mu.Lock()
		run := f.e.jobs.runs[id]
		f.e.mu.Unlock()
		run.mu.Lock()
		run.lifecycle = lifeAccepted // as if the end had not been decided when the cancel came
		run.mu.Unlock()
		f.cancel(id, 0)
		release()
		f.want("every cancel is answered", "cancel.refused msg_2 already_terminal", "job.completed msg_1")
	})
}

func TestTimeLimits(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("short", func(c *tool.Capability) { c.Limits.Timeout = 2 * time.Second }, wait)
		f.tool("long", nil, wait)
		at := func(d time.Duration, why, want string) {
			t.Helper()
			time.Sleep(d - 1)
			f.want(why + ": too early")
			time.Sleep(time.Nanosecond)
			f.want(why, want)
		}
		f.submit("short", "{}")
		f.want("the job runs", "job.accepted", "job.started")
		at(2*time.Second, "the tool's own limit", "job.failed msg_1 DEADLINE_EXCEEDED")

		q := f.request("sess_1", "long", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("1.5"))
		f.send(q)
		f.want("the job runs", "job.accepted", "job.started")
		at(1500*time.Millisecond, "max_runtime_sec", "job.failed msg_2 TIMEOUT")

		q = f.request("sess_1", "long", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("1e-12"))
		f.send(q)
		time.Sleep(time.Nanosecond)
		f.want("a limit too small to measure is a limit", "job.accepted", "job.started", "job.failed msg_3 TIMEOUT")

		for _, bad := range []arcp.Number{"0", "-1", "1e400", "31536001"} {
			q = f.request("sess_1", "long", "{}")
			q.payload.MaxRuntimeSec = &bad
			f.send(q)
			f.want(string(bad), "job.failed "+string(q.env.ID)+" INVALID_REQUEST")
		}
		f.expectNoState("all have ended")
	})
}
