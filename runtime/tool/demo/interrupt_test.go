package demo

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

func TestInterruptibleToolsAreMarked(t *testing.T) {
	want := map[string]bool{"demo.count": true, "demo.progress": true, "demo.sleep": true}
	r := tool.NewRegistry()
	if err := Register(r); err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Tools() {
		if d.Interruptible != want[d.Name] {
			t.Errorf("%s: interruptible %v, want %v", d.Ref(), d.Interruptible, want[d.Name])
		}
	}
}

// An interrupted tool stops at once, emits nothing until it is told to continue, and resumes
// at the same step.
func TestInterruptedToolsResume(t *testing.T) {
	for _, c := range []struct {
		tool, args string
		after      time.Duration // the interrupt
		before     int           // events until then
		events     int           // in all
		took       time.Duration // in all, with an hour's interrupt
	}{
		{"demo.sleep", `{"ms":60000}`, 0, 0, 0, time.Hour + time.Minute},
		{"demo.sleep", `{"ms":60000}`, 59 * time.Second, 0, 0, time.Hour + time.Minute},
		{"demo.progress", `{"steps":4,"interval_ms":10000}`, 25 * time.Second, 2, 4, time.Hour + 30*time.Second},
		{"demo.progress", `{"steps":10000,"interval_ms":0}`, 0, 0, 10000, time.Hour},
		{"demo.progress", `{"steps":1,"interval_ms":3600000}`, time.Minute, 0, 1, time.Hour + time.Minute},
		{"demo.count", `{"to":4,"interval_ms":10000}`, 25 * time.Second, 4, 8, time.Hour + 30*time.Second},
		{"demo.count", `{"to":10000,"interval_ms":0}`, 0, 0, 20000, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			job, start := newJob(), time.Now()
			events := func() int { return len(job.Record().Progress) + len(job.Record().Checkpoints) }
			if c.after == 0 {
				job.Interrupt()
			} else {
				time.AfterFunc(c.after, job.Interrupt)
			}
			go func() {
				time.Sleep(c.after)
				synctest.Wait()
				if !job.Record().Yielding {
					t.Errorf("%s %s does not notice the interrupt", c.tool, c.args)
				}
				time.Sleep(time.Hour)
				if n := events(); n != c.before {
					t.Errorf("%s %s emitted %d events while it was interrupted, want %d", c.tool, c.args, n, c.before)
				}
				job.Resume("faster")
			}()
			if _, err := job.Run(t.Context(), demo(t, c.tool), arcp.Raw(c.args)); err != nil {
				t.Errorf("%s %s: error = %v, want none", c.tool, c.args, err)
			}
			if took := time.Since(start); took != c.took {
				t.Errorf("%s %s took %v, want %v", c.tool, c.args, took, c.took)
			}
			if n := events(); n != c.events {
				t.Errorf("%s %s emitted %d events, want %d", c.tool, c.args, n, c.events)
			}
			if logs := job.Record().Logs; len(logs) != 1 || logs[0].Message != "guidance: faster" {
				t.Errorf("%s %s logged %+v, want the guidance", c.tool, c.args, logs)
			}
		})
	}
}

// An interrupted job can still be cancelled.
func TestStoppingWhileInterrupted(t *testing.T) {
	for ref, args := range map[string]string{
		"demo.sleep": `{"ms":1000}`, "demo.progress": `{"steps":3,"interval_ms":0}`, "demo.count": `{"to":3,"interval_ms":1000}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { cancel(arcp.Errorf(arcp.CodeCancelled, "enough")) })
			job := newJob()
			job.Interrupt()
			start := time.Now()
			if _, err := job.Run(ctx, demo(t, ref), arcp.Raw(args)); err == nil || err.Code != arcp.CodeCancelled || time.Since(start) != time.Minute {
				t.Errorf("%s: %v after %v, want it cancelled after a minute", ref, err, time.Since(start))
			}
		})
	}
}
