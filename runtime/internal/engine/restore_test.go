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

// restoring is a request to restore in the making.
func (r *fixture) restoring(session arcp.SessionID, id arcp.JobID, checkpoint string) restoreJob {
	r.Helper()
	r.n++
	return restoreJob{Submit: Submit{Envelope: &arcp.Envelope{ID: arcp.MessageID(fmt.Sprintf("msg_%d", r.n)), JobID: id},
		Session: session, Principal: "alice", Answers: r.session(session)}, Job: id, Checkpoint: checkpoint}
}

// sendRestore sends a request to restore.
func (r *fixture) sendRestore(q restoreJob) {
	r.Helper()
	r.e.RestoreCheckpoint(q.Submit, &arcp.CheckpointRestorePayload{CheckpointID: q.Checkpoint})
}

// restore restores for sess_1.
func (r *fixture) restore(id arcp.JobID, checkpoint string) arcp.MessageID {
	r.Helper()
	q := r.restoring("sess_1", id, checkpoint)
	r.sendRestore(q)
	return q.Envelope.ID
}

// madeBy are the ids of the checkpoints among frames.
func madeBy(t *testing.T, frames []frame) (ids []string) {
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

// ended is the payload of the last of some frames.
func ended(frames []frame) string {
	if len(frames) == 0 {
		return ""
	}
	return string(frames[len(frames)-1].Payload)
}

// counting runs a counter up to 5 for a while and returns the job and its
// checkpoints so far.
func (r *fixture) counting(change func(*tool.Capability), d time.Duration) (arcp.JobID, []string) {
	r.Helper()
	r.tool("t", func(c *tool.Capability) {
		checkpoints(c)
		if change != nil {
			change(c)
		}
	}, counter(5))
	r.submit("t", "{}")
	time.Sleep(d)
	frames := r.frames("sess_1")
	return frames[0].JobID, madeBy(r.T, frames)
}

// A running job continues from an earlier checkpoint, with another attempt.
func TestRestore(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		id, made := r.counting(oneAtATime, 3500*time.Millisecond)
		r.restore(id, made[0])
		r.want("at once", "ack msg_2", "job.started msg_1")
		if row := r.row(id); row.Attempt != 2 || row.State != arcp.StateRunning {
			t.Errorf("attempt %d is %s, want the second to run", row.Attempt, row.State)
		}
		time.Sleep(time.Minute)
		if got := ended(r.want("", "log", "job.checkpoint", "log", "job.checkpoint", "log", "job.checkpoint", "log", "job.checkpoint",
			"job.completed msg_1")); got != `{"value":{"from":1}}` {
			t.Errorf("ended with %s, want it to have gone on from 1", got)
		}
		r.expectNoState("")
	})
}

// Until the next attempt has made a checkpoint, restarts continue from the chosen one; then
// from the latest. The later ones are kept, and may be chosen.
func TestRestoreAndRestart(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		id, made := r.counting(nil, 3500*time.Millisecond)
		r.restore(id, made[1])
		r.want("", "ack", "job.started")
		r.restart(1)
		r.want("", "job.started")
		r.restart(1)
		time.Sleep(1500 * time.Millisecond)
		r.want("", "job.started", "log", "job.checkpoint")
		r.restart(1)
		time.Sleep(500 * time.Millisecond)
		r.want("", "job.started")
		r.restore(id, made[2])
		time.Sleep(time.Minute)
		if got := ended(r.frames("sess_1")); got != `{"value":{"from":3}}` {
			t.Errorf("ended with %s, want it to have gone on from 3", got)
		}
	})
}

