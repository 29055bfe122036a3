package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/tool"
)

// restoreRequest returns a request to restore a checkpoint.
func (f *fixture) restoreRequest(session arcp.SessionID, id arcp.JobID, checkpoint string) restoreJob {
	f.Helper()
	f.n++
	return restoreJob{Submit: Submit{Envelope: &arcp.Envelope{ID: arcp.MessageID(fmt.Sprintf("msg_%d", f.n)), JobID: id},
		Session: session, Principal: "alice", Answers: f.session(session)}, Job: id, Checkpoint: checkpoint}
}

// sendRestore sends a request to restore a checkpoint.
func (f *fixture) sendRestore(q restoreJob) {
	f.Helper()
	f.e.RestoreCheckpoint(&q.Submit, &arcp.CheckpointRestorePayload{CheckpointID: q.Checkpoint})
}

// restore restores for sess_1.
func (f *fixture) restore(id arcp.JobID, checkpoint string) arcp.MessageID {
	f.Helper()
	q := f.restoreRequest("sess_1", id, checkpoint)
	f.sendRestore(q)
	return q.Envelope.ID
}

// checkpointIDs returns the ids of the checkpoints in frames.
func checkpointIDs(t *testing.T, frames []frame) (ids []string) {
	t.Helper()
	for _, f := range frames {
		if f.Type != arcp.JobCheckpoint {
			continue
		}
		p, err := arcp.DecodePayload[arcp.JobCheckpointPayload](&f.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, p.CheckpointID)
	}
	return ids
}

// lastPayload returns the payload of the last frame; empty: there is none.
func lastPayload(frames []frame) string {
	if len(frames) == 0 {
		return ""
	}
	return string(frames[len(frames)-1].Payload)
}

// runCounter runs a counter up to 5 for a while and returns the job and its
// checkpoints so far.
func (f *fixture) runCounter(change func(*tool.Capability), d time.Duration) (arcp.JobID, []string) {
	f.Helper()
	f.tool("t", func(c *tool.Capability) {
		checkpoints(c)
		if change != nil {
			change(c)
		}
	}, counter(5))
	f.submit("t", "{}")
	time.Sleep(d)
	frames := f.frames("sess_1")
	return frames[0].JobID, checkpointIDs(f.T, frames)
}

// A running job continues from an earlier checkpoint, with another attempt.
func TestRestore(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		id, made := f.runCounter(oneAtATime, 3500*time.Millisecond)
		f.restore(id, made[0])
		f.want("at once", "ack msg_2", "job.started msg_1")
		if row := f.row(id); row.Attempt != 2 || row.State != arcp.StateRunning {
			t.Errorf("attempt %d is %s, want the second to run", row.Attempt, row.State)
		}
		time.Sleep(time.Minute)
		if got := lastPayload(f.want("the attempt continues from checkpoint 1", "log", "job.checkpoint", "log", "job.checkpoint",
			"log", "job.checkpoint", "log", "job.checkpoint", "job.completed msg_1")); got != `{"value":{"from":1}}` {
			t.Errorf("ended with %s, want it to have gone on from 1", got)
		}
		f.expectNoState("")
	})
}

// Until the next attempt has made a checkpoint, restarts continue from the chosen one; then
// from the latest. The later ones are kept, and may be chosen.
func TestRestoreAndRestart(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		id, made := f.runCounter(nil, 3500*time.Millisecond)
		f.restore(id, made[1])
		f.want("the restore is acknowledged", "ack", "job.started")
		f.restart(1)
		f.want("the restart continues the job", "job.started")
		f.restart(1)
		time.Sleep(1500 * time.Millisecond)
		f.want("the next attempt makes checkpoint 3", "job.started", "log", "job.checkpoint")
		f.restart(1)
		time.Sleep(500 * time.Millisecond)
		f.want("another restart continues the job", "job.started")
		f.restore(id, made[2])
		time.Sleep(time.Minute)
		if got := lastPayload(f.frames("sess_1")); got != `{"value":{"from":3}}` {
			t.Errorf("ended with %s, want it to have gone on from 3", got)
		}
	})
}

