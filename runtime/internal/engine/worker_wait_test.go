package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// attempts passes the attempts of a tool to the test, which plays the pool of workers.
type attempts struct{ c chan tool.Attempt }

// tool registers a tool of workers that runs until it is stopped.
func (a *attempts) tool(f *fixture, timeout, startTimeout time.Duration) {
	a.c = make(chan tool.Attempt, 10)
	f.tool("py", func(c *tool.Capability) {
		onWorkers(c)
		c.Limits.Timeout, c.Limits.StartTimeout = timeout, startTimeout
	}, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		a.c <- j.Host().(tool.Attempt)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	f.cfg.Slots.Set("py@1.0.0", 10)
}

// waitFor sets the wait of an attempt, which begins now.
func waitFor(a tool.Attempt, reason string) {
	now := time.Now()
	a.SetWait(&tool.WorkerWait{Reason: reason, Since: now, Worker: "texts", Until: now.Add(time.Minute)})
}

// wantNoEnd wants no job of sess_1 to have ended, and reads its frames.
func (f *fixture) wantNoEnd(why string) {
	f.Helper()
	for _, fr := range f.frames("sess_1") {
		if fr.Type.Terminal() {
			f.Fatalf("%s: the job has ended: %s", why, fr)
		}
	}
}

// A running job whose worker has lost its connection says so after a second, and again when it has lost
// another connection, but less and less often.
func TestWaitForReconnection(t *testing.T) {
	var w workers
	runEngine(t, w.configure, func(f *fixture) {
		f.showWaits = true
		var a attempts
		a.tool(f, -1, 0)
		f.submit("py", "{}")
		id := f.want("it runs", "job.accepted", "job.started")[0].JobID
		attempt := <-a.c
		begin := time.Now()
		waitFor(attempt, arcp.WaitReconnect)
		if got := f.waiting(id); got != arcp.WaitReconnect {
			t.Errorf("the job waits for %q, want %q at once", got, arcp.WaitReconnect)
		}
		if row := f.row(id); row.State != arcp.StateRunning {
			t.Errorf("the job is %s, want running", row.State)
		}
		time.Sleep(waitGrace - 1)
		f.wantWaiting("the wait is too short for an event")
		time.Sleep(time.Nanosecond)
		event := f.wantWaiting("the event", arcp.WaitReconnect)[0]
		until := begin.Add(time.Minute).UTC().Format(time.RFC3339)
		if !event.Since.Equal(begin) || !strings.Contains(event.Message, "texts") || !strings.Contains(event.Message, until) {
			t.Errorf("the event is %+v, want the begin of the wait %v, the worker and the end %s", event, begin, until)
		}
		time.Sleep(40 * time.Second)
		f.wantWaiting("nothing changes")
		attempt.SetWait(nil)
		if got := f.waiting(id); got != "" {
			t.Errorf("the job of a worker that is back waits for %q", got)
		}
		n := 0
		for range 3600 {
			waitFor(attempt, arcp.WaitReconnect)
			time.Sleep(2 * time.Second)
			attempt.SetWait(nil)
			time.Sleep(2 * time.Second)
		}
		for _, fr := range f.frames("sess_1") {
			if isWaiting(&fr.Envelope) {
				n++
			}
		}
		if n < 10 || n > 40 {
			t.Errorf("a worker that loses its connection for four hours causes %d events, want 10 to 40", n)
		}
		f.cancel(id, 0)
	})
}

// The time limit of a tool does not run while the attempt waits for a worker or for an answer, or both.
func TestTimeLimitOfWorkers(t *testing.T) {
	fq := newQuestions(person("sess_1"))
	var w workers
	configure := func(c *Config) { w.configure(c); c.Heartbeat, c.Questions = 0, fq }
	runEngine(t, configure, func(f *fixture) {
		var a attempts
		a.tool(f, 20*time.Second, 0)
		f.submit("py", "{}")
		f.want("it runs", "job.accepted", "job.started")
		attempt := <-a.c
		time.Sleep(5 * time.Second)
		waitFor(attempt, arcp.WaitReconnect)
		time.Sleep(time.Minute)
		attempt.SetWait(nil)
		time.Sleep(5 * time.Second)
		asked := make(chan error, 1)
		go func() {
			_, err := attempt.Ask(context.Background(), tool.InputRequest{Prompt: "?", Expires: time.Hour})
			asked <- err
		}()
		synctest.Wait()
		waitFor(attempt, arcp.WaitReconnect)
		time.Sleep(time.Minute)
		f.answer(fq.only(t), `"yes"`)
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		attempt.SetWait(nil)
		time.Sleep(10*time.Second - 1)
		f.wantNoEnd("the limit is not over")
		time.Sleep(time.Nanosecond)
		f.want("20 seconds with the worker", "job.failed msg_1 DEADLINE_EXCEEDED")
	})
}

// The start timeout also bounds the wait of an attempt whose workers have disconnected before it was sent
// to one, and no other wait.
func TestStartTimeoutOfAttempts(t *testing.T) {
	var w workers
	configure := func(c *Config) { w.configure(c); c.Heartbeat = 0 }
	runEngine(t, configure, func(f *fixture) {
		var a attempts
		a.tool(f, -1, time.Minute)
		f.submit("py", "{}")
		f.want("it runs", "job.accepted", "job.started")
		attempt := <-a.c
		waitFor(attempt, arcp.WaitReconnect)
		time.Sleep(2 * time.Minute)
		waitFor(attempt, arcp.WaitWorkerSlot)
		time.Sleep(2 * time.Minute)
		waitFor(attempt, arcp.WaitWorker)
		time.Sleep(time.Minute - 1)
		f.wantNoEnd("the start timeout is not over")
		time.Sleep(time.Nanosecond)
		f.want("no worker is connected", "job.failed msg_1 UNAVAILABLE")
	})
}

// While a worker has no connection, its missing heartbeats do not count: only the pool of workers decides when
// the attempt is lost. A worker that is back has two intervals for the next heartbeat.
func TestHeartbeatsOfDisconnectedWorkers(t *testing.T) {
	const interval = 30 * time.Second
	for _, block := range []bool{false, true} {
		var w workers
		configure := func(c *Config) { w.configure(c); c.Block, c.ResumeWindow = block, time.Minute }
		runEngine(t, configure, func(f *fixture) {
			var a attempts
			a.tool(f, -1, 0)
			f.submit("py", "{}")
			id := f.want("it runs", "job.accepted", "job.started")[0].JobID
			attempt := <-a.c
			attempt.ManualHeartbeat()
			time.Sleep(interval)
			waitFor(attempt, arcp.WaitReconnect)
			time.Sleep(10 * interval)
			f.wantNoEnd("the worker has no connection")
			if row := f.row(id); row.State != arcp.StateRunning {
				t.Errorf("block %t: the job of a disconnected worker is %s, want running", block, row.State)
			}
			attempt.SetWait(nil)
			silence := 2 * interval
			if block {
				silence += time.Minute
			}
			time.Sleep(silence - 1)
			f.wantNoEnd("the worker is back")
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			frames := f.frames("sess_1")
			end := frames[len(frames)-1]
			if want := "the tool missed 2 heartbeats of 30s; the tool has no recovery"; end.String() != "job.failed msg_1 ABORTED" || !strings.Contains(string(end.Payload), want) {
				t.Errorf("block %t: the job ends with %s %s, want ABORTED and %q", block, end, end.Payload, want)
			}
		})
	}
}

// A job that loses its worker fails with the reason of the loss, or has its next attempt, always with the same
// code.
func TestLostWorker(t *testing.T) {
	for _, recovery := range []tool.Recovery{tool.RecoveryFail, tool.RecoveryRerun} {
		var w workers
		runEngine(t, w.configure, func(f *fixture) {
			lost := make(chan struct{})
			f.tool("py", func(c *tool.Capability) { onWorkers(c); c.Limits.Timeout, c.Recovery = -1, recovery },
				func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
					if j.Attempt() > 1 {
						return nil, nil
					}
					j.ManualHeartbeat()
					waitFor(j.Host().(tool.Attempt), arcp.WaitReconnect)
					<-lost
					return nil, fmt.Errorf("the worker is gone%w", hidden{tool.ErrLost})
				})
			f.cfg.Slots.Set("py@1.0.0", 10)
			f.submit("py", "{}")
			f.want("it runs", "job.accepted", "job.started")
			time.Sleep(2 * f.cfg.Heartbeat) // missing heartbeats are due at the same time
			close(lost)
			synctest.Wait()
			if recovery == tool.RecoveryFail {
				end := f.want("it has no recovery", "job.failed msg_1 ABORTED")[0]
				if want := `"the worker is gone; the tool has no recovery"`; !strings.Contains(string(end.Payload), want) {
					t.Errorf("the job ends with %s, want the message %s", end.Payload, want)
				}
				return
			}
			retry := f.want("another attempt", "event.emit", "job.started", "job.completed msg_1")[0]
			if !strings.Contains(string(retry.Payload), `"code":"ABORTED"`) {
				t.Errorf("the next attempt is announced with %s, want ABORTED", retry.Payload)
			}
		})
	}
}

