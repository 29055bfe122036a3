package tooltest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// run runs a function as a tool.
func run(t *testing.T, j *Job, c tool.Capability, fn func(context.Context, tool.Job) (any, error)) (string, *arcp.Error) {
	t.Helper()
	c.Name = "t"
	made, err := tool.New(c, func(ctx context.Context, job tool.Job, _ struct{}) (any, error) { return fn(ctx, job) })
	if err != nil {
		t.Fatal(err)
	}
	out, e := j.Run(t.Context(), made, nil)
	return string(out), e
}

func wantCode(t *testing.T, name string, err error, code arcp.Code) {
	t.Helper()
	if e, ok := errors.AsType[*arcp.Error](err); !ok || e == nil || e.Code != code {
		t.Errorf("%s: %v, want %s", name, err, code)
	}
}

func TestRecordHasWhatTheToolDid(t *testing.T) {
	j := New(Script{ID: "job_7", Attempt: 3, TraceID: "trace", Restored: arcp.Raw(`{"n":1}`), Dir: t.TempDir()})
	_, err := run(t, j, tool.Capability{}, func(ctx context.Context, job tool.Job) (any, error) {
		if job.ID() != "job_7" || job.Attempt() != 3 || job.TraceID() != "trace" || string(job.Restored()) != `{"n":1}` {
			t.Errorf("job %s, attempt %d, trace %s, restored %s", job.ID(), job.Attempt(), job.TraceID(), job.Restored())
		}
		job.ManualHeartbeat()
		job.Heartbeat()
		path, lease, err := job.Resources().Directory(ctx, tool.DirectoryRequest{For: time.Hour})
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(path, "f"), []byte("content"), 0o600); err != nil {
			return nil, err
		}
		b, err := job.Authority().Files().ReadFile(filepath.Join(path, "f"), 100)
		if err != nil || string(b) != "content" {
			t.Errorf("file = %q, %v", b, err)
		}
		_, again := lease.Touch(ctx)
		released := lease.Release(ctx)
		_, late := lease.Touch(ctx)
		if again != nil || released != nil || late == nil {
			t.Errorf("touch %v, release %v, touch again %v", again, released, late)
		}
		return nil, errors.Join(job.Log(arcp.LevelWarn, "m", nil), job.Emit("e", 1), job.Checkpoint("c", 2),
			job.Metric(arcp.MetricPayload{Name: "m", Unit: "s", Value: "3"}), job.Permissions().Check("p", "r", "o"))
	})
	if err != nil {
		t.Fatal(err)
	}
	r := j.Record()
	if len(r.Leases) != 1 || r.Leases[0].For != time.Hour || len(r.Checks) == 0 || r.Checks[len(r.Checks)-1] != (Check{"p", "r", "o"}) {
		t.Errorf("leases %+v, checks %+v", r.Leases, r.Checks)
	}
	r.Leases, r.Checks = nil, nil
	want := Record{Logs: []arcp.LogPayload{{Level: "warn", Message: "m"}}, Events: []arcp.EventEmitPayload{{Name: "e", Data: arcp.Raw("1")}},
		Metrics: []arcp.MetricPayload{{Name: "m", Unit: "s", Value: "3"}}, Checkpoints: []Checkpoint{{"c", arcp.Raw("2")}},
		ManualHeartbeat: true, Heartbeats: 1}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// A request without a scripted answer fails and does not block.
func TestUnscriptedRequestFails(t *testing.T) {
	j, ctx := New(Script{}), t.Context()
	job := j.Job()
	_, ask := job.Ask(ctx, tool.InputRequest{Prompt: "?"})
	_, choose := job.Choose(ctx, tool.ChoiceRequest{Prompt: "?"})
	_, call := job.Call(ctx, tool.Call{Tool: "t"})
	_, permit := job.Permissions().Request(ctx, tool.PermissionRequest{Permission: "p", Resource: "r", Operation: "o"})
	_, _, dir := job.Resources().Directory(ctx, tool.DirectoryRequest{})
	for name, err := range map[string]error{"ask": ask, "choose": choose, "call": call, "permission": permit, "directory": dir} {
		wantCode(t, name, err, arcp.CodeFailedPrecondition)
	}
	if a, err := job.Ask(ctx, tool.InputRequest{Prompt: "?", Default: arcp.Raw("1")}); err != nil || string(a.Value) != "1" {
		t.Errorf("with a default: %+v, %v", a, err)
	}
	if len(j.Record().Questions) != 4 {
		t.Errorf("questions %+v", j.Record().Questions)
	}
}