// Whenever the runtime crashes, an acknowledged restore is in effect, and one without an
// acknowledgement is not.
func TestCrashDuringRestore(t *testing.T) {
	for commits := 1; commits <= 4; commits++ {
		runEngine(t, nil, func(f *fixture) {
			var from []string
			f.tool("t", checkpoints, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				from = append(from, string(j.Restored()))
				return counter(5)(ctx, j, args)
			})
			f.submit("t", "{}")
			time.Sleep(3500 * time.Millisecond)
			frames := f.frames("sess_1")
			id := frames[0].JobID
			f.st.crashAfter(commits)
			m := f.restore(id, checkpointIDs(t, frames)[0])
			synctest.Wait()
			acked := slices.Contains(lines(f.frames("sess_1")), "ack "+string(m))
			f.restart(1)
			synctest.Wait()
			want := "3"
			if acked {
				want = "1"
			}
			if got := from[len(from)-1]; got != want {
				t.Errorf("crash after %d commits, acknowledged %t: goes on from %s, want %s", commits, acked, got, want)
			}
			time.Sleep(time.Minute)
			if got := lines(f.frames("sess_1")); got[len(got)-1] != "job.completed msg_1" {
				t.Errorf("ended with %v", got)
			}
			f.expectNoState("")
		})
	}
}

// A crash right after the acknowledgement has the same effect as a later one.
func TestCrashAfterTheAck(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		id, made := f.runCounter(nil, 3500*time.Millisecond)
		f.st.mu.Lock()
		gate := make(chan struct{}, 1)
		f.st.gate = gate
		f.st.mu.Unlock()
		gate <- struct{}{} // one commit
		f.restore(id, made[0])
		f.want("acknowledged, and nothing behind it", "ack msg_2")
		if row := f.row(id); row.State != arcp.StateQueued || row.Attempt != 2 {
			t.Errorf("%s, attempt %d: want the second one to be due", row.State, row.Attempt)
		}
		f.st.breakWith(errCrash)
		close(gate)
		f.restart(1)
		time.Sleep(time.Minute)
		if got := lastPayload(f.frames("sess_1")); got != `{"value":{"from":1}}` {
			t.Errorf("ended with %s", got)
		}
	})
}

// An attempt that does not stop is abandoned after five seconds. Its calls are refused
// meanwhile.
func TestRestoreAbandonsTool(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var late error
		f.tool("t", func(c *tool.Capability) { checkpoints(c); oneAtATime(c) },
			func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				if j.Attempt() > 1 {
					return j.Restored(), nil
				}
				if err := j.Checkpoint("", 1); err != nil {
					return nil, err
				}
				time.Sleep(time.Minute)
				late = j.Checkpoint("", 2)
				return arcp.Raw("0"), nil
			})
		f.submit("t", "{}")
		frames := f.frames("sess_1")
		id := frames[0].JobID
		f.restore(id, checkpointIDs(t, frames)[0])
		time.Sleep(abandonAfter - time.Second)
		f.want("it may still stop", "ack msg_2")
		time.Sleep(2 * time.Second)
		if got := lastPayload(f.want("the stuck attempt is abandoned", "job.started", "job.completed")); got != `{"value":1}` {
			t.Errorf("ended with %s, want the second attempt's result", got)
		}
		time.Sleep(time.Hour)
		f.want("one end")
		if late == nil {
			t.Error("Checkpoint of the abandoned attempt = nil, want an error")
		}
		if n := f.gauge("arcp_tools_abandoned_total"); n != 1 {
			t.Errorf("%v tools left behind, want 1", n)
		}
		f.expectNoState("")
	})
}

// A paused job, or one waiting for its retry, starts from the checkpoint in its next attempt.
// Stop returns at once.
func TestRestoreBetweenAttempts(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { checkpoints(c); threeAttempts(c) },
			func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				if j.Attempt() == 1 {
					_, err := counter(2)(ctx, j, args)
					return nil, errors.Join(err, errUnavailable())
				}
				return counter(5)(ctx, j, args)
			})
		q := f.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("60"))
		f.send(q)
		time.Sleep(2*time.Second + time.Millisecond)
		frames := f.frames("sess_1")
		id := frames[0].JobID
		f.restore(id, "chk_none")
		f.want("the checkpoint does not exist", "nack msg_2 NOT_FOUND")
		f.restore(id, checkpointIDs(t, frames)[0])
		f.want("a job between attempts is restored", "ack msg_3")
		began := time.Now()
		f.stop(time.Minute)
		if took := time.Since(began); took != 0 {
			t.Errorf("Stop took %v", took)
		}
		f.restart(1)
		time.Sleep(30 * time.Second)
		if got := lastPayload(f.frames("sess_1")); got != `{"value":{"from":1}}` {
			t.Errorf("ended with %s, want it to have gone on from 1", got)
		}
	})
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", checkpoints, counter(5))
		q := f.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("10"))
		f.send(q)
		time.Sleep(2500 * time.Millisecond)
		f.tool("slow", checkpoints, sleeper(30*time.Second))
		f.submit("slow", "{}")
		frames := f.frames("sess_1")
		id, made := frames[0].JobID, checkpointIDs(t, frames)
		go f.stop(time.Minute)
		time.Sleep(time.Second)
		f.want("the first job pauses at a checkpoint", "log", "job.checkpoint")
		f.restore(id, made[0])
		f.want("paused", "ack msg_3")
		time.Sleep(3 * time.Second)
		f.restore(id, made[0])
		f.want("also when its time is nearly over", "ack msg_4")
		time.Sleep(10 * time.Second)
		f.restore(id, made[1])
		f.want("it stands still", "ack msg_5")
		time.Sleep(time.Minute)
		synctest.Wait()
		f.restart(1)
		time.Sleep(time.Minute)
		if last := lines(f.frames("sess_1")); last[len(last)-1] != "job.failed msg_1 TIMEOUT" {
			t.Errorf("ended with %v, want it to have run for too long", last)
		}
	})
}

