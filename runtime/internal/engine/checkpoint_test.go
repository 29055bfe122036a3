package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
)

func checkpoints(c *tool.Capability) { c.Recovery = tool.RecoveryCheckpoint }

// counter counts seconds up to a number, from its checkpoint on.
func counter(to int) tool.Func {
	return func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		n := 0
		if raw := j.Restored(); raw != nil {
			if err := arcp.Unmarshal(raw, &n); err != nil {
				return nil, err
			}
		}
		from := n
		for n < to {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			n++
			if err := errors.Join(j.Log("info", fmt.Sprint(n), nil), j.Checkpoint(fmt.Sprint("step ", n), n)); err != nil {
				return nil, err
			}
		}
		return fmt.Appendf(nil, `{"from":%d}`, from), nil
	}
}

// A checkpoint is an event without the data. It follows the events emitted before it.
func TestCheckpointEvent(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", checkpoints, counter(1))
		f.submit("t", "{}")
		time.Sleep(time.Second)
		fr := f.want("the checkpoint follows the log event", "job.accepted", "job.started", "log", "job.checkpoint msg_1", "job.completed")[3]
		p, err := arcp.DecodePayload[arcp.JobCheckpointPayload](&fr.Envelope)
		if err != nil || !arcp.HasPrefix(p.CheckpointID, arcp.CheckpointPrefix) || p.Label != "step 1" || p.Data != nil || fr.EventSeq == 0 {
			t.Errorf("%s, %v: want an id and the label, numbered", fr.Payload, err)
		}
	})
}

// The call returns when the checkpoint is durable, not before.
func TestCheckpointIsDurable(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		saved := make(chan error, 1)
		f.tool("t", checkpoints, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Second)
			err := j.Checkpoint("", nil)
			saved <- err
			return nil, err
		})
		f.submit("t", "{}")
		f.want("the job runs", "job.accepted", "job.started")
		release := f.st.hold()
		time.Sleep(time.Minute)
		if len(saved) != 0 {
			t.Error("Checkpoint returned before its commit")
		}
		f.st.gate <- struct{}{}
		synctest.Wait()
		if n := len(saved); n != 1 {
			t.Fatalf("Checkpoint returned %d times after its commit, want once", n)
		}
		if err := <-saved; err != nil {
			t.Errorf("Checkpoint = %v, want nil", err)
		}
		release()
		f.want("the durable checkpoint is sent", "job.checkpoint", "job.completed")
	})
}

// The last ten checkpoints are stored, with their ids, across attempts and restarts.
func TestTenCheckpointsAreKept(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", checkpoints, counter(40))
		f.submit("t", "{}")
		time.Sleep(17*time.Second + time.Millisecond)
		frames := f.frames("sess_1")
		f.restart(1)
		time.Sleep(10 * time.Second)
		frames = append(frames, f.frames("sess_1")...)
		ids := make(map[uint64]string) // by number
		for i := range uint64(job.MaxCheckpoints) {
			rec, err := f.st.Get(t.Context(), checkpointKey(frames[0].JobID, i))
			var p job.Checkpoint
			if err == nil {
				err = arcp.Unmarshal(rec.Value, &p)
			}
			if err != nil || string(p.Data) != fmt.Sprint(p.N) || p.Label != fmt.Sprint("step ", p.N) {
				t.Errorf("record %d: %s, %v", i, rec.Value, err)
			}
			ids[p.N] = p.ID
		}
		n := uint64(0)
		for _, fr := range frames {
			if fr.Type == arcp.JobCheckpoint {
				p, _ := arcp.DecodePayload[arcp.JobCheckpointPayload](&fr.Envelope)
				if n++; n > 17 && ids[n] != p.CheckpointID {
					t.Errorf("checkpoint %d has the id %s, its record %q", n, p.CheckpointID, ids[n])
				}
			}
		}
		if n != 27 || len(ids) != job.MaxCheckpoints {
			t.Errorf("%d checkpoints, %d kept; want 27 and 10", n, len(ids))
		}
		f.e.SessionJobs().CancelAll("sess_1", "")
	})
}