func TestAnswersAreChecked(t *testing.T) {
	job := New(Script{
		Ask:    func(tool.InputRequest) (tool.Answer, error) { return tool.Answer{Value: arcp.Raw(`"x"`)}, nil },
		Choose: func(tool.ChoiceRequest) (tool.Answer, error) { return tool.Answer{ChoiceID: "a"}, nil },
	}).Job()
	_, err := job.Ask(t.Context(), tool.InputRequest{Prompt: "?", Schema: arcp.Raw(`{"type":"integer"}`)})
	wantCode(t, "value", err, arcp.CodeFailedPrecondition)
	_, err = job.Choose(t.Context(), tool.ChoiceRequest{Prompt: "?", Options: []arcp.Option{{ID: "b"}}})
	wantCode(t, "choice", err, arcp.CodeFailedPrecondition)
	if a, err := job.Choose(t.Context(), tool.ChoiceRequest{Prompt: "?", Options: []arcp.Option{{ID: "a"}}}); err != nil || a.ChoiceID != "a" || a.ResolvedBy == "" {
		t.Errorf("Choose = %+v, %v, want the scripted option a", a, err)
	}
}

func TestChargesDebitTheBudget(t *testing.T) {
	j := New(Script{Budget: map[string]arcp.Number{"USD": "1.00"}})
	a := j.Job().Authority()
	if err := errors.Join(a.Charge("api", "USD", "0.7"), a.Charge("api", "EUR", "9"), a.Allow("fs.read", "/")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "more than is left", a.Charge("api", "USD", "0.31"), arcp.CodeBudgetExhausted)
	if err := j.Job().Metric(arcp.MetricPayload{Name: "cost.late", Unit: "USD", Value: "1"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "an operation after that", a.UseModel("m"), arcp.CodeBudgetExhausted)
	shared := New(Script{Budget: map[string]arcp.Number{"USD": "10"}})
	var charged atomic.Int32
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if shared.Job().Authority().Charge("api", "USD", "1") == nil {
				charged.Add(1)
			}
		})
	}
	group.Wait()
	if n := charged.Load(); n != 10 {
		t.Errorf("%d charges of 1 fit into 10", n)
	}
	if n := len(j.Record().Metrics); n != 3 {
		t.Errorf("%d metrics, want 3", n)
	}
}

func TestResultsAndFailures(t *testing.T) {
	c := tool.Capability{OutputSchema: arcp.Raw(`{"type":"string"}`)}
	_, err := run(t, New(Script{}), c, func(context.Context, tool.Job) (any, error) { return 1, nil })
	wantCode(t, "result", err, arcp.CodeInternal)
	j := New(Script{})
	_, err = run(t, j, tool.Capability{}, func(context.Context, tool.Job) (any, error) { panic("ouch") })
	wantCode(t, "panic", err, arcp.CodeInternal)
	if f := j.Record().Failures; len(f) != 1 || f[0].Error() != "tool panicked: ouch" {
		t.Errorf("failures %v", f)
	}
}

func TestInterruptPausesTheTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := New(Script{})
		time.AfterFunc(time.Second, j.Interrupt)
		time.AfterFunc(time.Minute, func() { j.Resume("slower"); j.WantCheckpoint() })
		start := time.Now()
		out, err := run(t, j, tool.Capability{}, func(ctx context.Context, job tool.Job) (any, error) {
			<-job.Interrupted()
			guidance, err := job.Yield(ctx)
			<-job.CheckpointWanted()
			return guidance, err
		})
		if err != nil || out != `"slower"` || time.Since(start) != time.Minute || j.Record().Yielding {
			t.Errorf("%s, %v after %v", out, err, time.Since(start))
		}
	})
}
