package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/tool"
)

// workers are the connected workers of a tool: their places, and whether they have a connection.
type workers struct {
	slots     catalog.Slots
	connected atomic.Bool
}

// configure adds the workers to a configuration.
func (w *workers) configure(c *Config) {
	c.Slots, c.Heartbeat = &w.slots, 30*time.Second
	c.Connected = func(string, string) bool { return w.connected.Load() }
}

// set changes the workers.
func (w *workers) set(f *fixture, ref string, slots int, connected bool) {
	w.connected.Store(connected)
	w.slots.Set(ref, slots)
	f.e.SlotsChanged(ref)
}

// onWorkers makes a tool one of workers.
func onWorkers(c *tool.Capability) { c.Source = tool.SourceWorker }

// waiting returns why a job waits, as jobs.get shows it; empty: it does not wait.
func (f *fixture) waiting(id arcp.JobID) string {
	synctest.Wait()
	if w := WaitingOf(f.e, id); w != nil {
		return w.Reason
	}
	return ""
}

// wantWaiting compares the reasons in the events of sess_1 that say why its jobs wait.
func (f *fixture) wantWaiting(why string, want ...string) (list []arcp.JobWaiting) {
	f.Helper()
	var got []string
	for _, fr := range f.frames("sess_1") {
		switch {
		case fr.Type == arcp.JobHeartbeat:
			continue
		case !isWaiting(&fr.Envelope):
			got = append(got, fr.String())
			continue
		}
		p, _ := arcp.DecodePayload[arcp.EventEmitPayload](&fr.Envelope)
		var w arcp.JobWaiting
		if err := arcp.Unmarshal(p.Data, &w); err != nil || w.Message == "" || w.Since.IsZero() {
			f.Errorf("%s: the event has %s: %v", why, p.Data, err)
		}
		list, got = append(list, w), append(got, w.Reason)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("%s: the session is sent %q, want %q", why, got, want)
	}
	return list
}

// A job that waits for a worker says so once, and again when the reason is another one.
func TestWaitForWorker(t *testing.T) {
	var w workers
	runEngine(t, w.configure, func(f *fixture) {
		f.showWaits = true
		f.tool("py", onWorkers, sleeper(time.Hour))
		begin := time.Now()
		f.submit("py", "{}")
		id := f.want("it is accepted", "job.accepted")[0].JobID
		if got := f.waiting(id); got != arcp.WaitWorker {
			t.Errorf("the job waits for %q, want %q at once", got, arcp.WaitWorker)
		}
		time.Sleep(waitGrace - 1)
		f.wantWaiting("the wait is too short for an event")
		time.Sleep(time.Nanosecond)
		event := f.wantWaiting("the event", arcp.WaitWorker)[0]
		if !event.Since.Equal(begin) || !strings.Contains(event.Message, "py@1.0.0") {
			t.Errorf("the event is %+v, want the begin of the wait %v, and the tool", event, begin)
		}
		time.Sleep(24 * time.Hour)
		f.wantWaiting("nothing changes")
		w.set(f, "py@1.0.0", 1, true)
		f.wantWaiting("a worker connects", "job.started msg_1")
		if got := f.waiting(id); got != "" {
			t.Errorf("the running job waits for %q", got)
		}

		f.submit("py", "{}")
		f.want("all workers are busy", "job.accepted")
		time.Sleep(waitGrace)
		busy := f.wantWaiting("the second job waits for a place", arcp.WaitWorkerSlot)[0]
		if !strings.Contains(busy.Message, "1 of 1") {
			t.Errorf("the message %q does not say how many jobs run", busy.Message)
		}
		w.set(f, "py@1.0.0", 1, false) // its only job keeps the place
		time.Sleep(time.Minute)
		lost := f.wantWaiting("the busy worker has disconnected", arcp.WaitWorker)[0]
		if !lost.Since.After(busy.Since) {
			t.Errorf("the wait without a worker began at %v, want after %v", lost.Since, busy.Since)
		}
		if got := CountWaiting(f.e); got[arcp.WaitWorker] != 1 || len(got) != 1 {
			t.Errorf("the jobs that wait are %v, want one without a worker", got)
		}
	})
}

// A job that waits for a slot of its tool for a short time writes nothing.
func TestShortWaitWritesNothing(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.showWaits = true
		f.tool("t", oneAtATime, sleeper(waitGrace-1))
		f.submitAtOnce(func() { f.submit("t", "{}"); f.submit("t", "{}") })
		time.Sleep(2 * waitGrace)
		f.want("no other event", "job.accepted msg_1", "job.accepted msg_2", "job.started msg_1", "job.completed msg_1", "job.started msg_2", "job.completed msg_2")
	})
}