func TestCheckpointRefused(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", checkpoints, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if err := j.Checkpoint("", func() {}); err == nil {
				t.Error("Checkpoint of a function = nil, want an error")
			}
			e, ok := errors.AsType[*arcp.Error](j.Checkpoint("", strings.Repeat("x", maxCheckpointData)))
			if !ok || e.Code != arcp.CodeResourceExhausted || e.Retryable {
				t.Errorf("too much data: %v", e)
			}
			if err := j.Checkpoint("", strings.Repeat("x", maxCheckpointData-2)); err != nil {
				t.Errorf("as much as may be: %v", err)
			}
			return nil, nil
		})
		f.submit("t", "{}")
		f.want("the largest data is taken", "job.accepted", "job.started", "job.checkpoint", "job.completed")
	})
}

// Checkpoints made by several goroutines of a tool are all stored.
func TestCheckpointsTogether(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", checkpoints, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			var all sync.WaitGroup
			for n := range 25 {
				all.Go(func() {
					if err := j.Checkpoint("", n); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			return nil, nil
		})
		f.submit("t", "{}")
		if got := f.frames("sess_1"); len(got) != 28 {
			t.Errorf("%v: want 25 checkpoints", lines(got))
		}
	})
}

// A retry continues from the checkpoint, too.
func TestRetryFromTheCheckpoint(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		count := counter(5)
		f.tool("t", func(c *tool.Capability) { checkpoints(c); threeAttempts(c) },
			func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				if j.Attempt() == 1 {
					_, err := counter(2)(ctx, j, args)
					return nil, errors.Join(err, errUnavailable())
				}
				return count(ctx, j, args)
			})
		f.submit("t", "{}")
		time.Sleep(time.Minute)
		frames := f.frames("sess_1")
		if got := string(frames[len(frames)-1].Payload); got != `{"value":{"from":2}}` {
			t.Errorf("ended with %s, want it to go on from 2", got)
		}
	})
}

// A shutdown pauses jobs at their next checkpoint and returns when all are paused. The next
// start resumes from there.
func TestPause(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { checkpoints(c); c.Limits.Concurrency = 2 }, counter(5))
		f.submit("t", "{}")
		time.Sleep(2500 * time.Millisecond)
		f.submit("t", "{}")
		id := f.frames("sess_1")[0].JobID
		began := time.Now()
		f.stop(time.Minute)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Stop took %v, want until the last checkpoint", took)
		}
		f.want("no end", "log msg_1", "job.checkpoint msg_1", "log msg_2", "job.checkpoint msg_2")
		if row := f.row(id); row.State != arcp.StatePaused {
			t.Errorf("the job is %s, want paused", row.State)
		}
		f.restart(2)
		time.Sleep(4 * time.Second)
		frames := f.frames("sess_1")
		got := []string{}
		for _, fr := range frames {
			if fr.Type == arcp.JobCompleted {
				got = append(got, string(fr.Payload))
			}
		}
		if len(got) != 2 || got[0] != `{"value":{"from":3}}` || got[1] != `{"value":{"from":1}}` {
			t.Errorf("ended with %v, want both to go on where they were", got)
		}
		if n := f.gauge("arcp_jobs_recovered_total"); n != 2 {
			t.Errorf("%v jobs recovered", n)
		}
		f.expectNoState("")
	})
}

// Checkpoint returns ErrPaused, and the tool's context is cancelled with a cause. The tool's
// result is then dropped, and its events are refused.
func TestPausedTool(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var err, late, cause error
		f.tool("t", checkpoints, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Second)
			err = j.Checkpoint("", 1)
			late, cause = j.Log("info", "late", nil), context.Cause(ctx)
			time.Sleep(time.Second)
			return arcp.Raw("1"), nil
		})
		q := f.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("60"))
		f.send(q)
		id := f.frames("sess_1")[0].JobID
		f.stop(time.Minute)
		f.want("the job pauses at its checkpoint", "job.checkpoint")
		f.cancel(id, 0)
		f.want("nothing is done after Stop", "cancel.refused msg_2 unavailable")
		time.Sleep(time.Hour)
		f.want("whatever the time is")
		if !errors.Is(err, tool.ErrPaused) || late == nil || cause == nil {
			t.Errorf("Checkpoint = %v, Log = %v, cause %v", err, late, cause)
		}
	})
}

