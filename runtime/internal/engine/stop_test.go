package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Stop waits for running, queued and unclaimed jobs, and new submits are refused.
func TestStopWaits(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", oneAtATime, sleeper(time.Second))
		r.session("sess_1")
		release := r.st.hold()
		r.submit("t", "{}")
		r.submit("t", "{}")
		var stopped atomic.Bool
		go func() {
			r.e.Stop(context.Background())
			stopped.Store(true)
		}()
		synctest.Wait()
		r.submit("t", "{}")
		synctest.Wait()
		if stopped.Load() {
			r.Fatal("Stop returned while two jobs were being accepted")
		}
		release()
		time.Sleep(2*time.Second - 1)
		synctest.Wait()
		if stopped.Load() {
			r.Fatal("Stop returned while the second job ran")
		}
		time.Sleep(time.Nanosecond)
		r.want("both have ended, the third was refused", "job.accepted msg_1", "job.accepted msg_2", "job.failed msg_3 UNAVAILABLE",
			"job.started msg_1", "job.completed msg_1", "job.started msg_2", "job.completed msg_2")
		if !stopped.Load() {
			t.Error("Stop waits for nothing")
		}
		r.stopped = true
		r.cfg.Log.Close()
	})
}

// When its context ends, Stop stops the tools and leaves all jobs to the next Recover. Recover
// ends the jobs that ran, once, and starts the queued and unclaimed ones.
func TestStopAndRecover(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		var cause error
		r.tool("obeys", nil, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil, cause
		})
		r.tool("waits", oneAtATime, wait)
		r.tool("ignores", nil, sleeper(time.Hour))
		r.submit("obeys", "{}")
		r.submit("ignores", "{}")
		direct := r.request("sess_1", "waits", "{}")
		direct.payload.Direct = true
		r.send(direct)
		r.submit("waits", "{}")
		r.submit("waits", "{}")
		r.frames("sess_1")
		release := r.st.hold()
		pending := r.submit("waits", "{}")
		go func() { time.Sleep(time.Minute); release() }()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r.e.Stop(ctx)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("Stop took %v, want its 10 s", took)
		}
		time.Sleep(time.Minute)
		r.want("nothing but the accept that was under way", "job.accepted "+string(pending))
		if !errors.Is(cause, ErrStopping) {
			t.Errorf("the tool was stopped with %v, want %v", cause, ErrStopping)
		}
		r.cfg.Log.Close()

		cursor := r.session("sess_1")
		r.boot()
		r.recovered(6)
		r.reattach("sess_1", cursor.Position())
		frames := r.want("those that ran have ended, the first of the queue runs", "job.failed msg_1 ABORTED", "job.failed msg_2 ABORTED",
			"tool.error msg_3 ABORTED", "job.started msg_4")
		for _, f := range frames[:3] {
			if e, err := arcp.DecodePayload[arcp.Error](&f.Envelope); err != nil || !e.Retryable {
				t.Errorf("%v: want an end that may be retried", f)
			}
		}
		r.e.SessionJobs().CancelAll("sess_1", "enough")
		r.want("all have ended", "job.cancelled", "job.cancelled", "job.cancelled")
		r.expectNoState("")
		time.Sleep(time.Hour)
	})
}

// recovered recovers and compares the number of jobs that were found.
func (r *fixture) recovered(want int) {
	r.Helper()
	if n, err := r.e.Recover(context.Background()); err != nil || n != want {
		r.Fatalf("Recover = %d, %v; want %d", n, err, want)
	}
}

// reattach gives a session a cursor on the present log.
func (r *fixture) reattach(id arcp.SessionID, after uint64) {
	c, errs := r.attach(id, after)
	if errs != nil {
		r.Fatal(errs)
	}
	r.cursors[id] = c
}

func TestRecoverFails(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", nil, wait)
		r.submit("t", "{}")
		r.frames("sess_1")
		r.stop(0)
		r.boot()
		r.st.breakWith(errors.New("boom"))
		if _, err := r.e.Recover(context.Background()); err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("Recover = %v, want the store's error", err)
		}
	})
}

// Running jobs send heartbeats, which are neither numbered nor logged, and stop
// with their job.
func TestHeartbeats(t *testing.T) {
	runEngine(t, func(c *Config) { c.Heartbeat = 30 * time.Second }, func(r *fixture) {
		r.tool("t", nil, sleeper(100*time.Second))
		r.submit("t", "{}")
		time.Sleep(95 * time.Second)
		frames := r.want("one an interval", "job.accepted", "job.started", "job.heartbeat", "job.heartbeat", "job.heartbeat")
		for i, f := range frames[2:] {
			p, err := arcp.DecodePayload[arcp.JobHeartbeatPayload](&f.Envelope)
			if err != nil || f.EventSeq != 0 || p.Sequence != uint64(i+1) || p.State != "running" || p.DeadlineMS != 60_000 {
				t.Errorf("heartbeat %d: number %d, %+v, %v", i, f.EventSeq, p, err)
			}
		}
		time.Sleep(time.Hour)
		if f := r.want("none after the end", "job.completed")[0]; f.EventSeq != 3 {
			t.Errorf("the end has the number %d, want 3: heartbeats have none", f.EventSeq)
		}
	})
}

