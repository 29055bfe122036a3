package demo

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

func TestRegisterAddsEveryTool(t *testing.T) {
	r := tool.NewRegistry()
	if err := Register(r); err != nil {
		t.Fatal(err)
	}
	one := []string{"1.0.0"}
	want := []arcp.Agent{
		{Name: "demo.access", Versions: one, Default: "1.0.0"}, {Name: "demo.artifact", Versions: one, Default: "1.0.0"},
		{Name: "demo.ask", Versions: one, Default: "1.0.0"},
		{Name: "demo.choose", Versions: one, Default: "1.0.0"},
		{Name: "demo.collect", Versions: one, Default: "1.0.0"},
		{Name: "demo.count", Versions: one, Default: "1.0.0"}, {Name: "demo.delegate", Versions: one, Default: "1.0.0"},
		{Name: "demo.echo", Versions: []string{"1.0.0", "0.9.0"}, Default: "1.0.0"},
		{Name: "demo.emit", Versions: one, Default: "1.0.0"}, {Name: "demo.fail", Versions: one, Default: "1.0.0"},
		{Name: "demo.model", Versions: one, Default: "1.0.0"},
		{Name: "demo.panic", Versions: one, Default: "1.0.0"}, {Name: "demo.permit", Versions: one, Default: "1.0.0"},
		{Name: "demo.progress", Versions: one, Default: "1.0.0"}, {Name: "demo.report", Versions: one, Default: "1.0.0"},
		{Name: "demo.resource", Versions: one, Default: "1.0.0"},
		{Name: "demo.sleep", Versions: one, Default: "1.0.0"}, {Name: "demo.spend", Versions: one, Default: "1.0.0"},
		{Name: "demo.stall", Versions: one, Default: "1.0.0"},
		{Name: "demo.stream", Versions: one, Default: "1.0.0"},
		{Name: "demo.stubborn", Versions: one, Default: "1.0.0"}, {Name: "demo.trace", Versions: one, Default: "1.0.0"},
	}
	var agents []arcp.Agent
	for _, f := range r.State().Families("") {
		agents = append(agents, f.Agent)
	}
	if diff := cmp.Diff(want, agents); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
	for _, d := range r.Tools() {
		if d.Name == "demo.resource" || d.Name == "demo.artifact" { // they store something
			continue
		}
		if d.Limits.Timeout < time.Hour || d.Limits.Concurrency >= 0 && d.Limits.Concurrency < 10_000 || !d.SideEffect.ReadOnly() {
			t.Errorf("%s: %+v, side effect %s: it cannot run for long, thousands at once", d.Ref(), d.Limits, d.SideEffect)
		}
	}
	if err := Register(r); err == nil {
		t.Error("the demo tools can be registered twice")
	}
}

