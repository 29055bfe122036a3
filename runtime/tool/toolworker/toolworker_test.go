package toolworker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
	"github.com/arcpd/arcpd/runtime/tool/toolworker"
	"github.com/arcpd/arcpd/transport"
)

const secret = "correct horse battery staple"

// fixture is a runtime with the demo tools.
type fixture struct {
	*testing.T
	rt *runtime.Runtime
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	tools := tool.NewRegistry()
	var config auth.Config
	err := errors.Join(demo.Register(tools), config.AddToken(auth.Token{Principal: "alice", Secret: secret, Roles: auth.LocalRoles()}))
	if err != nil {
		t.Fatal(err)
	}
	rt, err := runtime.New(t.Context(), runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&config), Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, rt}
}

func (f *fixture) close() {
	if err := f.rt.Shutdown(context.Background()); err != nil {
		f.Error(err)
	}
}

func (f *fixture) connect(h client.Handlers) *client.Client {
	f.Helper()
	near, far := transport.Pipe(transport.Limits{})
	go func() { _ = f.rt.Serve(context.Background(), far) }() // the client's Abort ends it
	c, err := client.New(f.Context(), near, client.Options{Auth: client.Auth{Token: secret}, Handlers: h})
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// offer makes the runtime offer a tool, in its process or by a worker.
func (f *fixture) offer(inWorker bool, log *slog.Logger, t *tool.Tool) (stop func()) {
	f.Helper()
	if !inWorker {
		if err := f.rt.AddTool(t); err != nil {
			f.Fatal(err)
		}
		return func() {}
	}
	c := f.connect(client.Handlers{})
	ctx, cancel := context.WithCancel(f.Context())
	done := make(chan error, 1)
	go func() { done <- toolworker.Run(ctx, c, toolworker.Config{Logger: log}, t) }()
	synctest.Wait() // it is registered
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			f.Errorf("Run = %v", err)
		}
		c.Abort()
	}
}

// reported lists the messages that a client receives about a job: the events of its tool and its
// outcome.
func reported(ctx context.Context, job *client.Job) (list []string) {
	for ev, err := range job.Events(ctx) {
		switch {
		case err != nil:
			return append(list, err.Error())
		case ev.Type == arcp.EventEmit && bytes.Contains(ev.Payload, []byte("child_job_id")): // the runtime's own, with new ids
		case ev.Type == arcp.TraceSpan: // its ids and times differ
			p, err := arcp.DecodePayload[arcp.TraceSpanPayload](&ev)
			list = append(list, fmt.Sprint(ev.Type, p.Name, p.TraceID == ev.TraceID, p.ParentSpanID == ev.SpanID, string(p.Attributes), err))
		case ev.Type == arcp.Log || ev.Type == arcp.JobProgress || ev.Type == arcp.Metric || ev.Type == arcp.EventEmit || ev.Type.Terminal():
			list = append(list, fmt.Sprintf("%s %s", ev.Type, ev.Payload))
		}
	}
	return list
}

type tripIn struct {
	Stops []string `json:"stops" jsonschema:"minItems=1"`
}

type tripOut struct {
	Color   string   `json:"color"`
	Echo    arcp.Raw `json:"echo"`
	Attempt uint32   `json:"attempt"`
}

// trip uses every method of Job that a worker supports.
func trip(ctx context.Context, job tool.Job, in tripIn) (out tripOut, err error) {
	log := job.Logger().With("job", "trip")
	total := float64(len(in.Stops))
	for i, stop := range in.Stops {
		log.Warn("at", slog.Group("stop", "name", stop, "wait", time.Minute))
		if err := job.Progress(arcp.JobProgressPayload{Current: float64(i + 1), Total: &total, Message: stop}); err != nil {
			return out, err
		}
	}
	err = errors.Join(job.Metric(arcp.MetricPayload{Name: "distance", Value: "1.50", Unit: "km"}), job.Emit("arrived", map[string]int{"n": 1}),
		job.Emit("empty", nil), job.Span("drive", map[string]any{"km": 1}).End(errors.New("a flat tire")), job.Checkpoint("end", in))
	if err != nil {
		return out, err
	}
	answer, err := job.Ask(ctx, tool.InputRequest{Prompt: "Which color?", Schema: arcp.Raw(`{"type":"string"}`), Expires: time.Hour})
	if err != nil {
		return out, err
	}
	choice, err := job.Choose(ctx, tool.ChoiceRequest{Prompt: "Which?", Options: []arcp.Option{{ID: "a", Label: "A"}}})
	if err != nil || choice.ChoiceID != "a" {
		return out, fmt.Errorf("choice = %+v, want a: %w", choice, err)
	}
	lease, err := job.Permissions().Request(ctx, tool.PermissionRequest{Permission: "trip.end", Resource: "here", Operation: "stop", For: time.Hour})
	if err != nil || lease.Resource != "here" {
		return out, fmt.Errorf("permission lease = %+v, want one of here: %w", lease, err)
	}
	made := arcp.JobID("")
	out.Echo, err = job.Call(ctx, tool.Call{Tool: "demo.echo", Arguments: arcp.Raw(`{"n":7}`), OnChild: func(id arcp.JobID) { made = id }})
	if err == nil && made == "" {
		err = errors.New("the child has no id")
	}
	out.Attempt = job.Attempt()
	return out, errors.Join(err, arcp.Unmarshal(answer.Value, &out.Color))
}

