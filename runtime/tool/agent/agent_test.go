package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/store/pebble"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/transport"
)

// dataVariable makes the test program be a runtime with the demo tools on its
// standard files, that keeps its data in this directory, or in none.
const dataVariable = "AGENT_TEST_DATA"

// nothingKept begins the name of a directory that is not one.
const nothingKept = "memory-"

func TestMain(m *testing.M) {
	exec.Hook()
	if dir := os.Getenv(dataVariable); strings.HasPrefix(dir, fakeProgram) {
		beFake(dir)
	} else if dir != "" {
		beRuntime(dir)
	}
	os.Exit(m.Run())
}

func beRuntime(dir string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	tools := tool.NewRegistry()
	must(demo.Register(tools))
	must(tools.Register(tool.MustNew(tool.Capability{Name: "talks", Limits: tool.Limits{Timeout: -1}},
		func(_ context.Context, job tool.Job, _ struct{}) (string, error) {
			must(job.Log("warn", "careful", map[string]int{"n": 1}))
			must(job.Progress(arcp.JobProgressPayload{Current: 1, Total: new(2.0), Message: "half"}))
			must(job.Metric(arcp.MetricPayload{Name: "cost.talk", Value: "0.5", Unit: "USD"}))
			return "said", job.Emit("talked", map[string]bool{"long": false})
		})))
	grown := 0
	must(tools.Register(tool.MustNew(tool.Capability{Name: "grows"}, func(_ context.Context, _ tool.Job, _ struct{}) (string, error) {
		grown++
		return "done", tools.Replace("grown", []*tool.Tool{tool.MustNew(tool.Capability{Name: "grown", Version: fmt.Sprintf("%d.0.0", grown)},
			func(context.Context, tool.Job, struct{}) (string, error) { return "here", nil })})
	})))
	var st store.Store
	if st = mem.Open(mem.Options{}); !strings.HasPrefix(dir, nothingKept) {
		var err error
		st, err = pebble.Open(dir, pebble.Options{})
		must(err)
	}
	var none auth.Config
	rt, err := runtime.New(context.Background(), runtime.Config{Store: st, Auth: auth.NewSet(&none), Tools: tools})
	must(err)
	_ = rt.Serve(context.Background(), transport.Stdio(os.Stdin, os.Stdout, transport.Limits{})) // how it ended is the peer's business
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = rt.Shutdown(ctx) // what is durable stays
	os.Exit(0)
}

// fixture is a source with a runtime as its program.
type fixture struct {
	t     *testing.T
	dir   string
	s     *Source
	mu    sync.Mutex
	tools []*tool.Tool
	count int // of publications
	log   *syncBuffer
}

func newBed(t *testing.T, dir string, with ...func(*Config)) *fixture {
	t.Helper()
	t.Setenv(dataVariable, dir)
	b := &fixture{t: t, dir: dir, log: new(syncBuffer)}
	cfg := Config{Name: "kid", Command: []string{""}, Env: []string{dataVariable}, Prefix: "kid.", Log: zerolog.New(b.log)}
	for _, f := range with {
		f(&cfg)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Command[0] = exe
	if b.s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	goroutines := goruntime.NumGoroutine()
	t.Cleanup(func() {
		b.s.Close()
		if left := b.processes(); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); goruntime.Gosched() { // those that have nothing more to do need a moment to end
			if goruntime.NumGoroutine() <= goroutines {
				return
			}
		}
		t.Errorf("%d goroutines, %d before; log:\n%s", goruntime.NumGoroutine(), goroutines, b.log)
	})
	if err := b.s.Start(soon(t), b.publish); err != nil {
		t.Fatalf("start: %v; log:\n%s", err, b.log)
	}
	return b
}

func (b *fixture) publish(tools []*tool.Tool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tools, b.count = tools, b.count+1
	return nil
}

func (b *fixture) published() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// processes are those that run as the program.
func (b *fixture) processes() (list []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is right
	for _, name := range names {
		env, _ := os.ReadFile(name)
		if pid, _ := strconv.Atoi(strings.Split(name, "/")[2]); pid != os.Getpid() && strings.Contains(string(env), dataVariable+"="+b.dir) {
			list = append(list, pid)
		}
	}
	return list
}

// crash kills the program.
func (b *fixture) crash() {
	b.t.Helper()
	list := b.processes()
	if len(list) == 0 {
		b.t.Fatal("the program does not run")
	}
	for _, pid := range list {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *fixture) tool(ref string) *tool.Tool {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.tools, func(made *tool.Tool) bool { return made.Ref() == ref })
	if i < 0 {
		b.t.Fatalf("no tool %s", ref)
	}
	return b.tools[i]
}

