package engine

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// failFirst returns a tool that fails one attempt with each of errs, and then succeeds.
func failFirst(errs ...error) tool.Func {
	n := 0
	return func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
		if n++; n <= len(errs) {
			return nil, errs[n-1]
		}
		return arcp.Raw("1"), nil
	}
}

func errUnavailable() *arcp.Error { return arcp.Errorf(arcp.CodeUnavailable, "later") }

func threeAttempts(c *tool.Capability) { c.Retry = tool.Retry{MaxAttempts: 3} }

// retryDelay reads a retry event.
func (f *fixture) retryDelay(fr frame, attempt uint32, code arcp.Code) time.Duration {
	f.Helper()
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](&fr.Envelope)
	var d retryData
	if err == nil {
		err = arcp.Unmarshal(p.Data, &d)
	}
	if err != nil || p.Name != "retry" || d.Attempt != attempt || d.Code != code {
		f.Errorf("%s, %v: want attempt %d announced after %s", fr.Payload, err, attempt, code)
	}
	return time.Duration(d.DelayMS) * time.Millisecond
}

// A failed attempt is made again after a wait that grows, and is announced; the
// job ends once.
func TestRetry(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", threeAttempts, failFirst(errUnavailable(), errUnavailable()))
		f.submit("t", "{}")
		frames := f.want("the failure schedules a retry", "job.accepted", "job.started", "event.emit msg_1")
		for i, middle := range []time.Duration{time.Second, 2 * time.Second} {
			d := f.retryDelay(frames[len(frames)-1], uint32(i+2), arcp.CodeUnavailable)
			if d < middle*8/10 || d > middle*12/10 {
				t.Errorf("wait of %v, want %v ± 20 %%", d, middle)
			}
			if row := f.row(frames[0].JobID); row.State != arcp.StateQueued || row.Attempt != uint32(i+2) {
				t.Errorf("between attempts the job is %s, attempt %d", row.State, row.Attempt)
			}
			time.Sleep(d - time.Millisecond)
			f.want("not before")
			time.Sleep(2 * time.Millisecond)
			want := "event.emit msg_1"
			if i == 1 {
				want = "job.completed msg_1"
			}
			frames = f.want("again", "job.started msg_1", want)
		}
		f.expectNoState("")
	})
}

func TestRetryEnds(t *testing.T) {
	final := arcp.Errorf(arcp.CodeInternal, "never")
	final.Retryable = false
	for name, c := range map[string]struct {
		errs []error
		want string
	}{
		"after the last attempt": {[]error{errUnavailable(), errUnavailable(), errUnavailable(), errUnavailable()},
			"job.failed msg_1 UNAVAILABLE"},
		"by a permanent error": {[]error{errUnavailable(), arcp.Errorf(arcp.CodeNotFound, "no")}, "job.failed msg_1 NOT_FOUND"},
		"as the tool says":     {[]error{final}, "job.failed msg_1 INTERNAL"},
		"by giving up":         {[]error{errUnavailable(), arcp.Errorf(arcp.CodeCancelled, "no")}, "job.cancelled msg_1 CANCELLED"},
	} {
		t.Run(name, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.tool("t", threeAttempts, failFirst(c.errs...))
				f.submit("t", "{}")
				time.Sleep(time.Hour)
				got := lines(f.frames("sess_1"))
				if last := got[len(got)-1]; last != c.want || len(got) > 7 {
					t.Errorf("sent %v, want its end to be %s", got, c.want)
				}
				f.expectNoState("")
			})
		})
	}
}

// An attempt that fails before its claim is durable is made again once, too. The event retry has the
// time of the failure, from which the delay counts, not of its write.
func TestRetryOfAnEarlyStart(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { threeAttempts(c); withoutSideEffect(c) }, failFirst(errUnavailable()))
		f.session("sess_1")
		release := f.st.hold()
		failed := time.Now()
		f.submit("t", "{}")
		time.Sleep(time.Minute)
		release()
		frames := f.want("its wait is over already", "job.accepted", "job.started", "event.emit", "job.started", "job.completed")
		if at := frames[2].Timestamp; !at.Equal(failed) {
			t.Errorf("the event retry is of %v, want the time of the failure, %v", at, failed)
		}
		f.expectNoState("")
	})
}

// An attempt whose error and whose time limit are processed in the same turn fails once.
func TestRetryAtTheTimeLimit(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		fail := failFirst(errUnavailable())
		f.tool("t", func(c *tool.Capability) { threeAttempts(c); withoutSideEffect(c); c.Limits.Timeout = time.Second },
			func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				value, err := fail(ctx, j, args)
				if err != nil {
					time.Sleep(2 * time.Second)
				}
				return value, err
			})
		f.session("sess_1")
		release := f.st.hold() // its timers wait for the claim
		f.submit("t", "{}")
		time.Sleep(time.Minute)
		release()
		f.want("the second attempt completes", "job.accepted", "job.started", "event.emit", "job.started", "job.completed")
		f.expectNoState("")
	})
}