// Whenever the runtime crashes, an acknowledged restore is in effect, and one without an
// acknowledgement is not.
func TestCrashDuringRestore(t *testing.T) {
	for commits := 1; commits <= 4; commits++ {
		runEngine(t, nil, func(r *fixture) {
			var from []string
			r.tool("t", checkpoints, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				from = append(from, string(j.Restored()))
				return counter(5)(ctx, j, args)
			})
			r.submit("t", "{}")
			time.Sleep(3500 * time.Millisecond)
			frames := r.frames("sess_1")
			id := frames[0].JobID
			r.st.crashAfter(commits)
			m := r.restore(id, madeBy(t, frames)[0])
			synctest.Wait()
			acked := slices.Contains(lines(r.frames("sess_1")), "ack "+string(m))
			r.restart(1)
			synctest.Wait()
			want := "3"
			if acked {
				want = "1"
			}
			if got := from[len(from)-1]; got != want {
				t.Errorf("crash after %d commits, acknowledged %t: goes on from %s, want %s", commits, acked, got, want)
			}
			time.Sleep(time.Minute)
			if got := lines(r.frames("sess_1")); got[len(got)-1] != "job.completed msg_1" {
				t.Errorf("ended with %v", got)
			}
			r.expectNoState("")
		})
	}
}

// A crash right after the acknowledgement has the same effect as a later one.
func TestCrashAfterTheAck(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		id, made := r.counting(nil, 3500*time.Millisecond)
		r.st.mu.Lock()
		gate := make(chan struct{}, 1)
		r.st.gate = gate
		r.st.mu.Unlock()
		gate <- struct{}{} // one commit
		r.restore(id, made[0])
		r.want("acknowledged, and nothing behind it", "ack msg_2")
		if row := r.row(id); row.State != arcp.StateQueued || row.Attempt != 2 {
			t.Errorf("%s, attempt %d: want the second one to be due", row.State, row.Attempt)
		}
		r.st.breakWith(errCrash)
		close(gate)
		r.restart(1)
		time.Sleep(time.Minute)
		if got := ended(r.frames("sess_1")); got != `{"value":{"from":1}}` {
			t.Errorf("ended with %s", got)
		}
	})
}

// An attempt that does not stop is abandoned after five seconds. Its calls are refused
// meanwhile.
func TestRestoreAbandonsTool(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		var late error
		r.tool("t", func(c *tool.Capability) { checkpoints(c); oneAtATime(c) },
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
		r.submit("t", "{}")
		frames := r.frames("sess_1")
		id := frames[0].JobID
		r.restore(id, madeBy(t, frames)[0])
		time.Sleep(abandonAfter - time.Second)
		r.want("it may still stop", "ack msg_2")
		time.Sleep(2 * time.Second)
		if got := ended(r.want("", "job.started", "job.completed")); got != `{"value":1}` {
			t.Errorf("ended with %s, want the second attempt's result", got)
		}
		time.Sleep(time.Hour)
		r.want("one end")
		if late == nil {
			t.Error("a checkpoint of an attempt that was stopped was taken")
		}
		if n := r.gauge("arcp_tools_abandoned_total"); n != 1 {
			t.Errorf("%v tools left behind, want 1", n)
		}
		r.expectNoState("")
	})
}

// A paused job, or one waiting for its retry, starts from the checkpoint in its next attempt.
// Stop returns at once.
func TestRestoreBetweenAttempts(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", func(c *tool.Capability) { checkpoints(c); thrice(c) },
			func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				if j.Attempt() == 1 {
					_, err := counter(2)(ctx, j, args)
					return nil, errors.Join(err, errUnavailable())
				}
				return counter(5)(ctx, j, args)
			})
		q := r.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("60"))
		r.send(q)
		time.Sleep(2*time.Second + time.Millisecond)
		frames := r.frames("sess_1")
		id := frames[0].JobID
		r.restore(id, "chk_none")
		r.want("", "nack msg_2 NOT_FOUND")
		r.restore(id, madeBy(t, frames)[0])
		r.want("", "ack msg_3")
		began := time.Now()
		r.stop(time.Minute)
		if took := time.Since(began); took != 0 {
			t.Errorf("Stop took %v", took)
		}
		r.restart(1)
		time.Sleep(30 * time.Second)
		if got := ended(r.frames("sess_1")); got != `{"value":{"from":1}}` {
			t.Errorf("ended with %s, want it to have gone on from 1", got)
		}
	})
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", checkpoints, counter(5))
		q := r.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("10"))
		r.send(q)
		time.Sleep(2500 * time.Millisecond)
		r.tool("slow", checkpoints, sleeper(30*time.Second))
		r.submit("slow", "{}")
		frames := r.frames("sess_1")
		id, made := frames[0].JobID, madeBy(t, frames)
		go r.stop(time.Minute)
		time.Sleep(time.Second)
		r.want("", "log", "job.checkpoint")
		r.restore(id, made[0])
		r.want("paused", "ack msg_3")
		time.Sleep(3 * time.Second)
		r.restore(id, made[0])
		r.want("also when its time is nearly over", "ack msg_4")
		time.Sleep(10 * time.Second)
		r.restore(id, made[1])
		r.want("it stands still", "ack msg_5")
		time.Sleep(time.Minute)
		synctest.Wait()
		r.restart(1)
		time.Sleep(time.Minute)
		if last := lines(r.frames("sess_1")); last[len(last)-1] != "job.failed msg_1 TIMEOUT" {
			t.Errorf("ended with %v, want it to have run for too long", last)
		}
	})
}