// A paused job can be cancelled while others still run. A job cancelled before its checkpoint
// ends at the checkpoint.
func TestCancelAndPause(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", checkpoints, counter(5))
		f.tool("stubborn", checkpoints, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(4 * time.Second)
			return nil, j.Checkpoint("", 1)
		})
		f.submit("t", "{}")
		f.submit("stubborn", "{}")
		frames := f.frames("sess_1")
		go f.stop(time.Minute)
		time.Sleep(1500 * time.Millisecond)
		f.want("the first job pauses at a checkpoint", "log msg_1", "job.checkpoint msg_1")
		f.cancel(jobOf(frames, "msg_1"), 0)
		f.want("paused", "cancel.accepted msg_3", "job.cancelled msg_1")
		f.cancel(jobOf(frames, "msg_2"), 30*time.Second)
		time.Sleep(3 * time.Second)
		f.want("on its way", "cancel.accepted msg_4", "job.checkpoint msg_2", "job.cancelled msg_2 CANCELLED")
		f.restart(0)
	})
}

// While the disk is nearly full, or the store has reached its bound, no job is accepted,
// tools wait, and jobs still end.
func TestFull(t *testing.T) {
	t.Run("disk", func(t *testing.T) { testFull(t, func(s *fakeSpace) *atomic.Bool { return &s.disk }) })
	t.Run("data", func(t *testing.T) { testFull(t, func(s *fakeSpace) *atomic.Bool { return &s.data }) })
}

// fakeSpace is a Space that a test sets.
type fakeSpace struct{ disk, exhausted, data atomic.Bool }

func (s *fakeSpace) DiskFull() bool      { return s.disk.Load() }
func (s *fakeSpace) DiskExhausted() bool { return s.exhausted.Load() }
func (s *fakeSpace) DataFull() bool      { return s.data.Load() }

func testFull(t *testing.T, fullOf func(*fakeSpace) *atomic.Bool) {
	var space fakeSpace
	full := fullOf(&space)
	runEngine(t, func(c *Config) { c.Space = &space }, func(f *fixture) {
		f.tool("t", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Second)
			return nil, j.Log("info", "x", nil)
		})
		f.tool("quiet", nil, sleeper(time.Second))
		f.submit("t", "{}")
		f.submit("t", "{}")
		f.submit("quiet", "{}")
		frames := f.frames("sess_1")
		full.Store(true)
		f.submit("t", "{}")
		fr := f.want("a submit is refused", "job.failed msg_4 RESOURCE_EXHAUSTED")[0]
		if !strings.Contains(string(fr.Payload), `"retry_after_seconds":10`) {
			t.Errorf("%s: want a time to wait", fr.Payload)
		}
		time.Sleep(time.Minute)
		f.want("what is not emitted ends", "job.completed msg_3")
		f.cancel(jobOf(frames, "msg_2"), time.Second)
		time.Sleep(time.Second)
		f.want("so does what is cancelled, which is woken", "cancel.accepted", "job.cancelled msg_2 CANCELLED")
		full.Store(false)
		f.e.SpaceFreed()
		f.want("and the other goes on", "log msg_1", "job.completed msg_1")
		f.expectNoState("")
	})
}

// BenchmarkCheckpoint measures the checkpoints of one job, one after the other.
func BenchmarkCheckpoint(b *testing.B) {
	st := mem.Open(mem.Options{})
	cfg := Config{Store: st, Tools: tool.NewRegistry(), Log: eventlog.New(st, eventlog.Options{}),
		Metrics: metrics.New(prometheus.NewRegistry(), "test")}
	done := make(chan error)
	t, err := tool.NewRaw(tool.Capability{Name: "t", Limits: tool.Limits{Timeout: -1}},
		func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			var err error
			for b.Loop() {
				err = errors.Join(err, j.Checkpoint("", map[string]int{"n": 1}))
			}
			done <- err
			return nil, nil
		})
	if err = errors.Join(err, cfg.Tools.Register(t)); err != nil {
		b.Fatal(err)
	}
	e := New(cfg)
	b.ReportAllocs()
	e.Submit(&Submit{Envelope: &arcp.Envelope{ID: "msg_1"}, Payload: &arcp.ToolInvokePayload{Tool: "t"}, Answers: discardAnswers{}})
	if err := <-done; err != nil {
		b.Error(err)
	}
	e.Stop(b.Context())
	cfg.Log.Close()
}
