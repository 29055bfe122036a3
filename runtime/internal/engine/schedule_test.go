package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/schedule"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// schedules registers the tool of schedules, and a tool t that takes a while and counts its calls.
func (f *fixture) schedules(takes time.Duration) (calls *atomic.Int64) {
	f.tool(ScheduleTool, func(c *tool.Capability) {
		c.Source, c.SideEffect, c.Recovery = tool.SourceBuiltin, tool.SideEffectExternal, tool.RecoveryRerun
	}, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { panic("a schedule is called") })
	calls = new(atomic.Int64)
	f.tool("t", recovery(tool.RecoveryRerun), func(ctx context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
		calls.Add(1)
		select {
		case <-time.After(takes):
			return args, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	return calls
}

// schedule sends job.schedule for the tool t in the session sess_1.
func (f *fixture) schedule(when string) arcp.MessageID {
	f.Helper()
	return f.scheduleMessage(`{"job":{"type":"tool.invoke","payload":{"tool":"t","arguments":{"n":1}}},"when":` + when + `}`)
}

func (f *fixture) scheduleMessage(args string) arcp.MessageID {
	f.Helper()
	q := f.request("sess_1", ScheduleTool, args)
	q.env.Type = arcp.JobSchedule
	return f.send(q)
}

func (f *fixture) fired(result string) float64 {
	f.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "arcp_schedules_fired_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// A schedule of one time is queued until then, and ends with the outcome of its job.
func TestScheduleOnce(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		calls := f.schedules(time.Minute)
		f.schedule(`{"after":3600}`)
		id := f.want("the schedule is accepted", "job.accepted msg_1")[0].JobID
		if row := f.row(id); row.State != arcp.StateQueued {
			t.Errorf("the schedule is %s, want queued", row.State)
		}
		if n := f.gauge("arcp_schedules"); n != 1 {
			t.Errorf("arcp_schedules is %v, want 1", n)
		}
		time.Sleep(3599 * time.Second)
		f.want("it is not due")
		time.Sleep(time.Second)
		frames := f.want("it is due", "job.accepted", "job.started")
		child := f.row(frames[0].JobID)
		if child.Parent != id || child.Principal != "alice" || !strings.HasPrefix(child.IdempotencyKey, string(id)+"/2000-01-01T01:00:00") {
			t.Errorf("the job is a child of %q with the key %q", child.Parent, child.IdempotencyKey)
		}
		time.Sleep(time.Minute)
		frames = f.want("the job ends, and the schedule with it", "job.completed", "job.completed msg_1")
		if p, _ := arcp.DecodePayload[arcp.JobCompletedPayload](&frames[1].Envelope); string(p.Value) != `{"n":1}` || calls.Load() != 1 {
			t.Errorf("the schedule completes with %s after %d calls", p.Value, calls.Load())
		}
		f.expectNoState("the schedule has ended")
	})
}

// A schedule of one time fails like its job.
func TestScheduleOnceFails(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(0)
		f.tool("bad", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return nil, arcp.Errorf(arcp.CodeUnavailable, "no")
		})
		f.scheduleMessage(`{"job":{"type":"workflow.start","payload":{"workflow":"bad","arguments":{}}},"when":{"after":1}}`)
		f.want("the schedule is accepted", "job.accepted msg_1")
		time.Sleep(time.Second)
		f.want("the schedule fails", "job.accepted", "job.started", "job.failed UNAVAILABLE", "job.failed msg_1 UNAVAILABLE")
	})
}