// call runs a tool for a job.
func (b *fixture) call(ctx context.Context, job *fakeJob, ref, args string) (string, *arcp.Error) {
	b.t.Helper()
	out, err := b.tool(ref).Run(ctx, tool.NewJob(job), arcp.Raw(args))
	return string(out), err
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*syncBuffer)(nil)

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *syncBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, arcp.Errorf(arcp.CodeTimeout, "the test waits no longer"))
	t.Cleanup(cancel)
	return ctx
}

// fakeJob remembers what was said, in a line each.
type fakeJob struct {
	tool.Host
	id    arcp.JobID
	said  chan string
	asked any
	deny  error
}

func newJob() *fakeJob {
	return &fakeJob{id: arcp.JobID("job_" + rand.Text()), said: make(chan string, 10_000)}
}

func (j *fakeJob) ID() arcp.JobID  { return j.id }
func (j *fakeJob) TraceID() string { return "trace-1" }

func (j *fakeJob) say(words ...string) error { j.said <- strings.Join(words, " "); return nil }

func (j *fakeJob) Emit(_ arcp.Type, payload any) error {
	switch p := payload.(type) {
	case arcp.LogPayload:
		return j.say("log", p.Level, p.Message, string(p.Attributes))
	case arcp.JobProgressPayload:
		return j.say("progress", strconv.FormatFloat(p.Current, 'f', -1, 64), p.Message)
	case arcp.MetricPayload:
		return j.say("metric", p.Name, string(p.Value), p.Unit)
	case arcp.EventEmitPayload:
		return j.say("emit", p.Name, string(p.Data))
	}
	return nil
}

func (j *fakeJob) Ask(_ context.Context, a tool.InputAsk) (tool.Answer, error) {
	j.asked = a
	return tool.Answer{Value: arcp.Raw(`"blue"`)}, j.deny
}

func (j *fakeJob) Choose(_ context.Context, c tool.ChoiceAsk) (tool.Answer, error) {
	j.asked = c
	return tool.Answer{ChoiceID: c.Options[1].ID}, j.deny
}

func (j *fakeJob) Permit(_ context.Context, p tool.PermissionAsk) (tool.PermissionLease, error) {
	j.asked = p
	return tool.PermissionLease{Permission: p.Permission, Resource: p.Resource, Operation: p.Operation, ExpiresAt: time.Now().Add(p.For)}, j.deny
}

// everything is what was said so far.
func (j *fakeJob) everything() (list []string) {
	for len(j.said) > 0 {
		list = append(list, <-j.said)
	}
	return list
}

