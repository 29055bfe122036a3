package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Jobs of a tool whose server has not answered wait in its queue, and say why. They start when the gate opens, as
// many at once as the tool allows.
func TestJobsWaitForTheServer(t *testing.T) {
	for name, limit := range map[string]int{"bounded": 1, "unbounded": -1} {
		t.Run(name, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.showWaits = true
				gate := new(tool.Gate)
				f.tool("remote", func(c *tool.Capability) { c.Gate, c.Limits.Concurrency = gate, limit }, sleeper(time.Hour))
				f.submit("remote", "{}")
				first := f.want("the first is accepted", "job.accepted")[0].JobID
				f.submit("remote", "{}")
				f.want("the second is accepted", "job.accepted")
				f.submit("remote", "{}")
				third := f.want("the third is accepted", "job.accepted")[0].JobID
				if got := f.waiting(first); got != arcp.WaitServer {
					t.Errorf("the job waits for %q, want %q", got, arcp.WaitServer)
				}
				f.cancel(third, 0)
				time.Sleep(waitGrace)
				event := f.wantWaiting("the events", "cancel.accepted msg_4", "job.cancelled msg_3 CANCELLED", arcp.WaitServer, arcp.WaitServer)[0]
				if !strings.Contains(event.Message, "remote@1.0.0") {
					t.Errorf("the message %q does not name the tool", event.Message)
				}
				time.Sleep(24 * time.Hour)
				f.wantWaiting("nothing changes")
				gate.Open()
				if limit < 0 {
					wantTwo(f, "the server answers", arcp.JobStarted)
					time.Sleep(time.Hour)
					wantTwo(f, "both have ended", arcp.JobCompleted)
				} else {
					f.wantWaiting("the server answers", "job.started msg_1")
					time.Sleep(time.Hour)
					f.wantWaiting("the first has ended", "job.completed msg_1", "job.started msg_2")
					time.Sleep(time.Hour)
					f.wantWaiting("the second has ended", "job.completed msg_2")
				}
				f.submit("remote", "{}")
				f.wantWaiting("another job", "job.accepted msg_5", "job.started msg_5")
			})
		})
	}
}

// wantTwo wants two frames of a type, of jobs that run at the same time.
func wantTwo(f *fixture, why string, typ arcp.Type) {
	f.Helper()
	list := f.frames("sess_1")
	if len(list) != 2 || list[0].Type != typ || list[1].Type != typ {
		f.Errorf("%s: the session is sent %v, want two of %s", why, list, typ)
	}
}

// The queue of a closed gate stays when its jobs have left, so that each tool is opened once.
func TestQueueBehindAGateIsRemovedWhenItOpens(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		gate := new(tool.Gate)
		f.tool("remote", func(c *tool.Capability) { c.Gate = gate }, sleeper(time.Hour))
		for range 3 {
			f.submit("remote", "{}")
			f.cancel(f.want("it is accepted", "job.accepted")[0].JobID, 0)
			f.frames("sess_1") // the answer, and the end
		}
		if n := len(f.e.queues.byTool); n != 1 {
			t.Errorf("%d queues behind the gate, want 1", n)
		}
		gate.Open()
		if n := len(f.e.queues.byTool); n != 0 {
			t.Errorf("%d queues behind the open gate, want none", n)
		}
	})
}

// A job that an earlier process has accepted waits for the server, within the start timeout. It is not called
// before the gate opens, whatever its recovery is.
func TestRecoveredJobWaitsForTheServer(t *testing.T) {
	for name, answers := range map[string]bool{"the server answers": true, "it does not answer": false} {
		t.Run(name, func(t *testing.T) {
			runEngine(t, func(c *Config) { c.StartTimeout, c.Heartbeat = time.Hour, 30*time.Second }, func(f *fixture) {
				gate := new(tool.Gate)
				f.tool("remote", func(c *tool.Capability) { c.Gate = gate }, sleeper(time.Minute))
				f.submit("remote", "{}")
				id := f.want("it is accepted", "job.accepted")[0].JobID
				time.Sleep(30 * time.Minute)
				f.restart(1)
				time.Sleep(time.Hour - 1)
				if got := f.waiting(id); got != arcp.WaitServer {
					t.Errorf("after the restart the job waits for %q, want %q", got, arcp.WaitServer)
				}
				if answers {
					gate.Open()
					time.Sleep(time.Minute)
					f.wantWaiting("it runs once", "job.started msg_1", "job.completed msg_1")
					return
				}
				time.Sleep(time.Nanosecond)
				failed := f.want("the start timeout", "job.failed msg_1 UNAVAILABLE")[0]
				if !strings.Contains(string(failed.Payload), "the server of remote@1.0.0 does not answer") {
					t.Errorf("the job fails with %s, want that the server does not answer", failed.Payload)
				}
			})
		})
	}
}