// A rule fires one job after the other, and its schedule completes when it ends.
func TestScheduleRule(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		calls := f.schedules(time.Second)
		f.schedule(`{"every":"FREQ=MINUTELY;COUNT=3"}`)
		f.want("the first job starts at once", "job.accepted msg_1", "job.accepted", "job.started")
		time.Sleep(10 * time.Minute)
		frames := f.frames("sess_1")
		if got := strings.Join(slices.Sorted(slices.Values(lines(frames))), ", "); got != "job.accepted, job.accepted, job.completed, "+
			"job.completed, job.completed, job.completed msg_1, job.started, job.started" {
			t.Errorf("after the first job the session has %s", got)
		}
		i := slices.IndexFunc(frames, func(fr frame) bool { return fr.String() == "job.completed msg_1" })
		if i < 0 {
			t.Fatal("the schedule has not completed")
		}
		if p, _ := arcp.DecodePayload[arcp.JobCompletedPayload](&frames[i].Envelope); string(p.Value) != `{"fired":3,"skipped":0}` || calls.Load() != 3 {
			t.Errorf("the schedule completes with %s after %d calls", p.Value, calls.Load())
		}
		if n := f.fired("fired"); n != 3 {
			t.Errorf("%v fired, want 3", n)
		}
	})
}

// An occurrence is skipped while the previous job runs.
func TestScheduleOverlap(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(150 * time.Second)
		f.schedule(`{"every":"FREQ=MINUTELY;COUNT=4"}`)
		time.Sleep(10 * time.Minute)
		frames := f.frames("sess_1")
		got := lines(frames)
		last := got[len(got)-1]
		if fired, skipped := f.fired("fired"), f.fired("skipped_overlap"); fired != 2 || skipped != 2 || last != "job.completed" {
			t.Errorf("%v fired, %v skipped, the last event is %s", fired, skipped, last)
		}
	})
}

// Cancel ends a schedule, and not the job that runs. Any session of the principal may cancel.
func TestScheduleCancel(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(time.Minute)
		f.schedule(`{"every":"FREQ=HOURLY"}`)
		id := f.want("a job runs", "job.accepted msg_1", "job.accepted", "job.started")[0].JobID
		f.n++
		other := f.session("sess_2")
		f.e.Cancel(Requester{Request: "msg_c", Principal: "alice", Session: "sess_2", Answers: other}, &arcp.CancelPayload{TargetID: string(id)})
		f.wantOf("sess_2", "the cancel is accepted", "cancel.accepted msg_c")
		f.want("the schedule ends", "job.cancelled msg_1")
		time.Sleep(2 * time.Hour)
		f.want("only the job goes on", "job.completed")
		f.expectNoState("the schedule has ended")
	})
}

// A schedule outlives its session, and its jobs have no followers then.
func TestScheduleOutlivesItsSession(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		calls := f.schedules(time.Second)
		f.schedule(`{"after":60}`)
		f.want("the schedule is accepted", "job.accepted")
		if _, err := f.cfg.Log.Commit(context.Background(), store.NewWrite(&store.EndSession{Session: "sess_1"})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if calls.Load() != 1 {
			t.Errorf("%d calls, want 1", calls.Load())
		}
		f.expectNoState("the schedule has ended")
	})
}

func TestScheduleRefusals(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(0)
		f.tool("strict", func(c *tool.Capability) {
			c.InputSchema = arcp.Raw(`{"type":"object","required":["x"]}`)
		}, echo)
		job := func(typ, payload, when string) string {
			return fmt.Sprintf(`{"job":{"type":%q,"payload":%s},"when":%s}`, typ, payload, when)
		}
		const soon, ok = `{"after":1}`, `{"tool":"t","arguments":{}}`
		for _, test := range []struct{ args, code string }{
			{job("tool.invoke", ok, `{}`), "INVALID_ARGUMENT"},
			{job("tool.invoke", ok, `{"after":1,"every":"FREQ=DAILY"}`), "INVALID_ARGUMENT"},
			{job("tool.invoke", ok, `{"at":"1999-01-01T00:00:00Z"}`), "INVALID_ARGUMENT"},
			{job("tool.invoke", ok, `{"every":"FREQ=SOMETIMES"}`), "INVALID_ARGUMENT"},
			{job("cancel", ok, soon), "INVALID_ARGUMENT"},
			{job("tool.invoke", `{"tool":"nobody","arguments":{}}`, soon), "AGENT_NOT_AVAILABLE"},
			{job("tool.invoke", `{"tool":"strict","arguments":{}}`, soon), "INVALID_ARGUMENT"},
			{job("tool.invoke", `{"tool":"schedule.create","arguments":{}}`, soon), "INVALID_ARGUMENT"},
			{job("tool.invoke", `{"tool":"t","arguments":{},"direct":true}`, soon), "INVALID_ARGUMENT"},
			{job("tool.invoke", `{"tool":"t","arguments":{},"lease_constraints":{"expires_in_seconds":-1}}`, soon), "INVALID_ARGUMENT"},
		} {
			id := f.scheduleMessage(test.args)
			frames := f.frames("sess_1")
			if want := fmt.Sprintf("nack %s %s", id, test.code); len(frames) != 1 || frames[0].String() != want {
				t.Errorf("%s is answered %v, want %s", test.args, lines(frames), want)
			}
		}
		f.expectNoState("all are refused")
	})
}

