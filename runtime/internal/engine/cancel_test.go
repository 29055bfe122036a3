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
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			<-ctx.Done()
			time.Sleep(3 * time.Second) // to a clean stop
			return nil, errors.Join(j.Log("info", "last words", nil), context.Cause(ctx))
		})
		r.submit("t", "{}")
		id := r.want("", "job.accepted", "job.started")[0].JobID
		r.cancel(id, 4*time.Second)
		r.cancel(id, 5*time.Second)
		r.want("both are accepted at once", "cancel.accepted msg_2", "cancel.accepted msg_3")
		time.Sleep(3 * time.Second)
		frames := r.want("the tool stopped in time", "log msg_1", "job.cancelled msg_1 CANCELLED")
		p, err := arcp.DecodePayload[arcp.JobCancelledPayload](&frames[1].Envelope)
		if err != nil || p.Reason != "enough" {
			t.Errorf("reason %q, want the canceller's", p.Reason)
		}
		r.cancel(id, 0)
		r.want("it has ended", "cancel.refused msg_4 already_terminal")
		r.expectNoState("")
	})
}

// A tool that ignores its cancellation loses its job at the deadline and its slot five seconds
// later. Its later output is dropped.
func TestCancelAbandonsTool(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		emitted := make(chan error, 2)
		r.tool("t", oneAtATime, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Hour)
			emitted <- j.Log("info", "too late", nil)
			return arcp.Raw("1"), nil
		})
		r.submit("t", "{}")
		id := r.want("", "job.accepted", "job.started")[0].JobID
		r.submit("t", "{}")
		r.cancel(id, 100*time.Millisecond)
		r.want("the second waits", "cancel.accepted msg_3", "job.accepted msg_2")
		time.Sleep(100*time.Millisecond - 1)
		r.want("not before the deadline")
		time.Sleep(time.Nanosecond)
		r.want("the hard stop", "job.cancelled msg_1 ABORTED")
		time.Sleep(abandonAfter - 1)
		r.want("the tool still has its slot")
		if n := r.gauge("arcp_tools_abandoned_total"); n != 0 {
			t.Errorf("%v tools abandoned too early", n)
		}
		time.Sleep(time.Nanosecond)
		r.want("then it is left behind", "job.started msg_2")
		if n := r.gauge("arcp_tools_abandoned_total"); n != 1 {
			t.Errorf("%v tools abandoned, want 1", n)
		}
		time.Sleep(time.Hour)
		if late, inTime := <-emitted, <-emitted; late == nil || inTime != nil {
			t.Errorf("events taken with %v and %v, want only the one after the end of its job refused", late, inTime)
		}
		r.want("nothing of what came late", "log msg_2", "job.completed msg_2")
		r.expectNoState("")
	})
}

// The tool's own time limit does not cut a cancel short: the deadline that was
// asked for counts.
func TestToolLimitDuringCancel(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", func(c *tool.Capability) { c.Limits.Timeout = 2 * time.Second }, sleeper(time.Hour))
		r.submit("t", "{}")
		id := r.want("", "job.accepted", "job.started")[0].JobID
		r.cancel(id, 10*time.Second)
		r.want("", "cancel.accepted")
		time.Sleep(10*time.Second - 1)
		r.want("the tool has time until the deadline")
		time.Sleep(time.Nanosecond)
		r.want("and is stopped by force then", "job.cancelled msg_1 ABORTED")
		time.Sleep(2 * time.Hour)
	})
}

func TestCancelRefused(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", nil, wait)
		q := r.request("sess_1", "t", "{}")
		q.payload.StrictCancel = true
		r.send(q)
		id := r.want("", "job.accepted", "job.started")[0].JobID
		cancel := func(principal string, session arcp.SessionID, job arcp.JobID, why, want string) {
			t.Helper()
			r.e.Cancel(Requester{Request: "msg_c", Principal: principal, Session: session, Answers: r.session("sess_1")},
				&arcp.CancelPayload{TargetID: string(job)})
			r.want(why, "cancel.refused msg_c "+want)
		}
		cancel("alice", "sess_1", "job_none", "there is no such job", RefusedUnknown)
		cancel("bob", "sess_1", id, "a foreign job is as good as none", RefusedUnknown)
		cancel("alice", "sess_2", id, "strict_cancel is for the submitting session", RefusedDenied)
		r.e.Cancel(Requester{Request: "msg_c", Principal: "alice", Session: "sess_1", Answers: r.session("sess_1")},
			&arcp.CancelPayload{TargetID: string(id)})
		r.want("its own session may", "cancel.accepted msg_c", "job.cancelled msg_1")
		cancel("bob", "sess_1", id, "also after its end", RefusedUnknown)
		cancel("alice", "sess_1", id, "but its own principal learns why", RefusedTerminal)
	})
}

