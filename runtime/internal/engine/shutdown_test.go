package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/tool"
)

// gated makes the calls of a tool wait for an approval.
func gated(c *tool.Capability) { c.Approval = tool.ApprovalManual }

// drained stops the engine with an hour of time, and returns how much of it was needed.
func (f *fixture) drained() time.Duration {
	begun := time.Now()
	f.stop(time.Hour)
	return time.Since(begun)
}

// wantActive checks the number of the jobs for which a stop waits. first are the tools of the first ones, and why each
// waits.
func (f *fixture) wantActive(n int, first ...string) {
	f.Helper()
	var got []string
	list, listed := ListActive(f.e, len(first))
	for _, j := range list {
		text := j.Tool + ": "
		if j.Waiting != nil {
			text += j.Waiting.Reason
		}
		got = append(got, text)
	}
	if !slices.Equal(got, first) {
		f.Errorf("the first active jobs are %q, want %q", got, first)
	}
	f.e.mu.Lock()
	active := activeJobs(&f.e.jobs, &f.e.queues)
	f.e.mu.Unlock()
	if active != n || listed != n {
		f.Errorf("%d jobs are active, and %d are listed; want %d", active, listed, n)
	}
}

// A restart asks the approver nothing again and loses no approval: the tool of the job was not called,
// whatever the recovery of the tool is.
func TestGateOverRestarts(t *testing.T) {
	for _, d := range tool.Recoveries {
		t.Run(string(d), func(t *testing.T) {
			withQuestions(t, func(f *fixture, fq *fakeQuestions) {
				calls := 0
				f.tool("danger", func(c *tool.Capability) { gated(c); c.Recovery = d },
					func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
						calls++
						return args, nil
					})
				f.submit("danger", `{"x":1}`)
				f.want("the approver is asked", "job.accepted", "job.started", "event.emit")
				asked := fq.only(t)
				if list, n := ListActive(f.e, 9); n != 0 {
					t.Errorf("a stop waits for %v, want not for an approval", list)
				}
				f.frames("sess_2")
				f.restart(1) // the process is killed
				f.want("the job waits again", "job.started")
				f.stop(time.Minute)
				f.restart(1)
				f.want("the job waits again after an orderly stop", "job.started")
				if q := fq.only(t); q.ID != asked.ID {
					t.Errorf("asked %s, then %s", asked.ID, q.ID)
				}
				if got := lines(f.frames("sess_2")); len(got) != 0 {
					t.Errorf("the approver is sent %q", got)
				}
				if calls != 0 {
					t.Fatalf("the tool ran %d times without an approval", calls)
				}
				if _, err := f.respond(asked, person("sess_2"), approval.Answer{Resolution: approval.Approve}); err != nil {
					t.Fatal(err)
				}
				f.want("approved", "job.completed")
				if calls != 1 {
					t.Errorf("the tool ran %d times", calls)
				}
				f.expectNoState("approved")
			})
		})
	}
}

// An approval that expires while the runtime is down is a refusal after its start.
func TestGateExpiresWhileDown(t *testing.T) {
	withQuestions(t, func(f *fixture, _ *fakeQuestions) {
		f.tool("danger", gated, echo)
		f.submit("danger", `{}`)
		f.want("the approver is asked", "job.accepted", "job.started", "event.emit")
		f.stop(0)
		time.Sleep(25 * time.Hour)
		f.restart(1)
		f.want("expired", "job.started", "job.failed msg_1 PERMISSION_DENIED")
		f.frames("sess_2")
	})
}

// A tool that runs without the approval that an earlier attempt has asked for counts as called: a
// restart does not call it again.
func TestRestartAfterAGateThatIsNotNeeded(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		calls := 0
		f.tool("danger", func(c *tool.Capability) { c.Approval = tool.ApprovalAuto("attempt > 1") }, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			calls++
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		f.submit("danger", `{}`)
		f.want("the approver is asked", "job.accepted", "job.started", "event.emit")
		f.restart(1)
		f.want("the second attempt needs no approval", "job.started")
		synctest.Wait()
		if len(fq.pending) != 0 {
			t.Errorf("%d approvals are pending while the tool runs", len(fq.pending))
		}
		f.restart(1)
		f.want("the tool was called", "job.failed msg_1 ABORTED")
		if calls != 1 {
			t.Errorf("the tool ran %d times", calls)
		}
		f.frames("sess_2")
		f.expectNoState("aborted")
	})
}