func TestToolsOfAProgram(t *testing.T) {
	b := newBed(t, nothingKept+rand.Text())
	ctx := soon(t)
	t.Run("are listed", func(t *testing.T) {
		echo, old := b.tool("kid.demo.echo@1.0.0"), b.tool("kid.demo.echo@0.9.0")
		if !echo.Default || old.Default || echo.Source != tool.SourceAgent || echo.Recovery != tool.RecoveryRerun || *echo.Idempotent {
			t.Errorf("echo = %+v", echo.Capability)
		}
		for _, made := range b.tools {
			if strings.HasPrefix(made.Name, "kid.jobs.") || strings.HasPrefix(made.Name, "kid.approval.") {
				t.Errorf("%s is offered: it is about the other runtime", made.Name)
			}
		}
	})
	t.Run("are called", func(t *testing.T) {
		if out, err := b.call(ctx, newJob(), "kid.demo.echo@0.9.0", `{"a":1}`); err != nil || out != `{"legacy":{"a":1}}` {
			t.Errorf("result = %s, %v", out, err)
		}
	})
	t.Run("say what they have to", func(t *testing.T) {
		job := newJob()
		out, err := b.call(ctx, job, "kid.talks@1.0.0", `{}`)
		want := []string{`log warn careful {"n":1}`, "progress 1 half", "metric cost.talk 0.5 USD", `emit talked {"long":false}`}
		if got := job.everything(); err != nil || out != `"said"` || !slices.Equal(got, want) {
			t.Errorf("result = %s, %v, events %q, want %q", out, err, got, want)
		}
	})
	t.Run("fail", func(t *testing.T) {
		_, err := b.call(ctx, newJob(), "kid.demo.fail@1.0.0", `{"code":"BUDGET_EXHAUSTED","message":"broke","details":{"a":1}}`)
		if err == nil || err.Code != arcp.CodeBudgetExhausted || err.Message != "broke" || string(err.Details) != `{"a":1}` {
			t.Errorf("error = %v", err)
		}
		_, err = b.call(ctx, newJob(), "kid.demo.sleep@1.0.0", `{"ms":"long"}`)
		if err == nil || err.Code != arcp.CodeInvalidArgument {
			t.Errorf("error = %v, want the other's refusal", err)
		}
	})
	t.Run("return much", func(t *testing.T) {
		args := `{"text":"` + strings.Repeat("ü", 400_000) + `"}`
		if out, err := b.call(ctx, newJob(), "kid.demo.echo@1.0.0", args); err != nil || out != args {
			t.Errorf("result of %d bytes, %v, want %d", len(out), err, len(args))
		}
	})
	t.Run("ask people", func(t *testing.T) {
		job := newJob()
		out, err := b.call(ctx, job, "kid.demo.ask@1.0.0", `{"prompt":"colour?","response_schema":{"type":"string"}}`)
		if ask, _ := job.asked.(tool.InputAsk); err != nil || !strings.Contains(out, `"blue"`) || ask.Prompt != "colour?" || string(ask.Schema) != `{"type":"string"}` {
			t.Errorf("result = %s, %v, asked %+v", out, err, job.asked)
		}
		out, err = b.call(ctx, newJob(), "kid.demo.choose@1.0.0", `{"prompt":"which?","options":[{"id":"a","label":"A"},{"id":"b","label":"B"}]}`)
		if err != nil || !strings.Contains(out, `"choice_id":"b"`) {
			t.Errorf("result = %s, %v", out, err)
		}
	})
	t.Run("ask for permission", func(t *testing.T) {
		const args = `{"permission":"p","resource":"r","operation":"o","lease_seconds":60,"hold_ms":0}`
		if out, err := b.call(ctx, newJob(), "kid.demo.permit@1.0.0", args); err != nil || !strings.Contains(out, `"resource":"r"`) {
			t.Errorf("result = %s, %v", out, err)
		}
		job := newJob()
		job.deny = arcp.Errorf(arcp.CodePermissionDenied, "no")
		if _, err := b.call(ctx, job, "kid.demo.permit@1.0.0", args); err == nil || err.Code != arcp.CodePermissionDenied {
			t.Errorf("error = %v, want it denied", err)
		}
	})
	t.Run("are cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(ctx)
		job := newJob()
		go func() {
			<-job.said // it runs
			cancel(arcp.Errorf(arcp.CodeCancelled, "enough"))
		}()
		_, err := b.call(ctx, job, "kid.demo.progress@1.0.0", `{"steps":1000000,"interval_ms":5}`)
		if err == nil || err.Code != arcp.CodeCancelled {
			t.Errorf("error = %v, want it cancelled", err)
		}
	})
	t.Run("of the same job are the same call", func(t *testing.T) {
		job := newJob()
		for range 2 {
			if _, err := b.call(ctx, job, "kid.talks@1.0.0", `{}`); err != nil {
				t.Fatal(err)
			}
		}
		if got := job.everything(); len(got) != 4 {
			t.Errorf("events %q, want those of one call: the second finds the first", got)
		}
	})
}

// A program that keeps its jobs is started again, and what ran goes on.
func TestAProgramThatKeepsItsJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	b := newBed(t, t.TempDir())
	job := newJob()
	done := make(chan struct{})
	var out string
	var err *arcp.Error
	go func() {
		defer close(done)
		out, err = b.call(soon(t), job, "kid.demo.count@1.0.0", `{"to":300,"interval_ms":10}`)
	}()
	for range 20 {
		<-job.said
	}
	b.crash()
	<-done
	if err != nil || !strings.Contains(out, `"count":300`) || strings.Contains(out, `"resumed_from":0`) {
		t.Errorf("result = %s, %v, want it to have gone on from a checkpoint; log:\n%s", out, err, b.log)
	}
	if out, err := b.call(soon(t), newJob(), "kid.demo.echo@1.0.0", `{"a":1}`); err != nil || out != `{"a":1}` {
		t.Errorf("a later call: %s, %v", out, err)
	}
}

// One that does not is started again, too, but what ran is lost.
func TestAProgramThatKeepsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	b := newBed(t, nothingKept+rand.Text())
	job := newJob()
	done := make(chan struct{})
	var err *arcp.Error
	go func() {
		defer close(done)
		_, err = b.call(soon(t), job, "kid.demo.progress@1.0.0", `{"steps":1000000,"interval_ms":5}`)
	}()
	<-job.said
	before := b.published()
	b.crash()
	<-done
	if err == nil || err.Code != arcp.CodeAborted {
		t.Errorf("error = %v, want ABORTED", err)
	}
	for ctx := soon(t); b.published() == before; goruntime.Gosched() {
		if ctx.Err() != nil {
			t.Fatalf("it is not started again; log:\n%s", b.log)
		}
	}
	for ctx := soon(t); ; goruntime.Gosched() {
		out, err := b.call(ctx, newJob(), "kid.demo.echo@1.0.0", `{"a":1}`)
		if err == nil && out == `{"a":1}` {
			return
		}
		if err == nil || err.Code != arcp.CodeUnavailable || ctx.Err() != nil {
			t.Fatalf("a later call: %s, %v", out, err)
		}
	}
}