// An attempt whose claim fails is not retried, because the job does not exist.
func TestRetryOfARefusedClaim(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { threeAttempts(c); withoutSideEffect(c); oneAtATime(c) }, failFirst(errUnavailable()))
		f.session("sess_1")
		q := f.request("sess_1", "t", "{}")
		q.Session = "sess_gone"
		release := f.st.hold()
		f.send(q)
		synctest.Wait()
		release()
		f.want("the claim is refused", "job.failed msg_1 UNAVAILABLE")
		f.expectNoState("")
		time.Sleep(time.Hour)
		f.want("nothing is left of it")
	})
}

// The delay requested by the error is the minimum. The retry policy of the submit has priority
// over the tool's.
func TestRetryFloorAndOption(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", threeAttempts, failFirst(errUnavailable().RetryAfter(30), errUnavailable(), errUnavailable()))
		f.submit("t", "{}")
		frames := f.want("the first failure schedules a retry", "job.accepted", "job.started", "event.emit")
		if d := f.retryDelay(frames[2], 2, arcp.CodeUnavailable); d != 30*time.Second {
			t.Errorf("wait of %v, want the 30 s that the tool asked for", d)
		}
		f.e.SessionJobs().CancelAll("sess_1", "")
		f.frames("sess_1")
		q := f.request("sess_1", "t", "{}")
		q.payload.Retry = arcp.Raw(`{"max_attempts":2,"initial_ms":10}`)
		f.send(q)
		frames = f.want("the first failure schedules a retry", "job.accepted", "job.started", "event.emit")
		d := f.retryDelay(frames[2], 2, arcp.CodeUnavailable)
		if d < 8*time.Millisecond || d > 12*time.Millisecond {
			t.Errorf("wait of %v, want 10 ms ± 20 %%", d)
		}
		time.Sleep(time.Second)
		f.want("twice, not thrice", "job.started", "job.failed")
	})
}

// Between attempts others have the slot.
func TestRetryGivesItsSlotBack(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { threeAttempts(c); oneAtATime(c) }, func(_ context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if string(args) == `{"n":1}` && j.Attempt() == 1 {
				return nil, errUnavailable()
			}
			time.Sleep(10 * time.Second)
			return args, nil
		})
		f.submitAtOnce(func() { f.submit("t", `{"n":1}`); f.submit("t", `{"n":2}`) })
		f.want("the retry frees the slot", "job.accepted", "job.accepted", "job.started msg_1", "event.emit msg_1", "job.started msg_2")
		time.Sleep(5 * time.Second)
		f.want("its wait is over, and the slot is taken")
		time.Sleep(5 * time.Second)
		f.want("the slot is free for the retry", "job.completed msg_2", "job.started msg_1")
		time.Sleep(10 * time.Second)
		f.want("the second attempt completes", "job.completed msg_1")
		f.expectNoState("")
	})
}

// A job is cancelled while it waits for its next attempt.
func TestCancelBetweenAttempts(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { threeAttempts(c); oneAtATime(c) }, failFirst(errUnavailable()))
		f.submit("t", "{}")
		id := f.want("the failure schedules a retry", "job.accepted", "job.started", "event.emit")[0].JobID
		f.cancel(id, 0)
		f.want("at once", "cancel.accepted msg_2", "job.cancelled msg_1 CANCELLED")
		f.expectNoState("")
		time.Sleep(time.Hour)
		f.want("it stays so")
		f.submit("t", "{}")
		f.want("the slot is free", "job.accepted", "job.started", "job.completed")
	})
}

// A cancel that comes while the failure of an attempt becomes durable.
func TestCancelDuringTheRetry(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		fail := make(chan struct{})
		f.tool("t", func(c *tool.Capability) { threeAttempts(c); oneAtATime(c) }, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			<-fail
			return nil, errUnavailable()
		})
		f.submit("t", "{}")
		id := f.want("the attempt runs", "job.accepted", "job.started")[0].JobID
		release := f.st.hold()
		close(fail)
		synctest.Wait()
		f.cancel(id, 0)
		release()
		f.want("the cancel prevents the retry", "cancel.accepted msg_2", "event.emit msg_1", "job.cancelled msg_1 CANCELLED")
		f.expectNoState("")
	})
}