// A restore between two attempts preserves the job's maximum runtime.
func TestRestoreKeepsTheMaximumRuntime(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", func(c *tool.Capability) { checkpoints(c); thrice(c) }, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			e := arcp.Errorf(arcp.CodeUnavailable, "later").RetryAfter(9)
			return nil, errors.Join(j.Checkpoint("", 1), e)
		})
		q := r.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("10"))
		r.send(q)
		frames := r.frames("sess_1")
		r.restore(frames[0].JobID, madeBy(t, frames)[0])
		r.want("", "ack")
		time.Sleep(time.Minute)
		got := r.frames("sess_1")
		if last := got[len(got)-1]; last.Type != arcp.JobFailed {
			t.Errorf("ended with %v", last)
		}
		r.expectNoState("")
	})
}

func TestRestoreIsRefused(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.session("sess_2")
		r.tool("other", recovery(tool.RecoveryRerun), func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if err := j.Checkpoint("", 1); err != nil {
				return nil, err
			}
			return wait(ctx, j, args)
		})
		r.tool("t", checkpoints, counter(100))
		q := r.request("sess_1", "t", "{}")
		q.payload.StrictCancel = true
		r.send(q)
		r.submit("other", "{}")
		time.Sleep(12500 * time.Millisecond)
		frames := r.frames("sess_1")
		id, other, made := jobOf(frames, "msg_1"), jobOf(frames, "msg_2"), madeBy(t, frames)
		r.restore("job_none", made[0])
		r.want("an unknown job", "nack msg_3 JOB_NOT_FOUND")
		foreign := r.restoring("sess_1", id, made[5])
		foreign.Principal = "mallory"
		r.sendRestore(foreign)
		r.want("a job of another principal", "nack msg_4 JOB_NOT_FOUND")
		r.restore(id, "chk_none")
		r.want("an unknown checkpoint", "nack msg_5 NOT_FOUND")
		r.restore(id, made[1])
		r.want("one that is not kept any more", "nack msg_6 NOT_FOUND")
		r.sendRestore(r.restoring("sess_2", id, made[5]))
		if got := lines(r.frames("sess_2")); len(got) != 1 || got[0] != "nack msg_7 PERMISSION_DENIED" {
			t.Errorf("another session is told %v", got)
		}
		r.restore(other, made[0])
		r.want("a tool that begins at the start", "nack msg_8 FAILED_PRECONDITION")
		r.want("and nothing has happened to them")
		if row := r.row(id); row.Attempt != 1 {
			t.Errorf("attempt %d", row.Attempt)
		}
		r.cancel(id, 0)
		r.restore(id, made[5])
		r.cancel(other, 0)
		got := lines(r.frames("sess_1"))
		if !slices.Contains(got, "nack msg_10 FAILED_PRECONDITION") && !slices.Contains(got, "job.accepted msg_10") {
			t.Errorf("while it is cancelled: %v", got)
		}
		foreign = r.restoring("sess_1", id, made[5])
		foreign.Principal = "mallory"
		r.sendRestore(foreign)
		r.restore(id, "chk_none")
		r.restore(other, made[0])
		got = lines(r.frames("sess_1"))
		for _, want := range []string{"nack msg_12 JOB_NOT_FOUND", "nack msg_13 NOT_FOUND", "nack msg_14 FAILED_PRECONDITION"} {
			if !slices.Contains(got, want) {
				t.Errorf("of jobs that have ended: %v, want %s", got, want)
			}
		}
		r.e.SessionJobs().CancelAll("sess_1", "")
	})
}