// A restore between two attempts preserves the job's maximum runtime.
func TestRestoreKeepsTheMaximumRuntime(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { checkpoints(c); threeAttempts(c) }, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			e := arcp.Errorf(arcp.CodeUnavailable, "later").RetryAfter(9)
			return nil, errors.Join(j.Checkpoint("", 1), e)
		})
		q := f.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("10"))
		f.send(q)
		frames := f.frames("sess_1")
		f.restore(frames[0].JobID, checkpointIDs(t, frames)[0])
		f.want("the restore is acknowledged", "ack")
		time.Sleep(time.Minute)
		got := f.frames("sess_1")
		if last := got[len(got)-1]; last.Type != arcp.JobFailed {
			t.Errorf("ended with %v", last)
		}
		f.expectNoState("")
	})
}

func TestRestoreIsRefused(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.session("sess_2")
		f.tool("other", recovery(tool.RecoveryRerun), func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if err := j.Checkpoint("", 1); err != nil {
				return nil, err
			}
			return wait(ctx, j, args)
		})
		f.tool("t", checkpoints, counter(100))
		q := f.request("sess_1", "t", "{}")
		q.payload.StrictCancel = true
		f.send(q)
		f.submit("other", "{}")
		time.Sleep(12500 * time.Millisecond)
		frames := f.frames("sess_1")
		id, other, made := jobOf(frames, "msg_1"), jobOf(frames, "msg_2"), checkpointIDs(t, frames)
		f.restore("job_none", made[0])
		f.want("an unknown job", "nack msg_3 JOB_NOT_FOUND")
		foreign := f.restoreRequest("sess_1", id, made[5])
		foreign.Principal = "mallory"
		f.sendRestore(foreign)
		f.want("a job of another principal", "nack msg_4 JOB_NOT_FOUND")
		f.restore(id, "chk_none")
		f.want("an unknown checkpoint", "nack msg_5 NOT_FOUND")
		f.restore(id, made[1])
		f.want("one that is not kept any more", "nack msg_6 NOT_FOUND")
		f.sendRestore(f.restoreRequest("sess_2", id, made[5]))
		if got := lines(f.frames("sess_2")); len(got) != 1 || got[0] != "nack msg_7 PERMISSION_DENIED" {
			t.Errorf("another session is told %v", got)
		}
		f.restore(other, made[0])
		f.want("a tool that begins at the start", "nack msg_8 FAILED_PRECONDITION")
		f.want("and nothing has happened to them")
		if row := f.row(id); row.Attempt != 1 {
			t.Errorf("attempt %d", row.Attempt)
		}
		f.cancel(id, 0)
		f.restore(id, made[5])
		f.cancel(other, 0)
		got := lines(f.frames("sess_1"))
		if !slices.Contains(got, "nack msg_10 FAILED_PRECONDITION") && !slices.Contains(got, "job.accepted msg_10") {
			t.Errorf("while it is cancelled: %v", got)
		}
		foreign = f.restoreRequest("sess_1", id, made[5])
		foreign.Principal = "mallory"
		f.sendRestore(foreign)
		f.restore(id, "chk_none")
		f.restore(other, made[0])
		got = lines(f.frames("sess_1"))
		for _, want := range []string{"nack msg_12 JOB_NOT_FOUND", "nack msg_13 NOT_FOUND", "nack msg_14 FAILED_PRECONDITION"} {
			if !slices.Contains(got, want) {
				t.Errorf("of jobs that have ended: %v, want %s", got, want)
			}
		}
		f.e.SessionJobs().CancelAll("sess_1", "")
	})
}