// A tool with manual heartbeats that falls silent fails its job, or blocks it until the next
// heartbeat or the end of the window.
func TestManualHeartbeats(t *testing.T) {
	const interval = 10 * time.Second
	manual := func(beats int) tool.Func {
		return func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			j.ManualHeartbeat()
			for range beats {
				time.Sleep(interval)
				j.Heartbeat()
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
	}
	runEngine(t, func(c *Config) { c.Heartbeat = interval }, func(r *fixture) {
		r.tool("t", nil, manual(2))
		r.submit("t", "{}")
		time.Sleep(4*interval - 1)
		r.want("two beats, then silence", "job.accepted", "job.started", "job.heartbeat", "job.heartbeat")
		time.Sleep(time.Nanosecond)
		r.want("two are missing", "job.failed msg_1 HEARTBEAT_LOST")
		r.expectNoState("")
	})
	runEngine(t, func(c *Config) { c.Heartbeat, c.Block, c.ResumeWindow = interval, true, time.Minute }, func(r *fixture) {
		r.tool("t", nil, manual(0))
		r.submit("t", "{}")
		time.Sleep(2 * interval)
		frames := r.want("it says that it is blocked", "job.accepted", "job.started", "job.heartbeat")
		if row := r.row(frames[0].JobID); row.State != arcp.StateBlocked {
			t.Errorf("row %s, want blocked", row.State)
		}
		time.Sleep(time.Minute)
		got := lines(r.frames("sess_1"))
		if got[len(got)-1] != "job.failed msg_1 HEARTBEAT_LOST" {
			t.Errorf("sent %v, want the end after the window", got)
		}
		r.expectNoState("")
	})
}

// A tool that sends heartbeats in a loop costs no memory, and few of them are emitted.
func TestHeartbeatFlood(t *testing.T) {
	runEngine(t, func(c *Config) { c.Heartbeat = 10 * time.Second }, func(r *fixture) {
		beaten := make(chan struct{})
		r.tool("t", early, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			j.ManualHeartbeat()
			for range 100_000 {
				j.Heartbeat()
			}
			close(beaten)
			time.Sleep(time.Second)
			return nil, nil
		})
		r.session("sess_1")
		release := r.st.hold()
		r.submit("t", "{}")
		r.st.gate <- struct{}{} // the claim; the start is not durable
		<-beaten
		r.e.mu.Lock()
		for _, run := range r.e.jobs.runs {
			run.mu.Lock()
			if n := len(run.commands.list) + len(run.current.events.list); n > 2 {
				t.Errorf("%d things wait for the supervisor after a flood of heartbeats", n)
			}
			run.mu.Unlock()
		}
		r.e.mu.Unlock()
		release()
		time.Sleep(time.Second)
		if got := r.frames("sess_1"); len(got) > 6 {
			t.Errorf("%v: want but a few heartbeats", lines(got))
		}
	})
}

// recordedCommand counts its applications and rejections.
type recordedCommand struct{ applied, rejections int }

func (d *recordedCommand) apply(*supervisor, time.Time) { d.applied++ }
func (d *recordedCommand) committed(*jobWriter, error)  {}
func (d *recordedCommand) rejected(*Engine, bool)       { d.rejections++ }

// A command beside the stop of a supervisor, or before its start, is rejected: a tool that asks a person
// waits for that.
func TestCommandsOfAStoppedJob(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", nil, wait)
		r.session("sess_1")
		r.submit("t", "{}")
		synctest.Wait()
		var begun *run
		r.e.eachRun(func(one *run) { begun = one })
		just := new(recordedCommand)
		begun.mu.Lock()
		begun.commands.list = append(begun.commands.list, just)
		begun.lifecycle.apply(onStop)
		begun.mu.Unlock()
		begun.wake()
		synctest.Wait()
		if just.rejections != 1 || just.applied != 0 {
			t.Errorf("a command beside the stop was applied %d times and rejected %d times; want 0 and 1", just.applied, just.rejections)
		}

		early := new(recordedCommand)
		waits := newRun(r.e, begun.tool)
		waits.commands.list = append(waits.commands.list, early)
		waits.discard()
		if early.rejections != 1 {
			t.Error("a command of a job whose claim failed is not rejected")
		}
	})
}

// A tool calls another one while Stop stops the jobs: Stop returns, no child is forgotten, and the
// refusal is not an outcome of the tool.
func TestCallsWhileStopping(t *testing.T) {
	for range 5 {
		runEngine(t, nil, func(r *fixture) {
			r.session("sess_1")
			var e *Engine
			r.tool("parent", rerun, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				<-e.shutdown.quitc
				return j.Call(ctx, tool.Call{Tool: "child", Arguments: args})
			})
			r.tool("child", rerun, wait)
			e = r.e
			const parents = 1000
			for i := range parents {
				r.parent("parent", strconv.Itoa(i))
			}
			synctest.Wait()
			r.frames("sess_1")
			r.stop(0)
			for _, f := range r.frames("sess_1") {
				if f.Type.Terminal() {
					t.Errorf("%s: %s, want no outcome", f.Type, f.Payload)
				}
			}
			if n := r.st.Stat().LiveJobs; n < parents {
				t.Errorf("%d live jobs, want at least %d", n, parents)
			}
		})
	}
}