// A wait for a worker that is not connected is one line of the log.
func TestWaitForWorkerIsLogged(t *testing.T) {
	var w workers
	var log bytes.Buffer
	runEngine(t, func(c *Config) {
		w.configure(c)
		c.Logger = zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.InfoLevel)
	}, func(f *fixture) {
		f.tool("py", onWorkers, sleeper(time.Hour))
		w.set(f, "py@1.0.0", 1, true)
		f.submit("py", "{}")
		f.submit("py", "{}")
		time.Sleep(time.Minute)
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("a wait for a busy worker logs %s", &log)
		}
		w.set(f, "py@1.0.0", 1, false)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := strings.Count(log.String(), `"message":"job waits"`); n != 1 || !strings.Contains(log.String(), `"tool":"py@1.0.0","trace_id"`) ||
			!strings.Contains(log.String(), `"reason":"worker","detail":"no connected worker executes py@1.0.0`) {
			t.Errorf("the wait for a worker logs\n%s\nwant one line with the tool and the reason", &log)
		}
	})
}

// The events of a job whose workers connect and disconnect all the time get rarer.
func TestWaitEventsAreLimited(t *testing.T) {
	var w workers
	runEngine(t, w.configure, func(f *fixture) {
		f.showWaits = true
		f.tool("py", onWorkers, wait)
		w.set(f, "py@1.0.0", 1, true)
		f.submit("py", "{}")
		f.submit("py", "{}")
		const hours = 10
		for range hours * 3600 / 4 {
			time.Sleep(2 * time.Second)
			w.set(f, "py@1.0.0", 1, false)
			time.Sleep(2 * time.Second)
			w.set(f, "py@1.0.0", 1, true)
		}
		n := 0
		for _, fr := range f.frames("sess_1") {
			if isWaiting(&fr.Envelope) {
				n++
			}
		}
		if most := 12 + hours*int(time.Hour/maxEventGap); n < 5 || n > most {
			t.Errorf("%d events in %d hours, want at most %d", n, hours, most)
		}
	})
}

// A job without a connected worker fails after the start timeout of its tool, or of the runtime.
func TestStartTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		own, byDefault, want time.Duration // of want, 0 is never
	}{
		"shorter than the grace": {own: time.Millisecond, want: time.Millisecond},
		"of the tool":            {own: time.Minute, byDefault: time.Hour, want: time.Minute},
		"of the runtime":         {byDefault: time.Hour, want: time.Hour},
		"the tool has none":      {own: -1, byDefault: time.Hour},
		"there is none":          {},
	} {
		t.Run(name, func(t *testing.T) {
			var w workers
			runEngine(t, func(cfg *Config) { w.configure(cfg); cfg.StartTimeout = c.byDefault }, func(f *fixture) {
				f.tool("py", func(cp *tool.Capability) { onWorkers(cp); cp.Limits.StartTimeout = c.own }, echo)
				f.submit("py", "{}")
				f.want("it waits", "job.accepted")
				if c.want == 0 {
					time.Sleep(1000 * time.Hour)
					f.want("it waits for ever")
					return
				}
				time.Sleep(c.want - 1)
				f.want("the time is not over")
				time.Sleep(time.Nanosecond)
				frames := f.want("the time is over", "job.failed msg_1 UNAVAILABLE")
				e, err := arcp.DecodePayload[arcp.Error](&frames[0].Envelope)
				if err != nil || !e.Retryable || !strings.Contains(e.Message, "py@1.0.0") || !strings.Contains(string(e.Details), "start_timeout_ms") {
					t.Errorf("the job fails with %v %s: %v", e, e.Details, err)
				}
				f.expectNoState("the job has ended")
			})
		})
	}
}

// The start timeout counts the time without a connected worker only.
func TestStartTimeoutOfBusyWorkers(t *testing.T) {
	var w workers
	runEngine(t, func(cfg *Config) { w.configure(cfg); cfg.StartTimeout = time.Minute }, func(f *fixture) {
		f.tool("py", onWorkers, sleeper(time.Hour))
		w.set(f, "py@1.0.0", 1, true)
		f.submit("py", "{}")
		f.wantWaiting("the first runs", "job.accepted msg_1", "job.started msg_1")
		f.submit("py", "{}")
		f.wantWaiting("the second does not", "job.accepted msg_2")
		time.Sleep(30 * time.Minute)
		w.set(f, "py@1.0.0", 1, false)
		time.Sleep(time.Minute - 1)
		f.wantWaiting("the worker was connected, and busy")
		time.Sleep(time.Nanosecond)
		f.wantWaiting("a minute without the worker", "job.failed msg_2 UNAVAILABLE")
	})
}