// A principal has a bounded number of schedules.
func TestScheduleLimit(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(0)
		for range maxSchedules {
			f.schedule(`{"after":3600}`)
		}
		f.frames("sess_1")
		f.schedule(`{"after":3600}`)
		f.want("one more is refused", "nack msg_1001 RESOURCE_EXHAUSTED")
		if n := f.gauge("arcp_schedules"); n != maxSchedules {
			t.Errorf("arcp_schedules is %v, want %d", n, maxSchedules)
		}
	})
}

// The schedules of a principal are listed by age, or one by its id.
func TestSchedules(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(0)
		f.schedule(`{"every":"DTSTART:20990101T000000Z FREQ=DAILY"}`)
		time.Sleep(time.Second)
		f.schedule(`{"every":"DTSTART:20990101T000000Z FREQ=DAILY;COUNT=2"}`)
		f.frames("sess_1")
		list := f.e.Schedules("alice", "", 3)
		if len(list) != 2 || len(list[0].Next) != 3 || len(list[1].Next) != 2 {
			t.Fatalf("schedules %v, want one with 3 times and one with 2", list)
		}
		if one := f.e.Schedules("alice", list[1].JobID, 1); len(one) != 1 || one[0].JobID != list[1].JobID || len(one[0].Next) != 1 {
			t.Errorf("the second one is %v, want %s with one time", one, list[1].JobID)
		}
		if others := f.e.Schedules("bob", list[1].JobID, 1); len(others) != 0 {
			t.Errorf("another principal has %v, want none", others)
		}
	})
}

// The lease of each job ends a time after its start.
func TestScheduleLeaseExpiry(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(time.Second)
		f.scheduleMessage(`{"job":{"type":"tool.invoke","payload":{"tool":"t","arguments":{},"lease_request":{"tool.call":["*"]},` +
			`"lease_constraints":{"expires_in_seconds":60}}},"when":{"every":"FREQ=HOURLY;COUNT=2"}}`)
		time.Sleep(3 * time.Hour)
		var ends []string
		for _, frame := range f.frames("sess_1") {
			p, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&frame.Envelope)
			if frame.Type == arcp.JobAccepted && err == nil && p.ParentJobID != "" {
				ends = append(ends, p.LeaseConstraints.ExpiresAt.Sub(p.AcceptedAt).String())
			}
		}
		if got := strings.Join(ends, " "); got != "1m0s 1m0s" {
			t.Errorf("the leases end after %s, want 1m0s each", got)
		}
	})
}

// A job that is refused for lack of capacity is submitted again.
func TestScheduleRetriesARefusedJob(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobs = 1 }, func(f *fixture) {
		calls := f.schedules(30 * time.Second)
		f.schedule(`{"after":1}`)
		f.submit("t", `{}`)
		time.Sleep(5 * time.Minute)
		if calls.Load() != 2 || f.fired("failed") != 0 {
			t.Errorf("%d calls, %v failed, want 2 and 0", calls.Load(), f.fired("failed"))
		}
	})
}