// trial is a job of a tool whose user answers every question.
type trial struct {
	tool    *tool.Tool
	args    string
	last    string // text of the last event
	lost    bool   // the code of the last event is another one in a worker
	cancel  bool
	options arcp.SubmitOptions
}

// run runs the job in the process of a runtime or in a worker, and returns the events that its user is told.
func (c trial) run(t *testing.T, inWorker bool) (events []string) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		defer f.offer(inWorker, slog.New(slog.DiscardHandler), c.tool)()
		user := f.connect(client.Handlers{
			Input:  func(context.Context, client.InputRequest) (any, error) { return "blue", nil },
			Choice: func(context.Context, client.ChoiceRequest) (string, error) { return "a", nil },
			Permission: func(context.Context, client.PermissionRequest) (client.PermissionAnswer, error) {
				return client.PermissionAnswer{Grant: true}, nil
			}})
		defer user.Abort()
		job, err := user.Invoke(t.Context(), client.InvokeParams{Tool: "t", Arguments: arcp.Raw(c.args), Options: c.options})
		if err != nil {
			t.Fatal(err)
		}
		if c.cancel {
			synctest.Wait() // it waits
			if err := user.Cancel(t.Context(), client.CancelParams{JobID: job.ID(), Reason: "enough"}); err != nil {
				t.Error(err)
			}
		}
		events = reported(t.Context(), job)
	})
	return events
}

