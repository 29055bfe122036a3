package engine

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Stop waits for running, queued and unclaimed jobs, and new submits are refused.
func TestStopWaits(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", oneAtATime, sleeper(time.Second))
		f.session("sess_1")
		release := f.st.hold()
		f.submit("t", "{}")
		f.submit("t", "{}")
		var stopped atomic.Bool
		go func() {
			f.stopEngine(context.Background())
			stopped.Store(true)
		}()
		synctest.Wait()
		f.submit("t", "{}")
		synctest.Wait()
		if stopped.Load() {
			f.Fatal("Stop returned while two jobs were being accepted")
		}
		release()
		time.Sleep(2*time.Second - 1)
		synctest.Wait()
		if stopped.Load() {
			f.Fatal("Stop returned while the second job ran")
		}
		time.Sleep(time.Nanosecond)
		f.want("both have ended, the third was refused", "job.accepted msg_1", "job.accepted msg_2", "job.failed msg_3 UNAVAILABLE",
			"job.started msg_1", "job.completed msg_1", "job.started msg_2", "job.completed msg_2")
		if !stopped.Load() {
			t.Error("Stop has not returned after the last job")
		}
		f.cfg.Log.Close()
	})
}

// When its context ends, Stop stops the tools and leaves all jobs to the next Recover. Recover
// ends the jobs that ran, once, and starts the queued and unclaimed ones.
func TestStopAndRecover(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var cause error
		f.tool("obeys", nil, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil, cause
		})
		f.tool("waits", oneAtATime, wait)
		f.tool("ignores", nil, sleeper(time.Hour))
		f.submit("obeys", "{}")
		f.submit("ignores", "{}")
		direct := f.request("sess_1", "waits", "{}")
		direct.payload.Direct = true
		f.send(direct)
		f.submit("waits", "{}")
		f.submit("waits", "{}")
		time.Sleep(waitGrace) // the events that say why they wait are written
		f.frames("sess_1")
		release := f.st.hold()
		pending := f.submit("waits", "{}")
		go func() { time.Sleep(time.Minute); release() }()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		f.stopEngine(ctx)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("Stop took %v, want its 10 s", took)
		}
		time.Sleep(time.Minute)
		f.want("nothing but the accept that was under way", "job.accepted "+string(pending))
		if !errors.Is(cause, ErrStopping) {
			t.Errorf("the tool was stopped with %v, want %v", cause, ErrStopping)
		}
		f.cfg.Log.Close()

		cursor := f.session("sess_1")
		f.boot()
		f.recovered(6)
		f.reattach("sess_1", cursor.Position())
		frames := f.want("those that ran have ended, the first of the queue runs", "job.failed msg_1 ABORTED", "job.failed msg_2 ABORTED",
			"tool.error msg_3 ABORTED", "job.started msg_4")
		for _, fr := range frames[:3] {
			if e, err := arcp.DecodePayload[arcp.Error](&fr.Envelope); err != nil || !e.Retryable {
				t.Errorf("%v: want an end that may be retried", fr)
			}
		}
		f.e.SessionJobs().CancelAll("sess_1", "enough")
		f.want("all have ended", "job.cancelled", "job.cancelled", "job.cancelled")
		f.expectNoState("")
		time.Sleep(time.Hour)
	})
}

// recordedCommand counts its applications and rejections.
type recordedCommand struct{ applied, rejections int }

func (rc *recordedCommand) apply(*supervisor, time.Time) { rc.applied++ }
func (rc *recordedCommand) committed(*jobWriter, error)  {}
func (rc *recordedCommand) rejected(*Engine, bool)       { rc.rejections++ }

// A command beside the stop of a supervisor, or before its start, is rejected: a tool that asks a person
// waits for that.
func TestCommandsOfAStoppedJob(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, wait)
		f.session("sess_1")
		f.submit("t", "{}")
		synctest.Wait()
		var begun *run
		f.e.eachRun(func(one *run) { begun = one })
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
		waits := newRun(f.e, begun.tool)
		waits.commands.list = append(waits.commands.list, early)
		waits.discard()
		if early.rejections != 1 {
			t.Errorf("a command of a job without a claim was rejected %d times, want once", early.rejections)
		}
	})
}

// A tool calls another one while Stop stops the jobs: Stop returns, no child is forgotten, and the
// refusal is not an outcome of the tool.
func TestCallsWhileStopping(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	for range 5 {
		runEngine(t, nil, func(f *fixture) {
			f.session("sess_1")
			var e *Engine
			f.tool("parent", rerun, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				<-e.shutdown.quitc
				return j.Call(ctx, tool.Call{Tool: "child", Arguments: args})
			})
			f.tool("child", rerun, wait)
			e = f.e
			const parents = 1000
			for i := range parents {
				f.parent("parent", strconv.Itoa(i))
			}
			synctest.Wait()
			f.frames("sess_1")
			f.stop(0)
			for _, fr := range f.frames("sess_1") {
				if fr.Type.Terminal() {
					t.Errorf("%s: %s, want no outcome", fr.Type, fr.Payload)
				}
			}
			if n := f.st.Stat().LiveJobs; n < parents {
				t.Errorf("%d live jobs, want at least %d", n, parents)
			}
		})
	}
}
