package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
	"github.com/arcpd/arcpd/transport"
)

const token = "a-token-of-the-tests-0123456789"

// server is a runtime behind a real WebSocket.
type server struct {
	*runtime.Runtime
	url string
	web *httptest.Server
}

// start runs a runtime on a store until the test ends; change may be nil.
func start(t testing.TB, st store.Store, change func(*runtime.Config)) *server {
	t.Helper()
	var ac auth.Config
	for _, name := range []string{"alice", "bob"} {
		if err := ac.AddToken(auth.Token{Principal: name, Secret: auth.Secret(name + "-" + token), Roles: auth.LocalRoles()}); err != nil {
			t.Fatal(err)
		}
	}
	tools := tool.NewRegistry()
	if err := demo.Register(tools); err != nil {
		t.Fatal(err)
	}
	cfg := runtime.Config{Store: st, Auth: auth.NewSet(&ac), Tools: tools}
	if change != nil {
		change(&cfg)
	}
	rt, err := runtime.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(rt.Handler())
	s := &server{Runtime: rt, url: "ws" + strings.TrimPrefix(web.URL, "http"), web: web}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := rt.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		web.Close()
	})
	return s
}

func memory(t testing.TB) store.Store {
	t.Helper()
	return mem.Open(mem.Options{})
}

func (s *server) dial(t testing.TB, name string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), s.url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: client.Secret(name + "-" + token)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	return c
}

func TestLaterShutdownsReturnTheErrorOfTheFirst(t *testing.T) {
	rt, err := runtime.New(t.Context(), runtime.Config{Store: &countedClose{Store: memory(t)}, Auth: auth.NewSet(new(auth.Config))})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if err := rt.Shutdown(t.Context()); err == nil || err.Error() != "close 1" {
			t.Errorf("Shutdown call %d = %v, want close 1", n+1, err)
		}
	}
}

// countedClose is a store whose Close returns its number as an error.
type countedClose struct {
	store.Store
	closes int
}

func (c *countedClose) Close() error {
	c.closes++
	return errors.Join(c.Store.Close(), fmt.Errorf("close %d", c.closes))
}

func TestResultHasTheBytesThatWereSent(t *testing.T) {
	s := start(t, memory(t), nil)
	c := s.dial(t, "alice")
	job, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "demo.echo", Arguments: arcp.Raw(`{"n":1.0,"s":"x"}`)})
	if err != nil {
		t.Fatal(err)
	}
	res, err := job.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(res.Value); got != `{"n":1.0,"s":"x"}` {
		t.Errorf("value = %s, want the bytes that were sent", got)
	}
}

func TestEveryEventOfManyJobsArrives(t *testing.T) {
	s := start(t, memory(t), nil)
	c := s.dial(t, "alice")
	var jobs []*client.Job
	for range 50 {
		job, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "demo.emit", Arguments: arcp.Raw(`{"count":200,"bytes":50}`)})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, job)
	}
	for _, job := range jobs {
		n := 0
		for ev, err := range job.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Type == arcp.Log {
				n++
			}
		}
		if n != 200 {
			t.Errorf("%s: %d log events, want 200", job.ID(), n)
		}
	}
}

func TestToolThatIgnoresACancelIsAborted(t *testing.T) {
	begun, enough := make(chan struct{}), make(chan struct{})
	deaf := tool.MustNew(tool.Capability{Name: "deaf"}, func(context.Context, tool.Job, struct{}) (string, error) {
		close(begun)
		<-enough
		return "done", nil
	})
	s := start(t, memory(t), func(c *runtime.Config) {
		if err := c.Tools.Register(deaf); err != nil {
			t.Fatal(err)
		}
	})
	defer close(enough)
	c := s.dial(t, "alice")
	job, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "deaf"})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := c.Cancel(t.Context(), client.CancelParams{JobID: job.ID(), Reason: "enough", Deadline: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	_, err = job.Wait(t.Context())
	je, ok := errors.AsType[*client.JobError](err)
	if !ok || je.State != arcp.StateCancelled || je.RawCode != string(arcp.CodeAborted) {
		t.Fatalf("job ended with %v, want cancelled with ABORTED: the tool ignored the cancel", err)
	}
	list, err := c.ListJobs(t.Context(), client.ListJobsParams{})
	if err != nil || len(list.Jobs) != 1 || list.Jobs[0].Status != "cancelled" {
		t.Fatalf("list = %+v, %v; want the one job, cancelled", list, err)
	}
}

// A connection that has ended leaves nothing behind, also when its session had
// jobs and it was in the middle of a large frame.
func TestEndedConnectionsAreForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	reg := prometheus.NewRegistry()
	s := start(t, memory(t), func(c *runtime.Config) { c.Metrics = reg })
	f := &fixture{T: t, reg: reg}
	churn := func(n int) {
		for range n {
			c, err := client.Dial(t.Context(), s.url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: "alice-" + token}})
			if err != nil {
				t.Fatal(err)
			}
			job, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "demo.echo"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := job.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.Abort()
		}
		if !within(time.Minute, func() bool { return f.sum("arcp_connections_open", "") == 0 }) {
			t.Fatalf("%v connections are still open", f.sum("arcp_connections_open", ""))
		}
	}
	churn(50) // fills pools
	before := heap()
	const sessions = 500
	churn(sessions)
	grown := int64(heap()) - int64(before)
	t.Logf("%d bytes a session and its job", grown/sessions)
	if grown > sessions*6<<10 { // a session with its job and events has 4 kB, with a connection that is kept 9 kB
		t.Errorf("%d ended sessions keep %d bytes each, want not much more than their jobs' rows", sessions, grown/sessions)
	}
}

func heap() uint64 {
	var m goruntime.MemStats
	for range 3 { // the next collection frees objects released by cleanups
		goruntime.GC()
	}
	goruntime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The end of the context of Serve closes the connection; the session can be resumed.
func TestServeEndsWhenItsContextDoes(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		near, far := transport.Pipe(transport.Limits{})
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- f.rt.Serve(ctx, far) }()
		p := &peer{fixture: f, conn: near}
		p.open("alice")
		token := resumeToken(t, p.expect("session.accepted"))
		cancel()
		p.until("session.close")
		p.closed("the context has ended", transport.CloseGoingAway)
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		f.resume(token, 0).expect("session.resumed")
	})
}

// A tool whose calls lease directories is refused without Config.ResourceDir, before a call fails.
func TestToolsThatLeaseDirectories(t *testing.T) {
	made := tool.MustNew(tool.Capability{Name: "build", NeedsDirs: true}, func(context.Context, tool.Job, struct{}) (int, error) { return 0, nil })
	const want = "tool build@1.0.0 leases a directory for each call, and Config.ResourceDir is not set"
	inBubble(t, nil, func(f *fixture) {
		if err := f.rt.AddTool(made); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("AddTool: %v, want %q", err, want)
		}
		tools := tool.NewRegistry()
		if err := tools.Register(made); err != nil {
			t.Fatal(err)
		}
		if _, err := runtime.New(t.Context(), runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(new(auth.Config)), Tools: tools}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	})
	dir := t.TempDir()
	inBubble(t, func(c *runtime.Config) { c.ResourceDir = dir }, func(f *fixture) {
		if err := f.rt.AddTool(made); err != nil {
			t.Errorf("AddTool with Config.ResourceDir: %v", err)
		}
	})
}