// Each case is one call by a client, in a synctest bubble.
func TestCallsReturnTheirResult(t *testing.T) {
	for _, c := range []struct {
		tool, args string
		want       string // the result
		took       time.Duration
	}{
		{"demo.echo", ` { "a":1.0, "b":"é\n" } `, ` { "a":1.0, "b":"é\n" } `, 0},
		{"demo.echo", `[1]`, `[1]`, 0},
		{"demo.echo", ``, `{}`, 0},
		{"demo.echo@0.9.0", `{"a":1}`, `{"legacy":{"a":1}}`, 0},
		{"demo.echo@0.9.0", ``, `{"legacy":{}}`, 0},
		{"demo.emit", `{"count":0,"bytes":0}`, `{"emitted":0}`, 0},
		{"demo.emit", `{"count":3,"bytes":5}`, `{"emitted":3}`, 0},
		{"demo.emit", `{"count":3,"bytes":5,"interval_ms":100}`, `{"emitted":3}`, 200 * time.Millisecond},
		{"demo.emit", `{"count":3,"bytes":5,"interval_ms":100,"delay_ms":1000}`, `{"emitted":3}`, 1200 * time.Millisecond},
		{"demo.progress", `{"steps":0,"interval_ms":10}`, `{"steps":0}`, 0},
		{"demo.progress", `{"steps":4,"interval_ms":0}`, `{"steps":4}`, 0},
		{"demo.progress", `{"steps":4,"interval_ms":250}`, `{"steps":4}`, time.Second},
		{"demo.count", `{"to":0,"interval_ms":10}`, `{"count":0,"resumed_from":0}`, 0},
		{"demo.count", `{"to":4,"interval_ms":250}`, `{"count":4,"resumed_from":0}`, time.Second},
		{"demo.sleep", `{"ms":0}`, `{"slept_ms":0}`, 0},
		{"demo.sleep", `{"ms":3600000}`, `{"slept_ms":3600000}`, time.Hour},
		{"demo.sleep", `{"ms":1.5e3}`, `{"slept_ms":1500}`, 1500 * time.Millisecond},
		{"demo.stubborn", `{"ms":7000}`, `{"stubborn_ms":7000}`, 7 * time.Second},
		{"demo.stall", `{"ms":7000}`, `{"stalled_ms":7000}`, 7 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			got, err := newJob().Run(t.Context(), demo(t, c.tool), arcp.Raw(c.args))
			if err != nil || string(got) != c.want {
				t.Errorf("%s %s = %s, %v, want %s", c.tool, c.args, got, err, c.want)
			}
			if took := time.Since(start); took != c.took {
				t.Errorf("%s %s took %v, want %v", c.tool, c.args, took, c.took)
			}
		})
	}
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	for _, c := range []struct{ tool, args, message string }{
		{"demo.emit", `{"bytes":1}`, "argument /count is required"},
		{"demo.emit", `{"count":1}`, "argument /bytes is required"},
		{"demo.emit", `{"count":10000001,"bytes":1}`, "argument /count must be at most 10000000"},
		{"demo.emit", `{"count":-1,"bytes":1}`, "argument /count must be at least 0"},
		{"demo.emit", `{"count":1,"bytes":262145}`, "argument /bytes must be at most 262144"},
		{"demo.emit", `{"count":1,"bytes":-1}`, "argument /bytes must be at least 0"},
		{"demo.emit", `{"count":1,"bytes":1,"interval_ms":3600001}`, "argument /interval_ms must be at most 3600000"},
		{"demo.emit", `{"count":1,"bytes":1,"delay_ms":-1}`, "argument /delay_ms must be at least 0"},
		{"demo.emit", `{"count":1,"bytes":1,"x":1}`, "argument /x is not known; known are bytes, count, delay_ms, interval_ms"},
		{"demo.progress", `{"steps":1}`, "argument /interval_ms is required"},
		{"demo.progress", `{"interval_ms":1}`, "argument /steps is required"},
		{"demo.progress", `{"steps":10000001,"interval_ms":1}`, "argument /steps must be at most 10000000"},
		{"demo.progress", `{"steps":1.5,"interval_ms":1}`, "argument /steps must be an integer, not a number"},
		{"demo.count", `{"to":10000001,"interval_ms":1}`, "argument /to must be at most 10000000"},
		{"demo.count", `{"to":1}`, "argument /interval_ms is required"},
		{"demo.sleep", `{}`, "argument /ms is required"},
		{"demo.sleep", `{"ms":"10"}`, "argument /ms must be an integer, not a string"},
		{"demo.sleep", `{"ms":3600001}`, "argument /ms must be at most 3600000"},
		{"demo.stubborn", `{"ms":-1}`, "argument /ms must be at least 0"},
		{"demo.stall", `{"ms":1,"s":1}`, "argument /s is not known; known are ms"},
		{"demo.fail", `{"message":"m"}`, "argument /code is required"},
		{"demo.fail", `{"code":"ABORTED"}`, "argument /message is required"},
		{"demo.fail", `{"code":"ABORTED","message":"m","details":[]}`, "argument /details must be null or an object, not an array"},
		{"demo.fail", `{"code":"ABORTED","message":"m","retryable":1}`, "argument /retryable must be null or a boolean, not a number"},
		{"demo.spend", `{"amount":1,"times":1}`, "argument /currency is required"},
		{"demo.spend", `{"currency":"USD","times":1}`, "argument /amount is required"},
		{"demo.spend", `{"currency":"USD","amount":1}`, "argument /times is required"},
		{"demo.spend", `{"currency":"","amount":1,"times":1}`, "argument /currency must have at least 1 characters; argument /currency must match ^[!-9;-~]+$"},
		{"demo.spend", `{"currency":"A:B","amount":1,"times":1}`, "argument /currency must match ^[!-9;-~]+$"},
		{"demo.spend", `{"currency":"USD","amount":"1e3","times":1}`, "argument /amount must match ^-?[0-9]+([.][0-9]+)?$"},
		{"demo.spend", `{"currency":"USD","amount":".5","times":1}`, "argument /amount must match ^-?[0-9]+([.][0-9]+)?$"},
		{"demo.spend", `{"currency":"USD","amount":null,"times":1}`, "argument /amount must be a number or a string, not null"},
		{"demo.spend", `{"currency":"USD","amount":1,"times":10001}`, "argument /times must be at most 10000"},
		{"demo.spend", `{"currency":"USD","amount":1,"times":-1}`, "argument /times must be at least 0"},
		{"demo.spend", `{"currency":"USD","amount":1,"times":1,"to":"x"}`, "argument /to is not known; known are amount, currency, times"},
		{"demo.model", `{}`, "argument /model is required"},
		{"demo.model", `{"model":""}`, "argument /model must have at least 1 characters"},
		{"demo.access", `{"namespace":"fs.read"}`, "argument /target is required"},
		{"demo.access", `{"target":"/a"}`, "argument /namespace is required"},
		{"demo.access", `{"namespace":"","target":"/a"}`, "argument /namespace must have at least 1 characters"},
		{"demo.access", `{"namespace":"fs.read","target":""}`, "argument /target must have at least 1 characters"},
		{"demo.permit", `{"resource":"r","operation":"o","lease_seconds":1,"hold_ms":0}`, "argument /permission is required"},
		{"demo.permit", `{"permission":"p","resource":"r","operation":"o","lease_seconds":1}`, "argument /hold_ms is required"},
		{"demo.permit", `{"permission":"p","resource":"r","operation":"o","lease_seconds":0,"hold_ms":0}`, "argument /lease_seconds must be at least 1"},
		{"demo.permit", `{"permission":"p","resource":"r","operation":"o","lease_seconds":86401,"hold_ms":0}`, "argument /lease_seconds must be at most 86400"},
		{"demo.permit", `{"permission":"p","resource":"r","operation":"o","lease_seconds":1,"hold_ms":3600001}`, "argument /hold_ms must be at most 3600000"},
		{"demo.ask", `{}`, "argument /prompt is required"},
		{"demo.ask", `{"prompt":""}`, "argument /prompt must have at least 1 characters"},
		{"demo.ask", `{"prompt":"?","expires_in_ms":3600001}`, "argument /expires_in_ms must be at most 3600000"},
		{"demo.ask", `{"prompt":"?","expires_in_ms":0}`, "argument /expires_in_ms must be at least 1"},
		{"demo.ask", `{"prompt":"?","schema":{}}`, "argument /schema is not known; known are default, expires_in_ms, prompt, response_schema"},
		{"demo.choose", `{"prompt":"?"}`, "argument /options is required"},
		{"demo.choose", `{"prompt":"?","options":[]}`, "argument /options must have at least 1 items"},
		{"demo.choose", `{"prompt":"?","options":[{"id":"a"}]}`, "argument /options/0/label is required"},
		{"demo.choose", `{"prompt":"?","options":[{"id":"","label":"A"}]}`, "argument /options/0/id must have at least 1 characters"},
		{"demo.choose", `{"prompt":"?","options":[{"id":"a","label":"A","x":1}]}`, "argument /options/0/x is not known"},
		{"demo.panic", `{"now":true}`, "argument /now is not known"},
		{"demo.panic", `[]`, "the arguments must be an object, not an array"},
	} {
		err := demo(t, c.tool).Validate(arcp.Raw(c.args))
		if err == nil || err.Code != arcp.CodeInvalidArgument || err.Message != c.message {
			t.Errorf("%s %s: %v, want INVALID_ARGUMENT: %s", c.tool, c.args, err, c.message)
		}
	}
}

