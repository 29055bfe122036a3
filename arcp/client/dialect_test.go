package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
	"github.com/arcpd/arcpd/transport"
)

// draftRuntime is a runtime in this process with the demo tools.
type draftRuntime struct {
	*testing.T
	ctx    context.Context
	rt     *runtime.Runtime
	served sync.WaitGroup

	mu    sync.Mutex
	conns []transport.Conn // of the clients
}

const draftToken = "correct horse battery staple"

func newDraftRuntime(t *testing.T) *draftRuntime {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	d := &draftRuntime{T: t, ctx: ctx}
	tools := tool.NewRegistry()
	var config auth.Config
	err := errors.Join(demo.Register(tools), config.AddToken(auth.Token{Principal: "alice", Secret: draftToken, Roles: auth.LocalRoles()}))
	if err != nil {
		t.Fatal(err)
	}
	if d.rt, err = runtime.New(ctx, runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&config), Tools: tools}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, conn := range d.conns {
			_ = conn.Abort() // it may have ended
		}
		d.served.Wait()
		if err := d.rt.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown of the runtime: %v", err)
		}
		cancel()
	})
	return d
}

func (d *draftRuntime) dial(context.Context) (transport.Conn, error) {
	near, far := transport.Pipe(transport.Limits{})
	d.served.Go(func() { _ = d.rt.Serve(d.ctx, far) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, near)
	return near, nil
}

// last returns the newest connection.
func (d *draftRuntime) last() transport.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conns[len(d.conns)-1]
}

// open opens a session in the draft dialect.
func (d *draftRuntime) open(opts client.Options) *client.Client {
	d.Helper()
	conn, _ := d.dial(d.ctx)
	c, err := client.New(d.ctx, conn, draftOptions(opts))
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(c.Abort)
	return c
}

func draftOptions(opts client.Options) client.Options {
	opts.Dialect, opts.Auth = arcp.DialectDraft, client.Auth{Token: draftToken}
	return opts
}

func (d *draftRuntime) invoke(c *client.Client, name string, args any) *client.Job {
	d.Helper()
	job, err := c.Invoke(d.ctx, client.InvokeParams{Tool: name, Arguments: args})
	if err != nil {
		d.Fatal(err)
	}
	return job
}