// finished lives a job's life and returns it with its checkpoints.
func (f *fixture) finished(change func(*arcp.ToolInvokePayload)) (arcp.JobID, []string) {
	f.Helper()
	capability := func(c *tool.Capability) { checkpoints(c); withoutSideEffect(c) }
	f.tool("t", capability, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
		raw, err := counter(5)(ctx, j, args)
		return slices.Concat(arcp.Raw("["), raw, arcp.Raw(","), args, arcp.Raw("]")), err
	})
	q := f.request("sess_1", "t", `{"a":1.0}`)
	if change != nil {
		change(&q.payload)
	}
	f.send(q)
	time.Sleep(10 * time.Second)
	frames := f.frames("sess_1")
	return frames[len(frames)-1].JobID, checkpointIDs(f.T, frames)
}

// A job like a finished one begins with its checkpoint.
func TestRestoreOfAFinishedJob(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		id, made := f.finished(func(p *arcp.ToolInvokePayload) {
			p.Direct, p.StrictCancel, p.MaxRuntimeSec = true, true, new(arcp.Number("77"))
		})
		f.sendRestore(f.restoreRequest("sess_2", id, made[2]))
		frames := f.frames("sess_2")
		p, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&frames[0].Envelope)
		want := arcp.RestoredFrom{JobID: id, CheckpointID: made[2]}
		if err != nil || frames[0].String() != "job.accepted msg_2" || p.JobID == id || p.RestoredFrom == nil || *p.RestoredFrom != want {
			t.Fatalf("%v %s: want it accepted, restored from %v", frames[0], frames[0].Payload, want)
		}
		if row := f.row(p.JobID); row.Session != "sess_2" || row.Attempt != 1 || !strings.Contains(string(row.Options), `"max_runtime_sec":77`) ||
			!strings.Contains(string(row.Options), `"strict_cancel":true`) {
			t.Errorf("row %+v, options %s", row, row.Options)
		}
		time.Sleep(time.Minute)
		if got := lastPayload(f.frames("sess_2")); got != `{"value":[{"from":3},{"a":1.0}]}` {
			t.Errorf("ended with %s, want it to have gone on from 3 with the same arguments", got)
		}
		f.want("the old session hears nothing")
		f.expectNoState("")
	})
}

// The new job has the lease of the finished job, within the principal's present lease.
func TestRestoredJobKeepsItsLease(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		id, made := f.finished(func(p *arcp.ToolInvokePayload) {
			p.LeaseRequest = arcp.Raw(`{"fs.read":["/data/x/**"],"model.use":["small"],"cost.budget":["USD:1.00"]}`)
		})
		limited := func(text string) restoreJob {
			q := f.restoreRequest("sess_2", id, made[2])
			var err error
			if q.Lease, err = lease.Decode(arcp.Raw(text)); err != nil {
				t.Fatal(err)
			}
			return q
		}
		want := `"lease":{"cost.budget":["USD:1.00"],"fs.read":["/data/x/**"],"model.use":["small"]}`
		for why, q := range map[string]restoreJob{
			"the principal has no lease": f.restoreRequest("sess_2", id, made[2]),
			"the principal may do more":  limited(`{"fs.read":["/**"],"model.use":["*"],"cost.budget":["USD:100.00"]}`),
		} {
			f.sendRestore(q)
			frames := f.frames("sess_2")
			if frames[0].Type != arcp.JobAccepted {
				t.Fatalf("%s: the restore is answered by %v %s, want job.accepted", why, frames[0], frames[0].Payload)
			}
			if got := string(f.row(frames[0].JobID).Options); !strings.Contains(got, want) {
				t.Errorf("%s: options %s, want %s", why, got, want)
			}
			time.Sleep(time.Minute)
			f.frames("sess_2")
		}
		f.sendRestore(limited(`{"fs.read":["/data/y"]}`))
		if got := lines(f.frames("sess_2")); len(got) != 1 || !strings.HasSuffix(got[0], "PERMISSION_DENIED") {
			t.Errorf("the principal may do less now: %v", got)
		}
	})
}