func TestEmitEmitsTheEvents(t *testing.T) {
	const n = 2000 // more than one block of attributes
	job := newJob()
	if _, err := job.Run(t.Context(), demo(t, "demo.emit"), arcp.Raw(fmt.Appendf(nil, `{"count":%d,"bytes":9}`, n))); err != nil {
		t.Fatal(err)
	}
	logs := job.Record().Logs
	if len(logs) != n {
		t.Fatalf("%d events, want %d", len(logs), n)
	}
	for i, e := range logs {
		want := arcp.LogPayload{Level: "info", Message: "xxxxxxxxx", Attributes: fmt.Appendf(nil, `{"n":%d}`, i)}
		if e.Level != want.Level || e.Message != want.Message || !bytes.Equal(e.Attributes, want.Attributes) {
			t.Fatalf("event %d = %+v, want %+v", i, e, want)
		}
	}
}

func TestProgressEmitsEachStep(t *testing.T) {
	job := newJob()
	if _, err := job.Run(t.Context(), demo(t, "demo.progress"), arcp.Raw(`{"steps":4,"interval_ms":0}`)); err != nil {
		t.Fatal(err)
	}
	var want []arcp.JobProgressPayload
	for i := 1.0; i <= 4; i++ {
		want = append(want, arcp.JobProgressPayload{Current: i, Total: new(4.0), Percent: new(25 * i)})
	}
	if diff := cmp.Diff(want, job.Record().Progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

// A cooperative tool returns at once, with the cause, when its job is stopped.
func TestStoppedToolsReturnTheCause(t *testing.T) {
	stop := &arcp.Error{Code: arcp.CodeCancelled, Message: "enough"}
	for _, c := range []struct {
		tool, args string
		events     int // emitted before
	}{
		{"demo.sleep", `{"ms":60000}`, 0},
		{"demo.stall", `{"ms":60000}`, 0},
		{"demo.emit", `{"count":100,"bytes":1,"interval_ms":400}`, 3},
		{"demo.emit", `{"count":100,"bytes":1,"delay_ms":60000}`, 0},
		{"demo.progress", `{"steps":100,"interval_ms":400}`, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(stop) })
			job, start := newJob(), time.Now()
			out, err := job.Run(ctx, demo(t, c.tool), arcp.Raw(c.args))
			if out != nil || err == nil || err.Code != stop.Code || err.Message != stop.Message {
				t.Errorf("%s %s = %s, %v, want %v", c.tool, c.args, out, err, stop)
			}
			if took := time.Since(start); took != time.Second {
				t.Errorf("%s %s stopped after %v, want 1s", c.tool, c.args, took)
			}
			if got := len(job.Record().Logs) + len(job.Record().Progress); got != c.events {
				t.Errorf("%s %s emitted %d events, want %d", c.tool, c.args, got, c.events)
			}
		})
	}
}

