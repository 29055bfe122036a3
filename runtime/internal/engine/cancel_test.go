package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

func TestCancelCooperative(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			<-ctx.Done()
			time.Sleep(3 * time.Second) // to a clean stop
			return nil, errors.Join(j.Log("info", "last words", nil), context.Cause(ctx))
		})
		f.submit("t", "{}")
		id := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		f.cancel(id, 4*time.Second)
		f.cancel(id, 5*time.Second)
		f.want("both are accepted at once", "cancel.accepted msg_2", "cancel.accepted msg_3")
		time.Sleep(3 * time.Second)
		frames := f.want("the tool stopped in time", "log msg_1", "job.cancelled msg_1 CANCELLED")
		p, err := arcp.DecodePayload[arcp.JobCancelledPayload](&frames[1].Envelope)
		if err != nil || p.Reason != "enough" {
			t.Errorf("reason %q, want the canceller's", p.Reason)
		}
		f.cancel(id, 0)
		f.want("it has ended", "cancel.refused msg_4 already_terminal")
		f.expectNoState("")
	})
}

// A tool that ignores its cancellation loses its job at the deadline and its slot five seconds
// later. Its later output is dropped.
func TestCancelAbandonsTool(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		emitted := make(chan error, 2)
		f.tool("t", oneAtATime, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Hour)
			emitted <- j.Log("info", "too late", nil)
			return arcp.Raw("1"), nil
		})
		f.submit("t", "{}")
		id := f.want("the first job runs", "job.accepted", "job.started")[0].JobID
		f.submit("t", "{}")
		f.cancel(id, 100*time.Millisecond)
		f.want("the second waits", "cancel.accepted msg_3", "job.accepted msg_2")
		time.Sleep(100*time.Millisecond - 1)
		f.want("not before the deadline")
		time.Sleep(time.Nanosecond)
		f.want("the hard stop", "job.cancelled msg_1 ABORTED")
		time.Sleep(abandonAfter - 1)
		f.want("the tool still has its slot")
		if n := f.gauge("arcp_tools_abandoned_total"); n != 0 {
			t.Errorf("%v tools abandoned too early", n)
		}
		time.Sleep(time.Nanosecond)
		f.want("then it is left behind", "job.started msg_2")
		if n := f.gauge("arcp_tools_abandoned_total"); n != 1 {
			t.Errorf("%v tools abandoned, want 1", n)
		}
		time.Sleep(time.Hour)
		if late, inTime := <-emitted, <-emitted; late == nil || inTime != nil {
			t.Errorf("events taken with %v and %v, want only the one after the end of its job refused", late, inTime)
		}
		f.want("nothing of what came late", "log msg_2", "job.completed msg_2")
		f.expectNoState("")
	})
}

// The tool's own time limit does not cut a cancel short: the deadline that was
// asked for counts.
func TestToolLimitDuringCancel(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { c.Limits.Timeout = 2 * time.Second }, sleeper(time.Hour))
		f.submit("t", "{}")
		id := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		f.cancel(id, 10*time.Second)
		f.want("the cancel is accepted", "cancel.accepted")
		time.Sleep(10*time.Second - 1)
		f.want("the tool has time until the deadline")
		time.Sleep(time.Nanosecond)
		f.want("and is stopped by force then", "job.cancelled msg_1 ABORTED")
		time.Sleep(2 * time.Hour)
	})
}

func TestCancelRefused(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, wait)
		q := f.request("sess_1", "t", "{}")
		q.payload.StrictCancel = true
		f.send(q)
		id := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		cancel := func(principal string, session arcp.SessionID, job arcp.JobID, why, want string) {
			t.Helper()
			f.e.Cancel(Requester{Request: "msg_c", Principal: principal, Session: session, Answers: f.session("sess_1")},
				&arcp.CancelPayload{TargetID: string(job)})
			f.want(why, "cancel.refused msg_c "+want)
		}
		cancel("alice", "sess_1", "job_none", "there is no such job", RefusedUnknown)
		cancel("bob", "sess_1", id, "a foreign job is as good as none", RefusedUnknown)
		cancel("alice", "sess_2", id, "strict_cancel is for the submitting session", RefusedDenied)
		f.e.Cancel(Requester{Request: "msg_c", Principal: "alice", Session: "sess_1", Answers: f.session("sess_1")},
			&arcp.CancelPayload{TargetID: string(id)})
		f.want("its own session may", "cancel.accepted msg_c", "job.cancelled msg_1")
		cancel("bob", "sess_1", id, "also after its end", RefusedUnknown)
		cancel("alice", "sess_1", id, "but its own principal learns why", RefusedTerminal)
	})
}