// It is no less durable than any job: it begins with its checkpoint also in
// another process, when the finished job is long gone.
func TestRestoredJobOutlivesTheOriginalJob(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		id, made := f.finished(nil)
		f.tool("later", oneAtATime, wait)
		f.restore(id, made[2])
		time.Sleep(500 * time.Millisecond)
		fr := f.want("the new job runs", "job.accepted", "job.started")[0]
		if err := f.delete(id); err != nil {
			t.Fatal(err)
		}
		f.restart(1)
		time.Sleep(1500 * time.Millisecond)
		f.want("the new job does not need the old one", "job.started", "log", "job.checkpoint")
		f.restore(fr.JobID, made[2])
		time.Sleep(time.Minute)
		if got := lastPayload(f.want("its first checkpoint is the one it began with", "ack msg_3", "job.started msg_2", "log", "job.checkpoint", "log",
			"job.checkpoint", "job.completed msg_2")); got != `{"value":[{"from":3},{"a":1.0}]}` {
			t.Errorf("ended with %s", got)
		}
	})
}

// It counts like a submit, and is refused like one.
func TestRestoreIsLimited(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobs = 1 }, func(f *fixture) {
		id, made := f.finished(nil)
		f.restore(id, made[3])
		f.restore(id, made[3])
		got := lines(f.frames("sess_1"))
		if slices.Sort(got); !slices.Equal(got, []string{"job.accepted msg_2", "job.failed msg_3 RESOURCE_EXHAUSTED", "job.started msg_2"}) {
			t.Errorf("sent %v, want one job and a refusal", got)
		}
		time.Sleep(time.Minute)
		f.frames("sess_1")
		f.e.Drain()
		f.restore(id, made[3])
		f.want("a drained engine accepts no job", "job.failed msg_4 UNAVAILABLE")
	})
}

// A restore repeated on another connection is performed once, also if the job has ended
// meanwhile.
func TestRestoreRepeated(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		id, made := f.finished(nil)
		q := f.restoreRequest("sess_1", id, made[2])
		f.sendRestore(q)
		f.want("the ended job is continued as a new one", "job.accepted msg_2", "job.started")
		q.Recheck = true
		f.sendRestore(q)
		again := f.want("the same job", "job.accepted msg_2")[0]
		time.Sleep(1500 * time.Millisecond)
		f.frames("sess_1")

		q = f.restoreRequest("sess_1", again.JobID, made[2])
		f.sendRestore(q)
		f.want("the running job is restored", "ack msg_3", "job.started msg_2")
		q.Recheck = true
		f.sendRestore(q)
		f.want("nothing is done again", "ack msg_3")
		time.Sleep(time.Minute)
		f.frames("sess_1")
		f.sendRestore(q)
		f.want("no new job either", "ack msg_3")
		f.expectNoState("")
	})
}

// An idempotency key is good for one restore, and not for another.
func TestRestoreWithAKey(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		id, made := f.finished(nil)
		for _, checkpoint := range []string{made[2], made[2], made[3]} {
			q := f.restoreRequest("sess_1", id, checkpoint)
			q.Envelope.IdempotencyKey = "k"
			f.sendRestore(q)
		}
		frames := f.frames("sess_1")
		got := lines(frames)
		if !slices.Contains(got, "job.failed msg_4 DUPLICATE_KEY") || jobOf(frames, "msg_2") != jobOf(frames, "msg_3") {
			t.Errorf("sent %v, want one job and a refusal", got)
		}
	})
}

// Of a restore and the job's end one comes first; then the restore makes a new
// job. Either way each ends once.
func TestRestoreRacesTheEnd(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", checkpoints, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if j.Restored() != nil {
				return arcp.Raw("2"), nil
			}
			err := j.Checkpoint("", 1)
			time.Sleep(time.Second)
			return arcp.Raw("1"), err
		})
		acked := 0
		for range 200 {
			m := f.submit("t", "{}")
			frames := f.frames("sess_1")
			id := jobOf(frames, m)
			time.Sleep(time.Second)
			again := f.restore(id, checkpointIDs(t, frames)[0])
			time.Sleep(time.Minute)
			got := lines(f.frames("sess_1"))
			ends := 0
			for _, l := range got {
				if strings.HasPrefix(l, "job.completed") {
					ends++
				}
			}
			switch {
			case slices.Contains(got, "ack "+string(again)) && ends == 1:
				acked++
			case slices.Contains(got, "job.accepted "+string(again)) && ends == 2:
			default:
				t.Fatalf("sent %v", got)
			}
		}
		t.Logf("%d of 200 came before the end", acked)
		f.expectNoState("")
	})
}
