package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

func recovery(d tool.Recovery) func(*tool.Capability) {
	return func(c *tool.Capability) { c.Recovery = d }
}

// The tool's Recovery setting decides about an interrupted job after a restart.
func TestRecoverySettings(t *testing.T) {
	for d, want := range map[tool.Recovery][]string{
		tool.RecoveryFail:       {"job.failed msg_1 ABORTED"},
		tool.RecoveryRerun:      {"job.started msg_1", "job.completed msg_1"},
		tool.RecoveryCheckpoint: {"job.started msg_1", "job.completed msg_1"},
	} {
		t.Run(string(d), func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				var attempts []uint32
				f.tool("t", recovery(d), func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
					attempts = append(attempts, j.Attempt())
					if j.Attempt() == 1 {
						return wait(ctx, j, args)
					}
					return args, nil
				})
				f.submit("t", `{"n":1}`)
				id := f.want("the first attempt runs", "job.accepted", "job.started")[0].JobID
				f.restart(1)
				f.want(string(d), want...)
				if n := len(want); len(attempts) != n || attempts[n-1] != uint32(n) {
					t.Errorf("attempts %v, want %d", attempts, n)
				}
				if row := f.row(id); row.Attempt != uint32(len(want)) {
					t.Errorf("the job's attempt is %d, want %d", row.Attempt, len(want))
				}
				if n := f.gauge("arcp_jobs_recovered_total"); n != 1 {
					t.Errorf("%v jobs recovered, want 1", n)
				}
				f.expectNoState("")
				f.restart(0)
			})
		})
	}
}

// A runtime that crashes at any commit of a job's life loses nothing that was
// sent, ends the job once, and has a tool that must not be called twice called
// once.
func TestCrashAnywhere(t *testing.T) {
	for _, d := range tool.Recoveries {
		for crash := 1; ; crash++ {
			done := false
			runEngine(t, nil, func(f *fixture) { done = f.crashAt(d, crash) })
			if done {
				t.Logf("%s: a life has %d commits", d, crash-1)
				break
			}
			if t.Failed() || crash > 30 {
				t.Fatalf("%s, crash %d", d, crash)
			}
		}
	}
}

// crashAt lives a job's life with a crash after so many commits, and another one
// after as many of the next process; it reports whether the life was too short
// for the first.
func (f *fixture) crashAt(d tool.Recovery, crash int) (done bool) {
	calls, from := 0, []string(nil)
	f.tool("t", recovery(d), func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		calls++
		from = append(from, string(j.Restored()))
		for n := range 3 {
			if err := j.Log("info", fmt.Sprint(n), nil); err != nil {
				return nil, err
			}
			if err := j.Checkpoint("", n); err != nil {
				return nil, err
			}
			time.Sleep(time.Second)
		}
		return arcp.Raw("1"), nil
	})
	f.session("sess_1")
	f.st.crashAfter(crash)
	f.submit("t", "{}")
	time.Sleep(time.Minute)
	frames := f.frames("sess_1")
	f.st.mu.Lock()
	done = f.st.fail == nil
	f.st.mu.Unlock()
	if len(frames) == 1 && frames[0].Type == arcp.JobFailed && frames[0].JobID == "" {
		return false // it was refused
	}
	for again := range 2 {
		f.stop(0)
		live := f.st.Stat().LiveJobs
		f.restart(live)
		if again == 0 {
			f.st.crashAfter(crash)
		}
		time.Sleep(time.Minute)
		frames = append(frames, f.frames("sess_1")...)
	}
	got := lines(frames)
	ends := 0
	for _, l := range got {
		if strings.HasPrefix(l, "job.completed") || strings.HasPrefix(l, "job.failed") {
			ends++
		}
	}
	if ends != 1 || got[0] != "job.accepted msg_1" || frames[len(frames)-1].Type == arcp.JobStarted {
		f.Errorf("%s, crash %d: sent %v; want it accepted and ended once", d, crash, got)
	}
	if d == tool.RecoveryFail && calls > 1 {
		f.Errorf("crash %d: a tool that must not be called twice was called %d times", crash, calls)
	}
	if d == tool.RecoveryRerun && slices.ContainsFunc(from, func(s string) bool { return s != "" }) {
		f.Errorf("crash %d: a tool that begins at the start was given %q", crash, from)
	}
	for i := range len(frames) - 1 { // the log event of a step precedes its checkpoint
		if frames[i+1].Type == arcp.JobCheckpoint && frames[i].Type != arcp.Log {
			f.Errorf("%s, crash %d: %v before a checkpoint", d, crash, got[i])
		}
	}
	f.expectNoState("")
	return done
}