// Those that never wait still notice.
func TestStoppingWithoutWaiting(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&arcp.Error{Code: arcp.CodeTimeout, Message: "too long"})
	for ref, args := range map[string]string{
		"demo.emit": `{"count":10000000,"bytes":1}`, "demo.progress": `{"steps":10000000,"interval_ms":0}`, "demo.sleep": `{"ms":0}`,
	} {
		if _, err := newJob().Run(ctx, demo(t, ref), arcp.Raw(args)); err == nil || err.Code != arcp.CodeTimeout {
			t.Errorf("%s: %v, want TIMEOUT", ref, err)
		}
	}
}

func TestJobEndStopsTool(t *testing.T) {
	for ref, args := range map[string]string{
		"demo.emit": `{"count":10000000,"bytes":1}`, "demo.progress": `{"steps":10000000,"interval_ms":0}`,
	} {
		job := endingJob(5)
		_, err := job.Run(t.Context(), demo(t, ref), arcp.Raw(args))
		if err == nil || err.Message != errEnded.Error() {
			t.Errorf("%s: %v, want %v", ref, err, errEnded)
		}
	}
}

// demo.count makes a checkpoint after each step's progress, and resumes from one.
func TestCountResumesAtItsCheckpoint(t *testing.T) {
	job := endingJob(7)
	_, err := job.Run(t.Context(), demo(t, "demo.count"), arcp.Raw(`{"to":10,"interval_ms":0}`))
	first := job.Record()
	if err == nil || len(first.Progress) != 4 || len(first.Checkpoints) != 3 || string(first.Checkpoints[2].Data) != `{"n":3}` {
		t.Fatalf("ended with %v, %d steps and the checkpoints %s", err, len(first.Progress), first.Checkpoints)
	}
	again := tooltest.New(tooltest.Script{Restored: first.Checkpoints[2].Data})
	got, err := again.Run(t.Context(), demo(t, "demo.count"), arcp.Raw(`{"to":10,"interval_ms":0}`))
	if err != nil || string(got) != `{"count":10,"resumed_from":3}` || len(again.Record().Progress) != 7 || again.Record().Progress[0].Current != 4 {
		t.Errorf("%s, %v, after the steps %+v; want it to go on with 4", got, err, again.Record().Progress)
	}
	beyond := tooltest.New(tooltest.Script{Restored: arcp.Raw(`{"n":10}`)})
	if got, err := beyond.Run(t.Context(), demo(t, "demo.count"), arcp.Raw(`{"to":10,"interval_ms":0}`)); err != nil || string(got) != `{"count":10,"resumed_from":10}` {
		t.Errorf("from its last step: %s, %v", got, err)
	}
}

