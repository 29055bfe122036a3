package engine

import (
	"context"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Running jobs send heartbeats, which are neither numbered nor logged, and stop
// with their job.
func TestHeartbeats(t *testing.T) {
	runEngine(t, func(c *Config) { c.Heartbeat = 30 * time.Second }, func(f *fixture) {
		f.tool("t", nil, sleeper(100*time.Second))
		f.submit("t", "{}")
		time.Sleep(95 * time.Second)
		frames := f.want("one an interval", "job.accepted", "job.started", "job.heartbeat", "job.heartbeat", "job.heartbeat")
		for i, fr := range frames[2:] {
			p, err := arcp.DecodePayload[arcp.JobHeartbeatPayload](&fr.Envelope)
			if err != nil || fr.EventSeq != 0 || p.Sequence != uint64(i+1) || p.State != "running" || p.DeadlineMS != 60_000 {
				t.Errorf("heartbeat %d: number %d, %+v, %v", i, fr.EventSeq, p, err)
			}
		}
		time.Sleep(time.Hour)
		if fr := f.want("none after the end", "job.completed")[0]; fr.EventSeq != 3 {
			t.Errorf("the end has the number %d, want 3: heartbeats have none", fr.EventSeq)
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
	runEngine(t, func(c *Config) { c.Heartbeat = interval }, func(f *fixture) {
		f.tool("t", nil, manual(2))
		f.submit("t", "{}")
		time.Sleep(4*interval - 1)
		f.want("two beats, then silence", "job.accepted", "job.started", "job.heartbeat", "job.heartbeat")
		time.Sleep(time.Nanosecond)
		f.want("two are missing", "job.failed msg_1 HEARTBEAT_LOST")
		f.expectNoState("")
	})
	runEngine(t, func(c *Config) { c.Heartbeat, c.Block, c.ResumeWindow = interval, true, time.Minute }, func(f *fixture) {
		f.tool("t", nil, manual(0))
		f.submit("t", "{}")
		time.Sleep(2 * interval)
		frames := f.want("it says that it is blocked", "job.accepted", "job.started", "job.heartbeat")
		if row := f.row(frames[0].JobID); row.State != arcp.StateBlocked {
			t.Errorf("row %s, want blocked", row.State)
		}
		time.Sleep(time.Minute)
		got := lines(f.frames("sess_1"))
		if got[len(got)-1] != "job.failed msg_1 HEARTBEAT_LOST" {
			t.Errorf("sent %v, want the end after the window", got)
		}
		f.expectNoState("")
	})
}

// A tool that sends heartbeats in a loop costs no memory, and few of them are emitted.
func TestHeartbeatFlood(t *testing.T) {
	runEngine(t, func(c *Config) { c.Heartbeat = 10 * time.Second }, func(f *fixture) {
		beaten := make(chan struct{})
		f.tool("t", withoutSideEffect, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			j.ManualHeartbeat()
			for range 100_000 {
				j.Heartbeat()
			}
			close(beaten)
			time.Sleep(time.Second)
			return nil, nil
		})
		f.session("sess_1")
		release := f.st.hold()
		f.submit("t", "{}")
		f.st.gate <- struct{}{} // the claim; the start is not durable
		<-beaten
		f.e.mu.Lock()
		for _, run := range f.e.jobs.runs {
			run.mu.Lock()
			if n := len(run.commands.list) + len(run.current.events.list); n > 2 {
				t.Errorf("%d things wait for the supervisor after a flood of heartbeats", n)
			}
			run.mu.Unlock()
		}
		f.e.mu.Unlock()
		release()
		time.Sleep(time.Second)
		if got := f.frames("sess_1"); len(got) > 6 {
			t.Errorf("%v: want but a few heartbeats", lines(got))
		}
	})
}