// A worker that connects when the start timeout passes: the job starts or fails, not both.
func TestWorkerConnectsAtTheStartTimeout(t *testing.T) {
	for d := -2 * time.Nanosecond; d <= 2; d++ {
		var w workers
		runEngine(t, func(cfg *Config) { w.configure(cfg); cfg.StartTimeout = time.Minute }, func(f *fixture) {
			f.tool("py", onWorkers, echo)
			f.submit("py", "{}")
			f.want("it waits", "job.accepted")
			time.Sleep(time.Minute + d)
			w.set(f, "py@1.0.0", 1, true)
			ends := 0
			for _, fr := range f.frames("sess_1") {
				if fr.Type.Terminal() {
					ends++
				}
			}
			if ends != 1 {
				t.Errorf("%v after the timeout: %d ends of the job, want 1", d, ends)
			}
			f.expectNoState("the job has ended")
			f.submit("py", "{}")
			f.want("the worker's place is free", "job.accepted", "job.started", "job.completed")
		})
	}
}

// An announced wait without a worker continues over restarts. Workers get time to connect before the
// timeout ends the job.
func TestStartTimeoutOverRestarts(t *testing.T) {
	for _, heartbeat := range []time.Duration{30 * time.Second, -1} {
		t.Run(heartbeat.String(), func(t *testing.T) { startTimeoutOverRestarts(t, heartbeat) })
	}
}

func startTimeoutOverRestarts(t *testing.T, heartbeat time.Duration) {
	var w workers
	runEngine(t, func(cfg *Config) {
		w.configure(cfg)
		cfg.StartTimeout, cfg.Heartbeat = 10*time.Minute, heartbeat
	}, func(f *fixture) {
		f.showWaits = true
		f.tool("py", onWorkers, echo)
		begin := time.Now()
		f.submit("py", "{}")
		id := f.want("it waits", "job.accepted")[0].JobID
		time.Sleep(4 * time.Minute)
		f.wantWaiting("it says so", arcp.WaitWorker)
		f.restart(1)
		time.Sleep(3 * time.Minute)
		f.wantWaiting("no second event")
		if since := WaitingOf(f.e, id).Since; !since.Equal(begin) {
			t.Errorf("the wait began at %v, want %v: not at the restart", since, begin)
		}
		time.Sleep(3*time.Minute - 1)
		f.want("the time is not over")
		time.Sleep(time.Nanosecond)
		f.want("the time before the restart counts", "job.failed msg_1 UNAVAILABLE")

		f.submit("py", "{}")
		time.Sleep(9*time.Minute + 50*time.Second)
		f.wantWaiting("another one", "job.accepted msg_2", arcp.WaitWorker)
		f.stop(0)
		time.Sleep(time.Hour) // the runtime is down
		f.restart(1)
		time.Sleep(time.Minute - 1)
		f.want("the workers have two heartbeat intervals to connect")
		time.Sleep(time.Nanosecond)
		f.want("no worker connects", "job.failed msg_2 UNAVAILABLE")
	})
}

// A wait that no event has announced begins with the restart: until then a worker was connected, or the
// wait was short.
func TestUnannouncedWaitBeginsWithTheRestart(t *testing.T) {
	var w workers
	runEngine(t, func(cfg *Config) { w.configure(cfg); cfg.StartTimeout = 10 * time.Minute }, func(f *fixture) {
		f.tool("py", func(c *tool.Capability) { onWorkers(c); c.Recovery = tool.RecoveryRerun }, wait)
		w.set(f, "py@1.0.0", 1, true)
		f.submit("py", "{}")
		f.wantWaiting("the first runs", "job.accepted msg_1", "job.started msg_1")
		f.submit("py", "{}")
		f.wantWaiting("the second does not", "job.accepted msg_2")
		time.Sleep(time.Hour)
		f.stop(0)
		w.slots.Set("py@1.0.0", 0)
		w.connected.Store(false)
		f.restart(2)
		time.Sleep(10*time.Minute - 1)
		f.wantWaiting("both wait since the restart")
		time.Sleep(time.Nanosecond)
		n := 0
		for _, fr := range f.frames("sess_1") {
			if fr.Type == arcp.JobFailed {
				n++
			}
		}
		if n != 2 {
			t.Errorf("after the timeout %d jobs have failed, want both", n)
		}
	})
}

// A job whose wait without a worker was announced, and that has run since, waits anew after a restart.
func TestStartTimeoutOfALaterAttempt(t *testing.T) {
	var w workers
	runEngine(t, func(cfg *Config) { w.configure(cfg); cfg.StartTimeout = 10 * time.Minute }, func(f *fixture) {
		f.tool("py", func(c *tool.Capability) { onWorkers(c); c.Recovery = tool.RecoveryRerun }, wait)
		f.submit("py", "{}")
		time.Sleep(5 * time.Minute)
		w.set(f, "py@1.0.0", 1, true)
		f.wantWaiting("it has waited and runs", "job.accepted msg_1", "job.started msg_1")
		time.Sleep(time.Hour)
		f.stop(0)
		w.slots.Set("py@1.0.0", 0)
		w.connected.Store(false)
		f.restart(1)
		time.Sleep(10*time.Minute - 1)
		f.wantWaiting("the second attempt waits since the restart")
		time.Sleep(time.Nanosecond)
		f.wantWaiting("it has waited too long", "job.failed msg_1 UNAVAILABLE")
	})
}