// A client of the draft dialect invokes tools and reads their events and outcomes.
func TestDraftInvokeReadsEventsAndOutcome(t *testing.T) {
	d := newDraftRuntime(t)
	c := d.open(client.Options{})
	if s := c.Session(); s.Dialect != arcp.DialectDraft || s.ID == "" || s.ResumeToken == "" || s.ResumeWindow == 0 {
		t.Errorf("session = %+v, want the draft dialect, an id, a resume token and a window", s)
	}
	result, err := d.invoke(c, "demo.echo", map[string]int{"n": 1}).Wait(d.ctx)
	if err != nil || string(result.Value) != `{"n":1}` {
		t.Errorf(`result = %s, %v, want {"n":1}`, result.Value, err)
	}
	job := d.invoke(c, "demo.progress", map[string]int{"steps": 3, "interval_ms": 1})
	var types []arcp.Type
	for env, err := range job.Events(d.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if len(types) == 0 || types[len(types)-1] != env.Type {
			types = append(types, env.Type)
		}
		if env.Type != arcp.JobAccepted && (env.JobID != job.ID() || env.EventSeq == 0 || env.CorrelationID != job.RequestID()) {
			t.Errorf("event %s, want the job, the event_seq and the id of the request", env.Append(nil))
		}
	}
	if want := []arcp.Type{arcp.JobAccepted, arcp.JobStarted, arcp.JobProgress, arcp.JobCompleted}; !slices.Equal(types, want) {
		t.Errorf("%s, want %s", types, want)
	}
	if _, err := c.Ping(d.ctx); err != nil {
		t.Errorf("Ping after the job: %v", err)
	}
	if err := c.Close(d.ctx, "done"); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// Refusals have the codes of package arcp.
func TestDraftRefusalsHaveCodes(t *testing.T) {
	d := newDraftRuntime(t)
	c := d.open(client.Options{})
	_, err := c.Invoke(d.ctx, client.InvokeParams{Tool: "no.such"})
	if e, ok := errors.AsType[*client.RemoteError](err); !ok || e.Code != arcp.CodeAgentNotAvailable {
		t.Errorf("Invoke of an unknown tool = %v, want AGENT_NOT_AVAILABLE", err)
	}
	const unknown = "job_01JZ0000000000000000000009"
	_, err = c.SubscribeJob(d.ctx, client.SubscribeJobParams{JobID: unknown})
	if e, ok := errors.AsType[*client.RemoteError](err); !ok || e.Code != arcp.CodeJobNotFound {
		t.Errorf("SubscribeJob of an unknown job = %v, want JOB_NOT_FOUND", err)
	}
	err = c.Cancel(d.ctx, client.CancelParams{JobID: unknown})
	if e, ok := errors.AsType[*client.CancelRefused](err); !ok || e.Reason != "not_found" {
		t.Errorf("Cancel of an unknown job = %v, want it refused with not_found", err)
	}
	job := d.invoke(c, "demo.echo", nil)
	if _, err := job.Wait(d.ctx); err != nil {
		t.Fatal(err)
	}
	err = c.Cancel(d.ctx, client.CancelParams{JobID: job.ID()})
	if e, ok := errors.AsType[*client.CancelRefused](err); !ok || e.Reason != "already_terminal" {
		t.Errorf("Cancel of an ended job = %v, want it refused with already_terminal", err)
	}
	conn, _ := d.dial(d.ctx)
	_, err = client.New(d.ctx, conn, client.Options{Dialect: arcp.DialectDraft, Auth: client.Auth{Token: "another"}})
	if e, ok := errors.AsType[*client.RemoteError](err); !ok || e.Type != arcp.SessionRejected || e.Code != arcp.CodeUnauthenticated {
		t.Errorf("New with a wrong token = %v, want the session rejected as UNAUTHENTICATED", err)
	}
}

// Methods that the dialect does not have return an error that names them.
func TestDraftNamesUnsupportedMethods(t *testing.T) {
	d := newDraftRuntime(t)
	c := d.open(client.Options{})
	_, feed := c.SubscribeFeed(d.ctx, client.SubscribeFeedParams{})
	_, direct := c.Invoke(d.ctx, client.InvokeParams{Tool: "demo.echo", Options: arcp.SubmitOptions{Direct: true}})
	conn, _ := d.dial(d.ctx)
	_, attach := client.New(d.ctx, conn, draftOptions(client.Options{Resume: &client.Resume{SessionID: "sess_1"}}))
	for feature, err := range map[string]error{
		"subscribe":                    feed,
		"tool.invoke with direct":      direct,
		"workers":                      c.Work(d.ctx, client.WorkerConfig{}),
		"session.open with session_id": attach,
	} {
		if e, ok := errors.AsType[*client.UnsupportedError](err); !ok || e.Feature != feature {
			t.Errorf("%s: error = %v, want an *UnsupportedError", feature, err)
		}
	}
	if _, err := d.invoke(c, "demo.echo", nil).Wait(d.ctx); err != nil { // the client goes on
		t.Errorf("a job after the unsupported calls: %v", err)
	}
}

// Another session lists, follows and cancels the job.
func TestDraftJobsOfAnotherSession(t *testing.T) {
	d := newDraftRuntime(t)
	job := d.invoke(d.open(client.Options{}), "demo.progress", map[string]int{"steps": 1000, "interval_ms": 60_000})
	c := d.open(client.Options{})
	page, err := c.ListJobs(d.ctx, client.ListJobsParams{Filter: &arcp.JobFilter{Status: []string{"accepted", "queued", "running"}}})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].JobID != job.ID() {
		t.Fatalf("ListJobs = %+v, %v, want the running job", page, err)
	}
	followed, err := c.SubscribeJob(d.ctx, client.SubscribeJobParams{JobID: job.ID(), History: true})
	if err != nil {
		t.Fatal(err)
	}
	for env, err := range followed.Events(d.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if env.Type == arcp.JobStarted {
			break
		}
	}
	if err := c.Cancel(d.ctx, client.CancelParams{JobID: job.ID(), Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	for _, j := range []*client.Job{job, followed} {
		_, err := j.Wait(d.ctx)
		if e, ok := errors.AsType[*client.JobError](err); !ok || e.State != arcp.StateCancelled || e.Code != arcp.CodeCancelled {
			t.Errorf("Wait for the cancelled job %s = %v, want it CANCELLED", j.ID(), err)
		}
	}
}

// A client of Connect resumes its session when its connection is lost, and misses no event.
func TestDraftReconnectMissesNoEvent(t *testing.T) {
	d := newDraftRuntime(t)
	var changes changes
	c, err := client.ConnectFunc(d.ctx, d.dial, draftOptions(client.Options{Reconnect: client.Reconnect{MinDelay: time.Millisecond, OnChange: changes.add}}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	session := c.Session().ID
	job := d.invoke(c, "demo.progress", map[string]int{"steps": 40, "interval_ms": 5})
	var steps []float64
	for env, err := range job.Events(d.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if env.Type != arcp.JobProgress {
			continue
		}
		p, err := arcp.DecodePayload[arcp.JobProgressPayload](&env)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, p.Current)
		if n := len(steps); n == 3 || n == 10 {
			_ = d.last().Abort() // the connection breaks
		}
	}
	if !slices.IsSorted(steps) || len(slices.Compact(slices.Clone(steps))) != len(steps) || len(steps) == 0 || steps[len(steps)-1] != 40 {
		t.Errorf("steps %v", steps)
	}
	if _, err := job.Wait(d.ctx); err != nil {
		t.Errorf("Wait for the job: %v", err)
	}
	if _, err := d.invoke(c, "demo.echo", nil).Wait(d.ctx); err != nil {
		t.Errorf("a job after the broken connections: %v", err)
	}
	if s := c.Session(); s.ID != session || !s.Resumed || s.Dialect != arcp.DialectDraft {
		t.Errorf("session = %+v, want session %s resumed in the draft dialect", s, session)
	}
}

// Another client resumes the session with its token, and follows its job.
func TestDraftResumeFollowsTheJob(t *testing.T) {
	d := newDraftRuntime(t)
	first := d.open(client.Options{})
	job := d.invoke(first, "demo.progress", map[string]int{"steps": 20, "interval_ms": 5})
	s, seq := first.Session(), first.LastEventSeq()
	first.Abort()
	c := d.open(client.Options{Resume: &client.Resume{SessionID: s.ID, Token: s.ResumeToken, LastEventSeq: &seq, Jobs: []arcp.JobID{job.ID()}}})
	if got := c.Session(); got.ID != s.ID || !got.Resumed || got.ReplayedFrom != seq {
		t.Errorf("session = %+v, want session %s resumed after event %d", got, s.ID, seq)
	}
	if again, ok := c.Job(job.ID()); ok { // else it has ended
		if _, err := again.Wait(d.ctx); err != nil {
			t.Errorf("Wait for the job after the resume: %v", err)
		}
	}
}

// Auto prefers the RFC's dialect.
func TestAutoPrefersTheRFC(t *testing.T) {
	d := newDraftRuntime(t)
	// refusing makes connections that answer the first frame and close, and then those of the runtime.
	refusing := func(refusals int, answer string) func(context.Context) (transport.Conn, error) {
		dials := 0
		return func(ctx context.Context) (transport.Conn, error) {
			if dials++; dials > refusals {
				return d.dial(ctx)
			}
			near, far := transport.Pipe(transport.Limits{})
			d.served.Go(func() {
				// The client may end the connection at any time: errors say no more.
				_, _ = far.Read()
				if answer != "" {
					_ = far.Write([]byte(answer))
				}
				_ = far.Close(transport.CloseNormal, "")
			})
			return near, nil
		}
	}
	for _, test := range []struct {
		name string
		dial func(context.Context) (transport.Conn, error)
		want arcp.Dialect
	}{
		{"both", d.dial, arcp.DialectRFC},
		{"closes", refusing(2, ""), arcp.DialectDraft},
		{"stops once", refusing(1, ""), arcp.DialectRFC},
		{"session.error", refusing(1, `{"arcp":"1.1","id":"m1","type":"session.error","payload":{"code":"INVALID_REQUEST","message":"m","retryable":false}}`), arcp.DialectDraft},
		{"nack", refusing(1, `{"arcp":"1.1","id":"m1","timestamp":"2026-05-09T13:00:00Z","type":"nack","payload":{"code":"UNIMPLEMENTED","message":"m","retryable":false}}`), arcp.DialectDraft},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := client.ConnectFunc(d.ctx, test.dial, client.Options{DetectDialect: true, Auth: client.Auth{Token: draftToken}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Abort()
			if got := c.Session().Dialect; got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
	_, err := client.ConnectFunc(d.ctx, d.dial, client.Options{DetectDialect: true, Auth: client.Auth{Token: "another"}})
	if e, ok := errors.AsType[*client.RemoteError](err); !ok || e.Code != arcp.CodeUnauthenticated {
		t.Errorf("a refusal is no reason for another dialect: %v", err)
	}
	conn, _ := d.dial(d.ctx)
	if _, err := client.New(d.ctx, conn, client.Options{DetectDialect: true}); err == nil {
		t.Error("New with DetectDialect returns no error")
	}
}

// A client opens with session.hello and answers the ping of the runtime.
func TestDraftClientAnswersPings(t *testing.T) {
	near, far := transport.Pipe(transport.Limits{})
	pong := make(chan string, 1)
	go func() {
		defer close(pong)
		hello, err := far.Read()
		if err != nil || !strings.Contains(string(hello), `"type":"session.hello"`) {
			t.Errorf("first frame = %s, %v, want session.hello", hello, err)
			return
		}
		for _, frame := range []string{
			`{"arcp":"1.1","id":"m1","type":"session.welcome","payload":{"session_id":"s","resume_token":"r","resume_window_sec":60,"runtime":{"name":"n","version":"1"},"capabilities":{"features":["heartbeat"]}}}`,
			`{"arcp":"1.1","id":"m2","type":"session.ping","payload":{"nonce":"n1"}}`,
		} {
			if err := errors.Join(far.Write([]byte(frame)), far.Flush()); err != nil {
				t.Errorf("writing %s: %v", frame, err)
			}
		}
		frame, err := far.Read()
		if err != nil {
			t.Errorf("reading the answer to the ping: %v", err)
		}
		pong <- string(frame)
	}()
	c, err := client.New(t.Context(), near, client.Options{Dialect: arcp.DialectDraft})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	if s := c.Session(); s.ID != "s" || s.Runtime.Kind != "n" || !s.Capabilities.Has(arcp.FeatureHeartbeat) {
		t.Errorf("session = %+v, want the members of session.welcome", s)
	}
	if frame := <-pong; !strings.Contains(frame, `"type":"session.pong"`) || !strings.Contains(frame, `"ping_nonce":"n1"`) {
		t.Errorf("the ping is answered by %q", frame)
	}
}

// A frame that is not one of the dialect ends a client of Connect: it would receive the frame again.
func TestDraftInvalidFrame(t *testing.T) {
	near, far := transport.Pipe(transport.Limits{})
	go func() {
		// The client may end the connection before the last write: errors say no more.
		_, _ = far.Read()
		for _, frame := range []string{`{"arcp":"1.1","id":"m1","type":"session.welcome","payload":{"session_id":"s","resume_token":"r"}}`, `{"arcp":"1.1","id":"m2","type":"job.event","payload":[]}`} {
			_ = far.Write([]byte(frame))
		}
		_ = far.Flush()
	}()
	c, err := client.ConnectFunc(t.Context(), func(context.Context) (transport.Conn, error) { return near, nil }, client.Options{Dialect: arcp.DialectDraft})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	<-c.Done()
	if _, ok := errors.AsType[*client.ProtocolError](c.Err()); !ok {
		t.Error(c.Err())
	}
}

// A runtime that does not answer session.open may know the other dialect.
func TestAutoDialectOfASilentRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		_, err := client.ConnectFunc(t.Context(), func(context.Context) (transport.Conn, error) {
			if dials++; dials > 2 {
				return nil, errNoListener
			}
			near, far := transport.Pipe(transport.Limits{})
			go func() {
				for {
					if _, err := far.Read(); err != nil {
						return
					}
				}
			}()
			return near, nil
		}, client.Options{DetectDialect: true})
		if dials != 3 || !errors.Is(err, errNoListener) || !strings.Contains(err.Error(), "session.open has no answer within 5s; in the draft dialect: ") {
			t.Errorf("%d dials: %v", dials, err)
		}
	})
}