func TestToolsDeclareTheirRecovery(t *testing.T) {
	want := map[string]tool.Recovery{"demo.count": tool.RecoveryCheckpoint}
	for _, name := range []string{"echo", "progress", "sleep", "ask", "choose", "permit", "spend", "model", "access", "delegate", "stream", "report", "collect"} {
		want["demo."+name] = tool.RecoveryRerun
	}
	r := tool.NewRegistry()
	if err := Register(r); err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Tools() {
		if w := stdcmp.Or(want[d.Name], tool.RecoveryFail); d.Recovery != w {
			t.Errorf("%s: recovery %s, want %s", d.Ref(), d.Recovery, w)
		}
	}
}

func TestStubbornIgnoresCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		got, err := newJob().Run(ctx, demo(t, "demo.stubborn"), arcp.Raw(`{"ms":5000}`))
		if took := time.Since(start); err != nil || string(got) != `{"stubborn_ms":5000}` || took != 5*time.Second {
			t.Errorf("%s, %v after %v, want its result after 5s", got, err, took)
		}
	})
}

func TestStallMakesHeartbeatsManual(t *testing.T) {
	job := newJob()
	if _, err := job.Run(t.Context(), demo(t, "demo.stall"), arcp.Raw(`{"ms":0}`)); err != nil || !job.Record().ManualHeartbeat {
		t.Errorf("manual = %v, %v", job.Record().ManualHeartbeat, err)
	}
	other := newJob()
	if _, err := other.Run(t.Context(), demo(t, "demo.sleep"), arcp.Raw(`{"ms":0}`)); err != nil || other.Record().ManualHeartbeat {
		t.Errorf("demo.sleep: manual = %v, %v", other.Record().ManualHeartbeat, err)
	}
}