// A schedule of one time has the result that the tool of its job has written in chunks.
func TestScheduleOfResultInChunks(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(0)
		f.tool("report", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			return nil, writeResult(j, tool.ResultOptions{ContentType: "text/plain"}, "begin ")
		})
		f.scheduleMessage(`{"job":{"type":"tool.invoke","payload":{"tool":"report","arguments":{}}},"when":{"after":1}}`)
		time.Sleep(2 * time.Second)
		frames := f.frames("sess_1")
		last := frames[len(frames)-1]
		if p, _ := arcp.DecodePayload[arcp.JobCompletedPayload](&last.Envelope); string(p.Value) != `"begin end"` {
			t.Errorf("the schedule ends with %v %s, want the text of the result", last, p.Value)
		}
	})
}

// A job whose tool is not registered yet after a restart is submitted again.
func TestScheduleWaitsForItsTool(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(0)
		late := f.newTool("late", nil, echo)
		if err := f.cfg.Tools.Replace("server", []*tool.Tool{late}); err != nil {
			t.Fatal(err)
		}
		f.scheduleMessage(`{"job":{"type":"tool.invoke","payload":{"tool":"late","arguments":{}}},"when":{"after":60}}`)
		f.want("the schedule is accepted", "job.accepted msg_1")
		f.stop(0)
		if err := f.cfg.Tools.Replace("server", nil); err != nil {
			t.Fatal(err)
		}
		f.restart(1)
		time.Sleep(20 * time.Minute)
		f.want("the tool is not there")
		if err := f.cfg.Tools.Replace("server", []*tool.Tool{late}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(maxFiringRetry)
		f.want("the job runs", "job.accepted", "job.started", "job.completed", "job.completed msg_1")
	})
}

// A schedule whose job is refused until it is too late fails, and says why the job was refused.
func TestScheduleRefusedUntilTooLate(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobs = 1 }, func(f *fixture) {
		f.schedules(3 * time.Hour)
		f.submit("t", `{}`)
		f.frames("sess_1")
		f.schedule(`{"after":1}`)
		time.Sleep(schedule.Grace + 2*maxFiringRetry)
		frames := f.want("the schedule fails", "job.accepted msg_2", "job.failed msg_2 DEADLINE_EXCEEDED")
		if e, _ := arcp.DecodePayload[arcp.Error](&frames[1].Envelope); !strings.Contains(e.Message, "jobs") {
			t.Errorf("the schedule fails with %q, which does not say why", e.Message)
		}
	})
}

// The session of the draft dialect that has scheduled a job is told of the schedule, and not of its jobs.
func TestScheduleOfDraftSession(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		calls := f.schedules(time.Second)
		f.openSession("sess_1", arcp.DialectDraft)
		f.schedule(`{"every":"FREQ=MINUTELY;COUNT=3"}`)
		f.frames("sess_1")
		time.Sleep(time.Minute)
		f.restart(1)
		time.Sleep(time.Hour)
		f.want("the end of the schedule", "job.completed msg_1")
		if calls.Load() != 3 {
			t.Errorf("%d calls, want 3", calls.Load())
		}
		f.expectNoState("the schedule has ended")
	})
}

// A job whose credentials are refused for good is not submitted again.
func TestScheduleWithoutCredentials(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(0)
		defer f.provision("t", arcp.CodePermissionDenied)()
		f.schedule(`{"after":1}`)
		f.schedule(`{"every":"FREQ=HOURLY;COUNT=2"}`)
		time.Sleep(3 * time.Hour)
		f.want("both end", "job.accepted msg_1", "job.accepted msg_2", "job.failed msg_1 PERMISSION_DENIED", "job.completed msg_2")
		if n := f.fired("failed"); n != 3 {
			t.Errorf("%v occurrences failed, want 3", n)
		}
	})
}

