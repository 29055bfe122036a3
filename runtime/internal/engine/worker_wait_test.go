package engine

import (
	"context"
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