func TestFailReturnsTheCode(t *testing.T) {
	d := demo(t, "demo.fail")
	for _, info := range arcp.Codes {
		args := arcp.Raw(fmt.Appendf(nil, `{"code":%q,"message":"m"}`, info.Code))
		if info.Code == arcp.CodeOK {
			if d.Validate(args) == nil {
				t.Error("OK is accepted as an error")
			}
			continue
		}
		if err := d.Validate(args); err != nil {
			t.Errorf("%s is refused: %v", info.Code, err)
		}
		_, err := newJob().Run(t.Context(), d, args)
		if diff := cmp.Diff(&arcp.Error{Code: info.Code, Message: "m", Retryable: info.Retryable}, err); diff != "" {
			t.Errorf("%s (-want +got):\n%s", info.Code, diff)
		}
	}
	full := arcp.Raw(`{"code":"NOT_FOUND","message":"no %d","retryable":true,"details":{"a":1.0}}`)
	_, err := newJob().Run(t.Context(), d, full)
	if diff := cmp.Diff(&arcp.Error{Code: arcp.CodeNotFound, Message: "no %d", Retryable: true, Details: arcp.Raw(`{"a":1.0}`)}, err); diff != "" {
		t.Errorf("with all arguments (-want +got):\n%s", diff)
	}
	_, err = newJob().Run(t.Context(), d, arcp.Raw(`{"code":"INTERNAL","message":"m","retryable":null,"details":null}`))
	if diff := cmp.Diff(&arcp.Error{Code: arcp.CodeInternal, Message: "m", Retryable: true}, err); diff != "" {
		t.Errorf("null is as absent (-want +got):\n%s", diff)
	}
}

func TestFailListsCodes(t *testing.T) {
	err := demo(t, "demo.fail").Validate(arcp.Raw(`{"code":"NO_SUCH","message":"m"}`))
	if err == nil || err.Code != arcp.CodeInvalidArgument {
		t.Fatalf("error %v, want INVALID_ARGUMENT", err)
	}
	for _, info := range arcp.Codes {
		if info.Code != arcp.CodeOK && !strings.Contains(err.Message, `"`+string(info.Code)+`"`) {
			t.Errorf("%q does not name %s", err.Message, info.Code)
		}
	}
}

func TestPanicIsReported(t *testing.T) {
	job := newJob()
	_, err := job.Run(t.Context(), demo(t, "demo.panic"), nil)
	if err == nil || err.Code != arcp.CodeInternal || len(job.Record().Failures) != 1 {
		t.Errorf("error %v, failures %v, want INTERNAL and one panic", err, job.Record().Failures)
	}
}

// discard accepts events at no cost, so that the tool itself is measured.
type discard struct{ tool.Host }

func (discard) Emit(arcp.Type, any) error { return nil }

func BenchmarkEcho(b *testing.B) {
	b.ReportAllocs()
	d, ctx, args := demo(b, "demo.echo"), context.Background(), arcp.Raw(`{"text":"hello","n":1}`)
	for b.Loop() {
		if err := d.Validate(args); err != nil {
			b.Fatal(err)
		}
		if _, err := d.Run(ctx, tool.Job{}, args); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEmit measures runs of 100,000 events.
func BenchmarkEmit(b *testing.B) {
	const n = 100_000
	b.ReportAllocs()
	d, ctx := demo(b, "demo.emit"), context.Background()
	args := fmt.Appendf(nil, `{"count":%d,"bytes":100}`, n)
	for b.Loop() {
		if _, err := d.Run(ctx, tool.NewJob(discard{}), args); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/event")
}

// A checkpoint that a client wants does not wait for the next step, and is made
// of where the count stands.
func TestCountOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob()
		go func() {
			time.Sleep(90 * time.Minute)
			j.WantCheckpoint()
			synctest.Wait()
			if points := j.Record().Checkpoints; len(points) != 2 || string(points[1].Data) != `{"n":1}` {
				t.Errorf("checkpoints %s, want another one at 1", points)
			}
		}()
		start := time.Now()
		if _, err := j.Run(t.Context(), demo(t, "demo.count"), arcp.Raw(`{"to":2,"interval_ms":3600000}`)); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 2*time.Hour || len(j.Record().Checkpoints) != 3 {
			t.Errorf("took %v with %d checkpoints, want two hours with three", took, len(j.Record().Checkpoints))
		}
	})
}