// hidden is an error without a text.
type hidden struct{ error }

func (hidden) Error() string   { return "" }
func (h hidden) Unwrap() error { return h.error }

// A wait for a worker that begins and ends while the supervisor writes does not count for the time limit.
func TestWaitsDuringAWrite(t *testing.T) {
	var w workers
	configure := func(c *Config) { w.configure(c); c.Heartbeat = 0 }
	runEngine(t, configure, func(f *fixture) {
		var a attempts
		a.tool(f, 20*time.Second, 0)
		f.submit("py", "{}")
		f.want("it runs", "job.accepted", "job.started")
		attempt := <-a.c
		away := func(d time.Duration) {
			waitFor(attempt, arcp.WaitReconnect)
			time.Sleep(d)
			attempt.SetWait(nil)
		}
		during := func(f2 func()) { // f2 runs while the supervisor writes an event
			release := f.st.hold()
			if err := attempt.Emit(arcp.Log, arcp.LogPayload{Level: "info", Message: "m"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			f2()
			release()
			synctest.Wait()
		}
		during(func() { // 5 seconds with the worker, in three parts
			time.Sleep(time.Second)
			away(time.Minute)
			time.Sleep(time.Second)
			away(time.Minute)
			time.Sleep(3 * time.Second)
			waitFor(attempt, arcp.WaitReconnect)
		})
		time.Sleep(time.Minute)
		during(func() { // 5 seconds more
			attempt.SetWait(nil)
			time.Sleep(3 * time.Second)
			away(time.Minute)
			time.Sleep(2 * time.Second)
		})
		time.Sleep(10*time.Second - 1)
		f.wantNoEnd("the limit is not over")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		f.want("20 seconds with the worker", "job.failed msg_1 DEADLINE_EXCEEDED")
	})
}

// A job that waits for an answer has no event about its disconnected worker. It has one when it has the answer.
func TestReconnectionDuringAQuestion(t *testing.T) {
	fq := newQuestions(person("sess_1"))
	var w workers
	configure := func(c *Config) { w.configure(c); c.Heartbeat, c.Questions = 0, fq }
	runEngine(t, configure, func(f *fixture) {
		f.showWaits = true
		var a attempts
		a.tool(f, -1, 0)
		f.submit("py", "{}")
		id := f.want("it runs", "job.accepted", "job.started")[0].JobID
		attempt := <-a.c
		asked := make(chan error, 1)
		go func() {
			_, err := attempt.Ask(context.Background(), tool.InputRequest{Prompt: "?", Expires: time.Hour})
			asked <- err
		}()
		synctest.Wait()
		f.want("it asks", "human.input.request msg_1")
		waitFor(attempt, arcp.WaitReconnect)
		time.Sleep(time.Minute)
		f.wantWaiting("the question is the reason")
		if got := f.waiting(id); got != arcp.WaitInput {
			t.Errorf("the job waits for %q, want %q", got, arcp.WaitInput)
		}
		f.answer(fq.only(t), `"yes"`)
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.wantWaiting("the worker is the reason", arcp.WaitReconnect)
		f.cancel(id, 0)
	})
}