// Jobs that had not started are started in order of arrival, even if they exceed the queue or
// a limit.
func TestQueuedJobsStart(t *testing.T) {
	const n = tool.MaxQueue + 20
	runEngine(t, nil, func(f *fixture) {
		var order []string
		f.tool("t", func(c *tool.Capability) { oneAtATime(c); c.Recovery = tool.RecoveryRerun },
			func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
				order = append(order, string(args))
				time.Sleep(time.Second)
				return nil, nil
			})
		var want []string
		at := time.Now()
		for i := range n {
			at = at.Add(time.Duration(i%3) * time.Millisecond) // equal times are ordered by id
			row := store.Job{ID: arcp.JobID(fmt.Sprintf("job_%04d", (i*7)%3+10*i)), Principal: "alice", Agent: "t@1.0.0",
				Arguments: arcp.Raw(fmt.Sprint(i)), CreatedAt: at, State: arcp.StateQueued, Attempt: 1}
			if i == 0 {
				row.State = arcp.StateAccepted
			}
			if _, err := f.cfg.Log.Commit(f.Context(), store.NewWrite(&store.SubmitJob{Row: &row})); err != nil {
				f.Fatal(err)
			}
			want = append(want, fmt.Sprint(i))
		}
		f.cfg.MaxJobs, f.cfg.MaxJobsPerPrincipal = 3, 2
		f.restart(n)
		f.submit("t", "{}")
		f.want("the limits are for new ones", "job.failed msg_1 RESOURCE_EXHAUSTED")
		time.Sleep(n * time.Second)
		synctest.Wait()
		if !slices.Equal(order, want) {
			t.Errorf("they ran in the order %v", order)
		}
		f.expectNoState("")
	})
}

func TestRecoverWithoutTheTool(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", recovery(tool.RecoveryRerun), wait)
		f.submit("t", "{}")
		f.frames("sess_1")
		f.cfg.Tools = tool.NewRegistry()
		f.restart(1)
		fr := f.want("nobody can go on with it", "job.failed msg_1 AGENT_NOT_AVAILABLE")[0]
		if e, err := arcp.DecodePayload[arcp.Error](&fr.Envelope); err != nil || !e.Retryable || !strings.Contains(e.Message, "t@1.0.0") {
			t.Errorf("%+v, %v: want it retryable, with the tool's name", e, err)
		}
		f.expectNoState("")
	})
}

// A cancel that was accepted holds: the job does not come back to life.
func TestCancelSurvives(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", recovery(tool.RecoveryRerun), sleeper(time.Hour))
		f.submit("t", "{}")
		id := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		f.cancel(id, time.Minute)
		f.want("the cancel is accepted", "cancel.accepted msg_2")
		f.restart(1)
		fr := f.want("as was promised", "job.cancelled msg_1 CANCELLED")[0]
		if p, err := arcp.DecodePayload[arcp.JobCancelledPayload](&fr.Envelope); err != nil || p.Reason != "enough" {
			t.Errorf("reason %q, %v; want the canceller's", p.Reason, err)
		}
		f.expectNoState("")
		time.Sleep(2 * time.Hour)
	})
}