// finished lives a job's life and returns it with its checkpoints.
func (r *fixture) finished(change func(*arcp.ToolInvokePayload)) (arcp.JobID, []string) {
	r.Helper()
	r.tool("t", func(c *tool.Capability) { checkpoints(c); early(c) }, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
		raw, err := counter(5)(ctx, j, args)
		return slices.Concat(arcp.Raw("["), raw, arcp.Raw(","), args, arcp.Raw("]")), err
	})
	q := r.request("sess_1", "t", `{"a":1.0}`)
	if change != nil {
		change(&q.payload)
	}
	r.send(q)
	time.Sleep(10 * time.Second)
	frames := r.frames("sess_1")
	return frames[len(frames)-1].JobID, madeBy(r.T, frames)
}

// A job like a finished one begins with its checkpoint.
func TestRestoreOfAFinishedJob(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		id, made := r.finished(func(p *arcp.ToolInvokePayload) {
			p.Direct, p.StrictCancel, p.MaxRuntimeSec = true, true, new(arcp.Number("77"))
		})
		r.sendRestore(r.restoring("sess_2", id, made[2]))
		frames := r.frames("sess_2")
		p, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&frames[0].Envelope)
		want := arcp.RestoredFrom{JobID: id, CheckpointID: made[2]}
		if err != nil || frames[0].String() != "job.accepted msg_2" || p.JobID == id || p.RestoredFrom == nil || *p.RestoredFrom != want {
			t.Fatalf("%v %s: want it accepted, restored from %v", frames[0], frames[0].Payload, want)
		}
		if row := r.row(p.JobID); row.Session != "sess_2" || row.Attempt != 1 || !strings.Contains(string(row.Options), `"max_runtime_sec":77`) ||
			!strings.Contains(string(row.Options), `"strict_cancel":true`) {
			t.Errorf("row %+v, options %s", row, row.Options)
		}
		time.Sleep(time.Minute)
		if got := ended(r.frames("sess_2")); got != `{"value":[{"from":3},{"a":1.0}]}` {
			t.Errorf("ended with %s, want it to have gone on from 3 with the same arguments", got)
		}
		r.want("the old session hears nothing")
		r.expectNoState("")
	})
}

// The new job has the lease of the finished job, within the principal's present lease.
func TestRestoredJobKeepsItsLease(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		id, made := r.finished(func(p *arcp.ToolInvokePayload) {
			p.LeaseRequest = arcp.Raw(`{"fs.read":["/data/x/**"],"model.use":["small"],"cost.budget":["USD:1.00"]}`)
		})
		limited := func(text string) restoreJob {
			q := r.restoring("sess_2", id, made[2])
			var err error
			if q.Lease, err = lease.Decode(arcp.Raw(text)); err != nil {
				t.Fatal(err)
			}
			return q
		}
		want := `"lease":{"cost.budget":["USD:1.00"],"fs.read":["/data/x/**"],"model.use":["small"]}`
		for why, q := range map[string]restoreJob{
			"the principal has no lease": r.restoring("sess_2", id, made[2]),
			"the principal may do more":  limited(`{"fs.read":["/**"],"model.use":["*"],"cost.budget":["USD:100.00"]}`),
		} {
			r.sendRestore(q)
			frames := r.frames("sess_2")
			if frames[0].Type != arcp.JobAccepted {
				t.Fatalf("%s: the restore is answered by %v %s, want job.accepted", why, frames[0], frames[0].Payload)
			}
			if got := string(r.row(frames[0].JobID).Options); !strings.Contains(got, want) {
				t.Errorf("%s: options %s, want %s", why, got, want)
			}
			time.Sleep(time.Minute)
			r.frames("sess_2")
		}
		r.sendRestore(limited(`{"fs.read":["/data/y"]}`))
		if got := lines(r.frames("sess_2")); len(got) != 1 || !strings.HasSuffix(got[0], "PERMISSION_DENIED") {
			t.Errorf("the principal may do less now: %v", got)
		}
	})
}