// A job that stops because this runtime does goes on there.
func TestAShutdownIsNoCancel(t *testing.T) {
	b := newBed(t, nothingKept+rand.Text())
	job := newJob()
	ctx, cancel := context.WithCancelCause(soon(t))
	go func() {
		<-job.said
		cancel(context.Canceled) // a cause that nobody asked for
	}()
	if _, err := b.call(ctx, job, "kid.demo.count@1.0.0", `{"to":50,"interval_ms":5}`); err == nil {
		t.Error("the call did not end")
	}
	if out, err := b.call(soon(t), job, "kid.demo.count@1.0.0", `{"to":50,"interval_ms":5}`); err != nil || !strings.Contains(out, `"count":50`) {
		t.Errorf("asked for again: %s, %v, want the result of the same job", out, err)
	}
}

func TestOnlyWhatIsAllowedIsOffered(t *testing.T) {
	b := newBed(t, nothingKept+rand.Text(), func(c *Config) { c.Allows = func(name string) bool { return name == "talks" } })
	if len(b.tools) != 1 || b.tools[0].Name != "kid.talks" {
		t.Errorf("%d tools, want talks", len(b.tools))
	}
}

func TestDepthIsBounded(t *testing.T) {
	for _, depth := range []string{"4", "999", "x"} {
		t.Setenv(DepthVariable, depth)
		if _, err := New(Config{Name: "kid", Command: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "more than 4 deep") {
			t.Errorf("depth %s: %v", depth, err)
		}
	}
}

// Schemas come with the tool; those that are none do not keep it away.
func TestDescriptions(t *testing.T) {
	var log syncBuffer
	s, err := New(Config{Name: "kid", Command: []string{"true"}, Prefix: "kid.", Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	a := &arcp.Agent{Name: "x", Versions: []string{"1.0.0"}, Default: "1.0.0"}
	made := (&lister{s: s}).make(a, "1.0.0", &description{Description: "d", SideEffect: "read", InputSchema: arcp.Raw(`{"required":["a"]}`)})
	if made.Description != "d" || made.SideEffect != tool.SideEffectRead || made.Recovery != tool.RecoveryFail || made.Validate(arcp.Raw(`{}`)) == nil {
		t.Errorf("made %+v", made.Capability)
	}
	made = (&lister{s: s, durable: true}).make(a, "1.0.0", &description{SideEffect: "odd", InputSchema: arcp.Raw(`{"type":"objekt"}`)})
	if made == nil || made.InputSchema != nil || made.SideEffect != tool.SideEffectExternal || !strings.Contains(log.String(), "without its schemas") {
		t.Errorf("made %+v, log %s", made, log.String())
	}
	if made := (&lister{s: s, durable: true}).make(&arcp.Agent{Name: "Not A Name"}, "", &description{}); made != nil {
		t.Errorf("made %+v of what cannot be a name", made.Capability)
	}
}

// What a program offers later is offered here, and what is as it was stays the same
// tool.
func TestToolsThatChange(t *testing.T) {
	b := newBed(t, nothingKept+rand.Text())
	before := b.tool("kid.talks@1.0.0")
	has := func(ref string) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.ContainsFunc(b.tools, func(t *tool.Tool) bool { return t.Ref() == ref })
	}
	for n := 1; n <= 2; n++ {
		if out, err := b.call(soon(t), newJob(), "kid.grows@1.0.0", `{}`); err != nil {
			t.Fatalf("%s, %v", out, err)
		}
		ref := fmt.Sprintf("kid.grown@%d.0.0", n)
		if n == 2 { // it need not be waited for
			if err := b.s.Refresh(soon(t)); err != nil || !has(ref) {
				t.Errorf("after a refresh: %v, it has %s: %v", err, ref, has(ref))
			}
		}
		for ctx := soon(t); !has(ref); goruntime.Gosched() {
			if ctx.Err() != nil {
				t.Fatalf("%s is not offered; log:\n%s", ref, b.log)
			}
		}
		if out, err := b.call(soon(t), newJob(), ref, `{}`); err != nil || out != `"here"` {
			t.Errorf("%s: %s, %v", ref, out, err)
		}
	}
	if has("kid.grown@1.0.0") {
		t.Error("what is gone is still offered")
	}
	if b.tool("kid.talks@1.0.0") != before {
		t.Error("a tool that has not changed is another one")
	}
}