// No cancel is accepted before it is durable that it is, whether the job runs or
// waits.
func TestCancelIsDurableWhenAccepted(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { oneAtATime(c); c.Recovery = tool.RecoveryRerun }, wait)
		f.submitAtOnce(func() { f.submit("t", "{}"); f.submit("t", "{}") })
		frames := f.want("one job runs", "job.accepted", "job.accepted", "job.started")
		release := f.st.hold()
		f.st.breakWith(errCrash)
		f.cancel(jobOf(frames, "msg_2"), 0)
		synctest.Wait()
		f.cancel(jobOf(frames, "msg_1"), 0)
		f.want("neither is durable")
		release()
		f.want("neither will be", "cancel.refused msg_3 unavailable", "cancel.refused msg_4 unavailable")
		f.restart(2)
		f.want("the jobs go on", "job.started msg_1")
		f.e.SessionJobs().CancelAll("sess_1", "")
		f.want("the jobs can be cancelled", "job.cancelled", "job.cancelled")
	})
}

// max_runtime_sec counts from the first start, through restarts, also in the
// queue.
func TestMaxRuntimeSurvives(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { oneAtATime(c); c.Recovery = tool.RecoveryRerun }, wait)
		limited := func() {
			q := f.request("sess_1", "t", "{}")
			q.payload.MaxRuntimeSec = new(arcp.Number("60"))
			f.send(q)
		}
		limited()
		f.want("the first job runs", "job.accepted", "job.started")
		time.Sleep(40 * time.Second)
		limited()
		f.want("the second job is queued", "job.accepted msg_2")
		f.restart(2)
		f.want("the first job runs again", "job.started msg_1")
		time.Sleep(20*time.Second - 1)
		f.want("not yet")
		time.Sleep(time.Nanosecond)
		f.want("60 s after its first start; the other one's begin", "job.failed msg_1 TIMEOUT", "job.started msg_2")
		f.stop(0)
		time.Sleep(time.Hour)
		f.restart(1)
		f.want("its time was over meanwhile", "job.failed msg_2 TIMEOUT")
		f.expectNoState("")
	})
}

// All that a submit asked for is still known.
func TestOptionsSurvive(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", recovery(tool.RecoveryRerun), wait)
		q := f.request("sess_1", "t", "{}")
		q.env.CausationID = "msg_cause"
		q.payload.StrictCancel, q.payload.OnDisconnect, q.payload.Direct = true, "cancel", true
		f.send(q)
		f.frames("sess_1")
		f.restart(1)
		if got := f.e.SessionJobs().EndingOnDisconnect(); !slices.Equal(got, []arcp.SessionID{"sess_1"}) {
			t.Errorf("Leashed() = %v, want the session", got)
		}
		var id arcp.JobID
		for id = range f.e.jobs.runs {
		}
		f.e.Cancel(Requester{Request: "msg_c", Principal: "alice", Session: "sess_2", Answers: f.session("sess_1")},
			&arcp.CancelPayload{TargetID: string(id)})
		f.want("strict_cancel", "cancel.refused msg_c "+RefusedDenied)
		f.e.SessionJobs().CancelOnDisconnect("sess_1", "gone")
		fr := f.want("on_disconnect and direct", "tool.error msg_1 CANCELLED")[0]
		if fr.CausationID != "msg_cause" {
			t.Errorf("causation %q", fr.CausationID)
		}
	})
}

// Writes of a superseded attempt are refused.
func TestFencedAttempt(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		cause := make(chan error, 1)
		f.tool("t", recovery(tool.RecoveryCheckpoint), func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Second)
			err := j.Checkpoint("", 1)
			<-ctx.Done()
			cause <- err
			return nil, err
		})
		f.submit("t", "{}")
		id := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		if _, err := f.cfg.Log.Commit(f.Context(), store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, NewAttempt: true})); err != nil {
			f.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		f.want("nothing of the late writer")
		if err := <-cause; err == nil {
			t.Error("its checkpoint was taken")
		}
		f.expectNoState("")
	})
}