// It is no less durable than any job: it begins with its checkpoint also in
// another process, when the finished job is long gone.
func TestRestoredJobOutlivesTheOriginalJob(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		id, made := r.finished(nil)
		r.tool("later", oneAtATime, wait)
		r.restore(id, made[2])
		time.Sleep(500 * time.Millisecond)
		f := r.want("", "job.accepted", "job.started")[0]
		if err := r.delete(id); err != nil {
			t.Fatal(err)
		}
		r.restart(1)
		time.Sleep(1500 * time.Millisecond)
		r.want("", "job.started", "log", "job.checkpoint")
		r.restore(f.JobID, made[2])
		time.Sleep(time.Minute)
		if got := ended(r.want("its first checkpoint is the one it began with", "ack msg_3", "job.started msg_2", "log", "job.checkpoint", "log",
			"job.checkpoint", "job.completed msg_2")); got != `{"value":[{"from":3},{"a":1.0}]}` {
			t.Errorf("ended with %s", got)
		}
	})
}

// It counts like a submit, and is refused like one.
func TestRestoreIsLimited(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobs = 1 }, func(r *fixture) {
		id, made := r.finished(nil)
		r.restore(id, made[3])
		r.restore(id, made[3])
		got := lines(r.frames("sess_1"))
		if slices.Sort(got); !slices.Equal(got, []string{"job.accepted msg_2", "job.failed msg_3 RESOURCE_EXHAUSTED", "job.started msg_2"}) {
			t.Errorf("sent %v, want one job and a refusal", got)
		}
		time.Sleep(time.Minute)
		r.frames("sess_1")
		r.e.Drain()
		r.restore(id, made[3])
		r.want("", "job.failed msg_4 UNAVAILABLE")
	})
}

// A restore repeated on another connection is performed once, also if the job has ended
// meanwhile.
func TestRestoreRepeated(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		id, made := r.finished(nil)
		q := r.restoring("sess_1", id, made[2])
		r.sendRestore(q)
		r.want("", "job.accepted msg_2", "job.started")
		q.Recheck = true
		r.sendRestore(q)
		again := r.want("the same job", "job.accepted msg_2")[0]
		time.Sleep(1500 * time.Millisecond)
		r.frames("sess_1")

		q = r.restoring("sess_1", again.JobID, made[2])
		r.sendRestore(q)
		r.want("", "ack msg_3", "job.started msg_2")
		q.Recheck = true
		r.sendRestore(q)
		r.want("nothing is done again", "ack msg_3")
		time.Sleep(time.Minute)
		r.frames("sess_1")
		r.sendRestore(q)
		r.want("no new job either", "ack msg_3")
		r.expectNoState("")
	})
}

// An idempotency key is good for one restore, and not for another.
func TestRestoreWithAKey(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		id, made := r.finished(nil)
		for _, checkpoint := range []string{made[2], made[2], made[3]} {
			q := r.restoring("sess_1", id, checkpoint)
			q.Envelope.IdempotencyKey = "k"
			r.sendRestore(q)
		}
		frames := r.frames("sess_1")
		got := lines(frames)
		if !slices.Contains(got, "job.failed msg_4 DUPLICATE_KEY") || jobOf(frames, "msg_2") != jobOf(frames, "msg_3") {
			t.Errorf("sent %v, want one job and a refusal", got)
		}
	})
}

// Of a restore and the job's end one comes first; then the restore makes a new
// job. Either way each ends once.
func TestRestoreRacesTheEnd(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		r.tool("t", checkpoints, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if j.Restored() != nil {
				return arcp.Raw("2"), nil
			}
			err := j.Checkpoint("", 1)
			time.Sleep(time.Second)
			return arcp.Raw("1"), err
		})
		acked := 0
		for range 200 {
			m := r.submit("t", "{}")
			frames := r.frames("sess_1")
			id := jobOf(frames, m)
			time.Sleep(time.Second)
			again := r.restore(id, madeBy(t, frames)[0])
			time.Sleep(time.Minute)
			got := lines(r.frames("sess_1"))
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
		r.expectNoState("")
	})
}