// A cancel while the claim is being committed: the job is accepted and then
// cancelled, and its tool never runs.
func TestCancelWhileClaimed(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", oneAtATime, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			t.Error("the tool of a cancelled job ran")
			return nil, nil
		})
		r.session("sess_1")
		release := r.st.hold()
		r.submit("t", "{}")
		r.e.SessionJobs().CancelAll("sess_1", "closed")
		synctest.Wait()
		release()
		r.want("", "job.accepted msg_1", "job.cancelled msg_1 CANCELLED")
		r.expectNoState("")
	})
}

// A cancel while a claim is committed that then fails: nothing is counted twice.
func TestCancelOfAClaimThatFails(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobs = 10 }, func(r *fixture) {
		r.tool("t", oneAtATime, echo)
		for range 100 {
			q := r.request("sess_1", "t", "{}")
			q.Session = "sess_gone"
			release := r.st.hold()
			r.send(q)
			if r.n%2 == 0 {
				r.e.SessionJobs().CancelAll("sess_gone", "closed")
			}
			go r.e.SessionJobs().CancelAll("sess_gone", "closed")
			release()
			r.want("", "job.failed "+string(q.env.ID)+" UNAVAILABLE")
			r.expectNoState("a job that was refused")
		}
	})
}

// on_disconnect: of a session's jobs only those that asked for it end with its
// connection.
func TestCancelJobsOfSession(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", nil, wait)
		stays := r.submit("t", "{}")
		q := r.request("sess_1", "t", "{}")
		q.payload.OnDisconnect = "cancel"
		synctest.Wait()
		goes := r.send(q)
		r.want("", "job.accepted", "job.started", "job.accepted", "job.started")
		r.e.SessionJobs().CancelAll("sess_2", "another's end")
		r.want("other sessions' ends are nothing to them")
		r.e.SessionJobs().CancelOnDisconnect("sess_1", "disconnected")
		r.want("", "job.cancelled "+string(goes))
		if !r.e.SessionJobs().Has("sess_1") {
			t.Error("the session has a job")
		}
		r.e.SessionJobs().CancelAll("sess_1", "closed")
		r.want("", "job.cancelled "+string(stays))
		if r.e.SessionJobs().Has("sess_1") {
			t.Error("the session has no job any more")
		}
	})
}

// When the store breaks, tools are stopped, cancels answered, and nothing hangs.
func TestBrokenStore(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		var stopped atomic.Int32
		r.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for j.Log("info", "tick", nil) == nil {
				time.Sleep(time.Second)
			}
			<-ctx.Done()
			stopped.Add(1)
			return nil, nil
		})
		r.submit("t", "{}")
		r.submit("t", "{}")
		id := r.frames("sess_1")[0].JobID
		r.st.breakWith(errors.New("boom"))
		time.Sleep(2 * time.Second)
		r.want("nothing is durable, nothing is sent")
		if stopped.Load() != 2 {
			t.Errorf("%d tools have stopped, want both", stopped.Load())
		}
		r.submit("t", "{}")
		r.want("submits are refused", "job.failed msg_3 UNAVAILABLE")
		r.cancel(id, 0)
		r.want("cancels are answered", "cancel.refused msg_4")
		r.expectNoState("")
	})
}

// A write that the store refuses to one job is no harm to the others.
func TestFencedJob(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		tick := make(chan struct{})
		r.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			<-tick
			return nil, j.Log("info", "tick", nil)
		})
		r.submit("t", "{}")
		id := r.want("", "job.accepted", "job.started")[0].JobID
		if _, err := r.cfg.Log.Commit(r.Context(), store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, NewAttempt: true})); err != nil {
			r.Fatal(err)
		}
		r.submit("t", "{}")
		r.want("", "job.accepted", "job.started")
		close(tick)
		r.want("only the job that was taken over is silent", "log msg_2", "job.completed msg_2")
		r.expectNoState("")
	})
}