// A schedule submits no job during a shutdown. The next process does.
func TestScheduleWhileDraining(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.schedules(time.Second)
		f.schedule(`{"after":60}`)
		id := f.want("the schedule is accepted", "job.accepted msg_1")[0].JobID
		f.e.Drain()
		time.Sleep(time.Minute)
		f.e.run(id).post(occurrence{}) // as the scheduler does at the moment of the shutdown
		f.want("no job is accepted")
		f.stop(time.Minute)
		f.restart(1)
		time.Sleep(time.Minute)
		f.want("the next process", "job.accepted", "job.started", "job.completed", "job.completed msg_1")
	})
}

// Occurrences that were due while the runtime was down fire once, or not if they are over an hour late.
func TestScheduleAfterDowntime(t *testing.T) {
	for _, test := range []struct {
		name, when    string
		down          time.Duration
		late, skipped float64
	}{
		{"rule, short", `{"every":"FREQ=MINUTELY;INTERVAL=10"}`, 35 * time.Minute, 1, 2},
		{"rule, long", `{"every":"FREQ=HOURLY;INTERVAL=5"}`, 7 * time.Hour, 0, 1},
		{"once, short", `{"after":60}`, 30 * time.Minute, 1, 0},
		{"once, long", `{"after":60}`, 3 * time.Hour, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.schedules(time.Second)
				f.schedule(test.when)
				time.Sleep(2 * time.Second)
				f.stop(time.Minute)
				time.Sleep(test.down)
				f.restart(1)
				time.Sleep(2 * time.Second)
				if late, skipped := f.fired("late"), f.fired("skipped_late"); late != test.late || skipped != test.skipped {
					t.Errorf("%v fired late, %v skipped, want %v and %v", late, skipped, test.late, test.skipped)
				}
			})
		})
	}
}

// A runtime that crashes at any commit around the occurrences of a schedule neither loses nor repeats
// one.
func TestScheduleCrashAnywhere(t *testing.T) {
	for _, when := range []string{`{"every":"FREQ=MINUTELY;COUNT=3"}`, `{"after":60}`} {
		for crash := 1; ; crash++ {
			done := false
			runEngine(t, nil, func(f *fixture) { done = f.crashSchedule(when, crash) })
			if t.Failed() || crash > 40 {
				t.Fatalf("%s, crash %d", when, crash)
			}
			if done {
				t.Logf("%s: a life has %d commits", when, crash-1)
				break
			}
		}
	}
}

// crashSchedule runs one schedule and crashes after a number of commits. It reports whether the schedule
// ended before.
func (f *fixture) crashSchedule(when string, crash int) (done bool) {
	f.schedules(time.Second)
	f.session("sess_1")
	f.st.crashAfter(crash)
	f.schedule(when)
	synctest.Wait()
	frames := f.frames("sess_1")
	if len(frames) == 1 && frames[0].Type == arcp.Nack {
		return false
	}
	for range 6 {
		time.Sleep(50 * time.Second)
		f.st.mu.Lock()
		crashed := f.st.fail != nil
		f.st.mu.Unlock()
		if crashed {
			f.stop(0)
			f.restart(f.st.Stat().LiveJobs)
		}
	}
	synctest.Wait()
	jobs := make(map[string]int)
	var planned store.Job
	err := f.st.Jobs(context.Background(), store.JobQuery{Principal: "alice"}, func(j store.Job) bool {
		if isScheduleRow(&j) {
			planned = j
			return true
		}
		jobs[j.IdempotencyKey]++
		if j.State != arcp.StateCompleted {
			f.Errorf("crash %d: the job of %s is %s", crash, j.IdempotencyKey, j.State)
		}
		return true
	})
	if err != nil {
		f.Fatal(err)
	}
	want := 1
	if strings.Contains(when, "COUNT") {
		want = 3
	}
	if len(jobs) != want || planned.State != arcp.StateCompleted {
		f.Errorf("crash %d: %d occurrences fired, want %d; the schedule is %s", crash, len(jobs), want, planned.State)
	}
	f.st.mu.Lock()
	defer f.st.mu.Unlock()
	return f.st.left > 0
}