// A stop does not wait for a job that has no worker. The job continues after the next start.
func TestStopWithAJobWithoutAWorker(t *testing.T) {
	w := &workers{}
	runEngine(t, w.configure, func(f *fixture) {
		f.tool("py", onWorkers, echo)
		f.submit("py", `{"x":1}`)
		f.frames("sess_1")
		f.wantActive(0)
		if took := f.drained(); took != 0 {
			t.Errorf("the stop took %s", took)
		}
		w.slots = catalog.Slots{}
		f.restart(1)
		w.set(f, "py@1.0.0", 1, true)
		frames := f.frames("sess_1")
		if got := lines(frames); !slices.Contains(got, "job.completed msg_1") {
			t.Errorf("after the start: %q", got)
		}
		f.expectNoState("completed")
	})
}

// A stop waits for a job in the queue while an active job of its tool will release a slot.
func TestStopWaitsForTheQueueOfAnActiveJob(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("one", func(c *tool.Capability) { c.Limits.Concurrency = 1 }, sleeper(time.Minute))
		for range 3 {
			f.submit("one", `{}`)
		}
		synctest.Wait()
		f.wantActive(3, "one@1.0.0: ", "one@1.0.0: slot")
		if took := f.drained(); took != 3*time.Minute {
			t.Errorf("the stop took %s, want 3 minutes", took)
		}
		f.frames("sess_1")
		f.restart(0)
	})
}

// An endless job in a queue is not counted twice: a stop waits for the active job beside it.
func TestStopWithAnEndlessJobInAQueue(t *testing.T) {
	w := &workers{}
	runEngine(t, w.configure, func(f *fixture) {
		f.tool("endless", func(c *tool.Capability) { onWorkers(c); c.Endless = true }, echo)
		f.tool("other", nil, sleeper(time.Minute))
		f.submit("endless", `{}`)
		f.submit("other", `{}`)
		synctest.Wait()
		f.wantActive(1, "other@1.0.0: ")
		if took := f.drained(); took != time.Minute {
			t.Errorf("the stop took %s, want a minute", took)
		}
		f.frames("sess_1")
	})
}

// A stop does not wait for a job whose call waits for an approval, whatever the recovery of the tool is. An approval
// that arrives at the moment of the stop is not lost, and the tool is called once: before the end of the stop, or
// after the next start.
func TestStopAtAGate(t *testing.T) {
	approve := func(f *fixture, q approval.Row) {
		if _, err := f.respond(q, person("sess_2"), approval.Answer{Resolution: approval.Approve}); err != nil {
			f.Errorf("the approval is refused: %v", err)
		}
	}
	for name, c := range map[string]struct {
		before, during, after bool // of the stop: when the approval arrives
		held                  bool // the write of the job is held when the approval and the stop arrive
		calls                 int  // of the tool before the next start
	}{
		"approved after the start":       {after: true},
		"approved in the drain":          {during: true},
		"approved while the job is left": {during: true, held: true},
		"approved before the stop":       {before: true, held: true, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			withQuestions(t, func(f *fixture, fq *fakeQuestions) {
				calls := 0
				f.tool("danger", gated, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
					calls++
					return args, nil
				})
				f.tool("other", nil, sleeper(time.Minute))
				f.submit("danger", `{"x":1}`)
				f.want("the approver is asked", "job.accepted", "job.started", "event.emit")
				q := fq.only(t)
				if c.during {
					f.submit("other", `{}`) // the drain lasts for a minute
					synctest.Wait()
				}
				release := func() {}
				if c.held {
					release = f.st.hold()
				}
				answered := make(chan struct{})
				answer := func() {
					go func() { defer close(answered); approve(f, q) }()
					synctest.Wait()
				}
				if c.before {
					answer()
				}
				stopped := make(chan time.Duration, 1)
				go func() { stopped <- f.drained() }()
				synctest.Wait()
				if c.during {
					answer()
				}
				release()
				took := <-stopped
				if most := map[bool]time.Duration{true: time.Minute}[c.during]; took != most {
					t.Errorf("the stop took %s, want %s", took, most)
				}
				if calls != c.calls {
					t.Fatalf("the tool ran %d times before the next start, want %d", calls, c.calls)
				}
				f.restart(map[bool]int{false: 1}[calls == 1])
				if c.after {
					synctest.Wait()
					answer()
				}
				<-answered
				synctest.Wait()
				if got := lines(f.frames("sess_1")); !slices.Contains(got, "job.completed msg_1") {
					t.Errorf("the session is sent %q, want the end of the job", got)
				}
				if calls != 1 {
					t.Errorf("the tool ran %d times, want 1", calls)
				}
				f.frames("sess_2")
			})
		})
	}
}