// The remaining wait before a retry survives a restart.
func TestRetrySurvives(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", threeAttempts, failFirst(errUnavailable().RetryAfter(60), errUnavailable(), errUnavailable()))
		f.submit("t", "{}")
		f.want("the first failure schedules a retry", "job.accepted", "job.started", "event.emit")
		time.Sleep(40 * time.Second)
		f.restart(1)
		time.Sleep(20*time.Second - 1)
		f.want("20 s are left")
		time.Sleep(time.Nanosecond)
		frames := f.want("the wait is over at its time", "job.started", "event.emit")
		f.retryDelay(frames[1], 3, arcp.CodeUnavailable)
		f.stop(0)
		time.Sleep(time.Hour)
		f.restart(1)
		f.want("the wait was over meanwhile; this was the last attempt", "job.started", "job.failed msg_1 UNAVAILABLE")
		f.expectNoState("")
	})
}

// After the tool's own time limit the job is retried once the tool has returned. Until then
// the slot stays occupied, and the earlier call can emit nothing for the next attempt.
func TestRetryAfterTheToolsLimit(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		late := make(chan error, 1)
		f.tool("t", func(c *tool.Capability) {
			threeAttempts(c)
			oneAtATime(c)
			c.Limits.Timeout = 2 * time.Second
		}, func(_ context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if j.Attempt() == 1 {
				time.Sleep(4500 * time.Millisecond)
				late <- j.Log("info", "late", nil)
			}
			return args, nil
		})
		f.submit("t", "{}")
		time.Sleep(2 * time.Second)
		frames := f.want("the time limit of the tool schedules a retry", "job.accepted", "job.started", "event.emit")
		f.retryDelay(frames[2], 2, arcp.CodeDeadlineExceeded)
		time.Sleep(2400 * time.Millisecond)
		f.want("the first attempt has not returned")
		time.Sleep(200 * time.Millisecond)
		f.want("now it has", "job.started", "job.completed")
		if err := <-late; err == nil {
			t.Error("Log of an attempt that has ended = nil, want an error")
		}
		f.expectNoState("")
	})
}

// A retry that the maximum runtime would not let begin is not waited for.
func TestRetryWithinTheMaximumRuntime(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", threeAttempts, failFirst(errUnavailable(), errUnavailable().RetryAfter(60)))
		q := f.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("10"))
		f.send(q)
		time.Sleep(2 * time.Second)
		f.want("the second wait exceeds the maximum runtime", "job.accepted", "job.started", "event.emit", "job.started",
			"job.failed msg_1 UNAVAILABLE")
	})
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { threeAttempts(c); oneAtATime(c) }, func(_ context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if string(args) == "{}" && j.Attempt() == 1 {
				return nil, errUnavailable()
			}
			time.Sleep(time.Hour)
			return nil, nil
		})
		q := f.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("10"))
		f.send(q)
		f.submit("t", "[]")
		f.frames("sess_1")
		time.Sleep(10*time.Second - time.Millisecond)
		f.want("it waits for the slot")
		time.Sleep(time.Millisecond)
		f.want("and its time is over there, too", "job.failed msg_1 TIMEOUT")
	})
}

// Jobs that wait for their retry have no goroutines.
func TestManyRetries(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	const jobs = 5000
	runEngine(t, nil, func(f *fixture) {
		var calls atomic.Int32
		f.tool("t", func(c *tool.Capability) { threeAttempts(c); c.Limits.Concurrency = 100 },
			func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				calls.Add(1)
				if j.Attempt() == 1 {
					return nil, errUnavailable()
				}
				return nil, nil
			})
		before := runtime.NumGoroutine()
		for i := range jobs {
			if f.submit("t", "{}"); i%50 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 600 {
			t.Errorf("%d goroutines for %d jobs that wait", n, jobs)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := calls.Load(); n != 2*jobs {
			t.Errorf("%d calls, want two a job", n)
		}
		f.expectNoState("")
	})
}

// Stop does not wait for jobs that wait for their retry; the next start does.
func TestStopLeavesRetries(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", threeAttempts, failFirst(errUnavailable().RetryAfter(3600)))
		f.submit("t", "{}")
		id := f.want("the failure schedules a retry", "job.accepted", "job.started", "event.emit")[0].JobID
		began := time.Now()
		f.stop(time.Minute)
		if took := time.Since(began); took != 0 {
			t.Errorf("Stop took %v", took)
		}
		f.e.Cancel(Requester{Request: "msg_c", Principal: "alice", Session: "sess_1", Answers: f.session("sess_1")},
			&arcp.CancelPayload{TargetID: string(id)})
		f.want("nothing can be done now", "cancel.refused msg_c unavailable")
		f.restart(1)
		time.Sleep(time.Hour)
		f.want("the next start makes the retry", "job.started", "job.completed")
		f.expectNoState("all of it")
	})
}