// The same tool in the process of a runtime and in a worker has the same outcome and
// the same events.
func TestToolBehavesEquallyInWorkerAndRuntime(t *testing.T) {
	forgets := arcp.Errorf(arcp.CodeNotFound, "no such place").RetryAfter(3)
	for name, c := range map[string]trial{
		"everything": {tool: tool.MustNew(tool.Capability{Name: "t", Recovery: tool.RecoveryCheckpoint, Limits: tool.Limits{Timeout: -1}}, trip),
			args: `{"stops":["Oslo","Rome"]}`, last: `{"value":{"color":"blue","echo":{"n":7},"attempt":1}`,
			options: arcp.SubmitOptions{LeaseRequest: arcp.Raw(`{"tool.call":["demo.echo"]}`)}},
		"a refused permission to call": {tool: tool.MustNew(tool.Capability{Name: "t", Limits: tool.Limits{Timeout: -1}}, trip),
			args: `{"stops":["Oslo"]}`, last: `"code":"PERMISSION_DENIED"`},
		"cancellation": {cancel: true, last: `"reason":"enough"`, args: `{}`,
			tool: tool.MustNew(tool.Capability{Name: "t", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (int, error) {
				job.Logger().Info("waiting")
				<-ctx.Done()
				if e, ok := errors.AsType[*arcp.Error](context.Cause(ctx)); !ok || e.Code != arcp.CodeCancelled || e.Message != "enough" {
					return 0, fmt.Errorf("the cause is %w", context.Cause(ctx))
				}
				return 0, ctx.Err()
			})},
		"an error of its own": {last: `"code":"NOT_FOUND"`, args: `{}`,
			tool: tool.MustNew(tool.Capability{Name: "t"}, func(context.Context, tool.Job, struct{}) (int, error) { return 0, forgets })},
		"an invalid result": {last: `"code":"INTERNAL"`, args: `{}`,
			tool: tool.MustNew(tool.Capability{Name: "t", OutputSchema: arcp.Raw(`{"minimum":2}`)}, func(context.Context, tool.Job, struct{}) (int, error) { return 1, nil })},
		"a panic": {last: `"code":"INTERNAL"`, args: `{}`,
			tool: tool.MustNew(tool.Capability{Name: "t"}, func(context.Context, tool.Job, struct{}) (int, error) { panic("ouch") })},
		"a silent tool": {last: `the tool missed 2 heartbeats`, args: `{}`, lost: true,
			tool: tool.MustNew(tool.Capability{Name: "t", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (int, error) {
				job.ManualHeartbeat()
				for range 5 {
					time.Sleep(20 * time.Second)
					job.Heartbeat()
				}
				job.Logger().Info("silent from now on")
				<-ctx.Done()
				return 0, ctx.Err()
			})},
	} {
		t.Run(name, func(t *testing.T) {
			both := [][]string{c.run(t, false), c.run(t, true)}
			if n := len(both[1]); c.lost && n > 0 && strings.Contains(both[1][n-1], c.last) {
				both[1][n-1] = both[0][n-1]
			}
			if diff := cmp.Diff(both[0], both[1]); diff != "" {
				t.Errorf("in process - and in a worker +:\n%s", diff)
			}
			if n := len(both[0]); n == 0 || !strings.Contains(both[0][n-1], c.last) {
				t.Errorf("told %q, want the last to say %s", both[0], c.last)
			}
		})
	}
}

// Requests that the protocol does not offer to workers fail with a clear error.
func TestUnsupportedRequestsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		defer f.offer(true, log, tool.MustNew(tool.Capability{Name: "t", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (int, error) {
			a, r := job.Authority(), job.Resources()
			_, read := a.Files().ReadFile("/etc/hosts", 100)
			_, get := a.Fetcher().Get(ctx, "http://example.com/")
			_, lease := r.Lease(ctx, tool.ResourceRequest{Provider: "p", Type: "t", ExternalID: "x"})
			_, _, dir := r.Directory(ctx, tool.DirectoryRequest{})
			_, extend := job.Permissions().Extend(ctx, "lease_1", time.Hour)
			_, delegate := job.Call(ctx, tool.Call{Tool: "demo.echo", Delegate: true})
			_, key := job.Call(ctx, tool.Call{Tool: "demo.echo", Key: "k"})
			_, bounded := job.Call(ctx, tool.Call{Tool: "demo.echo", MaxRuntime: time.Second})
			_, find := job.Call(ctx, tool.Call{Tool: "demo.echo", FindOnly: true})
			for name, err := range map[string]error{"key": key, "maximum runtime": bounded, "find": find, "allow": a.Allow(arcp.NamespaceFSRead, "/a"), "model": a.UseModel("m"), "charge": a.Charge("c", "USD", "1"),
				"read": read, "get": get, "lease": lease, "directory": dir, "extend": extend, "delegate": delegate,
				"check": job.Permissions().Check("p", "r", "o")} {
				if e, ok := errors.AsType[*arcp.Error](err); !ok || e.Code != arcp.CodeUnimplemented || !strings.Contains(e.Message, "a worker cannot") {
					t.Errorf("%s: %v, want UNIMPLEMENTED", name, err)
				}
			}
			large := job.Emit("large", strings.Repeat("x", 1<<20))
			if e, ok := errors.AsType[*arcp.Error](large); !ok || e.Code != arcp.CodeResourceExhausted {
				t.Errorf("a large event: %v", large)
			}
			panic("ouch")
		}))()
		user := f.connect(client.Handlers{})
		defer user.Abort()
		job, err := user.Invoke(t.Context(), client.InvokeParams{Tool: "t"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Wait(t.Context()); err == nil || strings.Contains(err.Error(), "ouch") {
			t.Errorf("the client is told %v", err)
		}
		if !strings.Contains(text.String(), "ouch") || !strings.Contains(text.String(), "stack=") {
			t.Errorf("the log has %q, want the panic with its stack", text.String())
		}
	})
}

// A tool that a runtime would not offer to workers is refused before it is announced.
func TestToolsForTheRuntimeAreRefused(t *testing.T) {
	for name, c := range map[string]tool.Capability{
		"audience": {Audience: func(string) bool { return true }}, "rate": {Limits: tool.Limits{RatePerMin: 1}}, "endless": {Endless: true}, "directories": {NeedsDirs: true},
	} {
		c.Name = "t"
		made := tool.MustNew(c, func(context.Context, tool.Job, struct{}) (int, error) { return 0, nil })
		if err := toolworker.Run(t.Context(), nil, toolworker.Config{}, made); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