// A cancel while the claim is being committed: the job is accepted and then
// cancelled, and its tool never runs.
func TestCancelWhileClaimed(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", oneAtATime, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			t.Error("the tool of a cancelled job ran")
			return nil, nil
		})
		f.session("sess_1")
		release := f.st.hold()
		f.submit("t", "{}")
		f.e.SessionJobs().CancelAll("sess_1", "closed")
		synctest.Wait()
		release()
		f.want("the job ends without a run", "job.accepted msg_1", "job.cancelled msg_1 CANCELLED")
		f.expectNoState("")
	})
}

// A cancel while a claim is committed that then fails: nothing is counted twice.
func TestCancelOfAClaimThatFails(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobs = 10 }, func(f *fixture) {
		f.tool("t", oneAtATime, echo)
		for range 100 {
			q := f.request("sess_1", "t", "{}")
			q.Session = "sess_gone"
			release := f.st.hold()
			f.send(q)
			if f.n%2 == 0 {
				f.e.SessionJobs().CancelAll("sess_gone", "closed")
			}
			go f.e.SessionJobs().CancelAll("sess_gone", "closed")
			release()
			f.want("the claim is refused", "job.failed "+string(q.env.ID)+" UNAVAILABLE")
			f.expectNoState("a job that was refused")
		}
	})
}

// on_disconnect: of a session's jobs only those that asked for it end with its
// connection.
func TestCancelJobsOfSession(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, wait)
		stays := f.submit("t", "{}")
		q := f.request("sess_1", "t", "{}")
		q.payload.OnDisconnect = "cancel"
		synctest.Wait()
		goes := f.send(q)
		f.want("both jobs run", "job.accepted", "job.started", "job.accepted", "job.started")
		f.e.SessionJobs().CancelAll("sess_2", "another's end")
		f.want("other sessions' ends are nothing to them")
		f.e.SessionJobs().CancelOnDisconnect("sess_1", "disconnected")
		f.want("only this job asked for it", "job.cancelled "+string(goes))
		if !f.e.SessionJobs().Has("sess_1") {
			t.Error("the session has a job")
		}
		f.e.SessionJobs().CancelAll("sess_1", "closed")
		f.want("the end of the session ends its jobs", "job.cancelled "+string(stays))
		if f.e.SessionJobs().Has("sess_1") {
			t.Error("the session has no job any more")
		}
	})
}

// When the store breaks, tools are stopped, cancels answered, and nothing hangs.
func TestBrokenStore(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var stopped atomic.Int32
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for j.Log("info", "tick", nil) == nil {
				time.Sleep(time.Second)
			}
			<-ctx.Done()
			stopped.Add(1)
			return nil, nil
		})
		f.submit("t", "{}")
		f.submit("t", "{}")
		id := f.frames("sess_1")[0].JobID
		f.st.breakWith(errors.New("boom"))
		time.Sleep(2 * time.Second)
		f.want("nothing is durable, nothing is sent")
		if stopped.Load() != 2 {
			t.Errorf("%d tools have stopped, want both", stopped.Load())
		}
		f.submit("t", "{}")
		f.want("submits are refused", "job.failed msg_3 UNAVAILABLE")
		f.cancel(id, 0)
		f.want("cancels are answered", "cancel.refused msg_4")
		f.expectNoState("")
	})
}

// A write that the store refuses to one job is no harm to the others.
func TestFencedJob(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		tick := make(chan struct{})
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			<-tick
			return nil, j.Log("info", "tick", nil)
		})
		f.submit("t", "{}")
		id := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		if _, err := f.cfg.Log.Commit(f.Context(), store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, NewAttempt: true})); err != nil {
			f.Fatal(err)
		}
		f.submit("t", "{}")
		f.want("the second job runs", "job.accepted", "job.started")
		close(tick)
		f.want("only the job that was taken over is silent", "log msg_2", "job.completed msg_2")
		f.expectNoState("")
	})
}