// Jobs wait for their next attempt, for people, for heartbeats and for space, too.
func TestOtherWaits(t *testing.T) {
	var space fakeSpace
	runEngine(t, func(c *Config) {
		c.Heartbeat, c.Block, c.ResumeWindow, c.Space = time.Second, true, 10*time.Hour, &space
	}, func(f *fixture) {
		f.tool("fails", func(c *tool.Capability) { c.Retry = tool.Retry{MaxAttempts: 2, InitialMS: 60_000} },
			func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
				return nil, arcp.Errorf(arcp.CodeUnavailable, "not now")
			})
		f.tool("gated", func(c *tool.Capability) { c.Approval = tool.ApprovalManual }, echo)
		f.tool("asks", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			_, err := j.Ask(ctx, tool.InputRequest{Prompt: "?", Expires: 20 * time.Hour})
			return nil, err
		})
		f.tool("silent", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			j.ManualHeartbeat()
			return wait(ctx, j, args)
		})
		f.tool("writes", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Second)
			return nil, j.Log("info", "x", nil)
		})
		tools := []string{"fails", "gated", "asks", "silent", "writes"}
		want := []string{arcp.WaitRetry, arcp.WaitApproval, arcp.WaitInput, arcp.WaitHeartbeat, arcp.WaitDisk}
		var ids []arcp.JobID
		for _, name := range tools {
			id := f.submit(name, "{}")
			ids = append(ids, jobOf(f.frames("sess_1"), id))
		}
		space.data.Store(true)
		time.Sleep(10 * time.Second)
		for i, id := range ids {
			if got := f.waiting(id); got != want[i] {
				t.Errorf("a job of %s waits for %q, want %q", tools[i], got, want[i])
			}
		}
		for reason, n := range CountWaiting(f.e) {
			if n != 1 || !slices.Contains(want, reason) {
				t.Errorf("%d jobs wait for %q, want one for each of %v", n, reason, want)
			}
		}
		space.data.Store(false)
		f.e.SpaceFreed()
		if got := f.waiting(ids[4]); got != "" {
			t.Errorf("with space the job waits for %q", got)
		}
		f.e.SessionJobs().CancelAll("sess_1", "enough")
		time.Sleep(time.Hour)
		if n := len(CountWaiting(f.e)); n != 0 {
			t.Errorf("%d reasons after the end of all jobs, want none", n)
		}
	})
}

// A job that a shutdown pauses says so.
func TestPauseIsAnnounced(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.showWaits = true
		f.tool("t", checkpoints, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for {
				time.Sleep(time.Second)
				if err := j.Checkpoint("", 1); err != nil {
					return nil, err
				}
			}
		})
		f.tool("runs", nil, sleeper(time.Minute))
		f.submit("t", "{}")
		f.submit("runs", "{}")
		id := jobOf(f.frames("sess_1"), "msg_1")
		go f.stopEngine(context.Background())
		time.Sleep(time.Second)
		f.wantWaiting("the shutdown pauses the job", "job.checkpoint msg_1", arcp.WaitDrain)
		if got := f.waiting(id); got != arcp.WaitDrain {
			t.Errorf("the paused job waits for %q, want %q", got, arcp.WaitDrain)
		}
		time.Sleep(time.Hour)
		f.cfg.Log.Close()
	})
}

// A wait for a person is logged when the question is asked.
func TestWaitForAPersonIsLogged(t *testing.T) {
	var log bytes.Buffer
	fq := newQuestions(person("sess_1"), person("sess_2"))
	runEngine(t, func(c *Config) {
		c.Questions, c.Logger = fq, zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.DebugLevel)
	}, func(f *fixture) {
		f.session("sess_2")
		f.tool("gated", func(c *tool.Capability) { c.Approval = tool.ApprovalManual }, echo)
		f.tool("asks", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			_, err := j.Ask(ctx, tool.InputRequest{Prompt: "?"})
			return nil, err
		})
		for name, reason := range map[string]string{"gated": arcp.WaitApproval, "asks": arcp.WaitInput} {
			f.submit(name, "{}")
			synctest.Wait()
			if want := `"tool":"` + name + `@1.0.0"`; !strings.Contains(log.String(), want) ||
				strings.Count(log.String(), `"reason":"`+reason+`","detail":"`) != 1 {
				t.Errorf("the wait of %s logs\n%s\nwant one line with the reason %s", name, &log, reason)
			}
		}
	})
}
