package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// workerPeer is the client end of a connection that executes jobs.
type workerPeer struct {
	*peer
	token string          // resumes its session
	early []arcp.Envelope // dispatches that came before the answer to the registration
}

const executes = `"capabilities":{"executes":true}`

// openWorker opens a session that executes.
func (f *fixture) openWorker(name string) workerPeer {
	f.Helper()
	p := f.connect(nil)
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"%s-%s"},"client":{"kind":"worker","version":"1"},%s}`, name, token, executes))
	env := p.expect("session.accepted")
	a, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&env)
	if err != nil || !a.Capabilities.Flags[arcp.FeatureExecutes] {
		f.Fatalf("a worker is accepted with %s: %v", env.Payload, err)
	}
	p.ignoreToolChanges = true
	return workerPeer{peer: p, token: a.ResumeToken}
}

// startWorker opens a session that executes, with an agent for one tool. The text more has
// further members of the registration.
func (f *fixture) startWorker(name, ref, more string) workerPeer {
	f.Helper()
	h := f.openWorker(name)
	h.send("tool.invoke", registration("", more, ref))
	for env := h.read(); env.Type != arcp.JobCompleted; env = h.read() { // jobs may have waited for it
		switch env.Type {
		case arcp.JobAccepted:
		case arcp.ToolInvoke:
			h.early = append(h.early, env)
		default:
			f.Fatalf("registered: %s %s", env.Type, env.Payload)
		}
	}
	return h
}

func registration(id, more string, refs ...string) string {
	if id != "" {
		id = fmt.Sprintf(`"id":%q,`, id)
	}
	return fmt.Sprintf(`{"tool":"host.register_agent","arguments":{%s"name":"w","kind":"test","executes":["%s"]%s}}`, id, strings.Join(refs, `","`), more)
}

// report sends a frame about a dispatch and returns its id.
func (w workerPeer) report(d arcp.Envelope, typ, payload string) (id string) {
	w.Helper()
	return w.reportAs(typ, string(d.JobID), string(d.ID), payload)
}

func (w workerPeer) reportAs(typ, job, correlation, payload string) (id string) {
	w.Helper()
	w.sent++
	id = fmt.Sprintf("msg_w%d", w.sent)
	w.frame(id, typ, job, correlation, payload)
	return id
}

func (w workerPeer) frame(id, typ, job, correlation, payload string) {
	w.Helper()
	frame := fmt.Sprintf(`{"arcp":"1.1","id":%q,"type":%q,"timestamp":"2030-01-02T15:04:05Z","job_id":%q,"correlation_id":%q,"event_seq":7,"payload":%s}`,
		id, typ, job, correlation, payload)
	if err := errors.Join(w.conn.Write([]byte(frame)), w.conn.Flush()); err != nil {
		w.Fatal(err)
	}
}

// acceptDispatch waits for a dispatch and acknowledges it.
func (w *workerPeer) acceptDispatch() (arcp.Envelope, arcp.ToolInvokePayload) {
	w.Helper()
	var d arcp.Envelope
	if len(w.early) > 0 {
		d, w.early = w.early[0], w.early[1:]
	} else {
		d = w.expect("tool.invoke")
	}
	p, err := arcp.DecodePayload[arcp.ToolInvokePayload](&d)
	if err != nil || d.EventSeq != 0 || d.JobID == "" || d.ID == "" {
		w.Fatalf("dispatch %+v: %v", d, err)
	}
	w.report(d, "ack", `{}`)
	return d, p
}

// resumeSession resumes the session of a worker on a new connection.
func (w workerPeer) resumeSession() workerPeer {
	w.Helper()
	p := w.resume(w.token, 2) // the registration
	p.ignoreToolChanges = true
	return workerPeer{peer: p, token: resumeToken(w, p.expect("session.resumed"))}
}

// end reads up to the end of a job, whose type must be t.
func (p *peer) end(t arcp.Type) arcp.Envelope {
	p.Helper()
	for {
		if env := p.read(); env.Type.Terminal() {
			if env.Type != t {
				p.Fatalf("the job ended with %s %s, want %s", env.Type, env.Payload, t)
			}
			return env
		}
	}
}

// Jobs go to the least busy worker; the jobs of all tools of an agent count.
func TestLeastBusyWorker(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		var small, large atomic.Int64
		stop := make(chan struct{})
		share := func(w workerPeer, n *atomic.Int64) {
			f.serve.Go(func() {
				for {
					raw, err := w.conn.Read()
					if err != nil {
						return
					}
					env, err := arcp.Decode(raw)
					if err != nil {
						t.Error(err)
						return
					}
					if env.Type != arcp.ToolInvoke {
						continue
					}
					n.Add(1)
					frames := fmt.Sprintf(`{"arcp":"1.1","id":"msg_k%d","type":"ack","timestamp":"2030-01-02T15:04:05Z","job_id":%q,"correlation_id":%q,"payload":{}}`, n.Load(), env.JobID, env.ID)
					_ = errors.Join(w.conn.Write([]byte(frames)), w.conn.Flush())
				}
			})
		}
		one, three := f.openWorker("alice"), f.openWorker("alice")
		one.send("tool.invoke", registration("", `,"concurrency":4`, "a@1.0.0", "b@1.0.0"))
		one.expect("job.accepted", "job.completed")
		three.send("tool.invoke", registration("", `,"concurrency":12`, "a@1.0.0", "b@1.0.0"))
		three.expect("job.accepted", "job.completed")
		share(one, &small)
		share(three, &large)
		alice := f.dial("alice")
		for i := range 20 {
			alice.send("tool.invoke", fmt.Sprintf(`{"tool":%q}`, []string{"a", "b"}[i%2]))
			synctest.Wait()
			if i == 7 && (small.Load() != 2 || large.Load() != 6) {
				t.Errorf("of 8 jobs %d and %d are given to workers of 4 and 12", small.Load(), large.Load())
			}
		}
		if small.Load() != 4 || large.Load() != 12 || f.sum("arcp_jobs", `"queued"`) != 4 {
			t.Errorf("of 20 jobs %d and %d are given to workers of 4 and 12, %v are queued", small.Load(), large.Load(), f.sum("arcp_jobs", `"queued"`))
		}
		close(stop)
	})
}

// Answers that a worker does not take, because it is away or does not read, are
// bounded by their bytes: it is told of each one above that.
func TestAnswersThatAWorkerDoesNotTake(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	const calls, most = 20, 16 // of a megabyte each, and of those how many may wait
	value := arcp.Raw(`"` + strings.Repeat("x", 1<<20-100) + `"`)
	for _, away := range []bool{true, false} {
		var gate chan struct{}
		inBubble(t, func(c *runtime.Config) {
			gate = make(chan struct{})
			held, err := tool.NewRaw(tool.Capability{Name: "held", Limits: tool.Limits{Concurrency: calls, Timeout: time.Minute}},
				func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
					<-gate
					return value, nil
				})
			if err = errors.Join(err, c.Tools.Register(held)); err != nil {
				t.Fatal(err)
			}
		}, func(f *fixture) {
			w := f.startWorker("alice", "a@1.0.0", "")
			alice := f.dial("alice")
			alice.send("tool.invoke", `{"tool":"a","lease_request":{"tool.call":["held"]}}`)
			alice.expect("job.accepted")
			d, _ := w.acceptDispatch()
			for range calls {
				w.reportAs("tool.invoke", string(d.JobID), "", `{"tool":"held"}`)
				w.expect("job.accepted")
			}
			if away {
				_ = w.conn.Abort() // always nil
				synctest.Wait()
			}
			close(gate)
			synctest.Wait()
			if away {
				w = w.resumeSession()
				w.expect("tool.invoke")
			}
			given := 0
			for range calls {
				env := w.read()
				if env.Type == arcp.JobCompleted {
					given++
					continue
				}
				if e := refusal(t, env); e.Code != arcp.CodeResourceExhausted || e.Retryable {
					t.Errorf("a call failed with %+v", e)
				}
			}
			if given < most-1 || given > most+1 { // one more was in flight when the worker stopped reading
				t.Errorf("away %v: %d of %d answers of a megabyte were given, want %d", away, given, calls, most)
			}
			w.reportAs("tool.invoke", string(d.JobID), "", `{"tool":"held"}`)
			w.expect("job.accepted")
			w.expect("job.completed") // there is room again
			w.report(d, "tool.result", `{"value":1}`)
			alice.end("job.completed")
		})
	}
}

// client.Work follows the rules for workers, over several connections.
func TestClientWorkExecutesJobs(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		l := &link{f: f}
		opts := client.Options{Auth: client.Auth{Token: client.Secret("alice-" + token)}, Log: func(msg string, args ...any) { t.Log(append([]any{msg}, args...)...) }}
		c, err := client.ConnectFunc(f.Context(), l.dial, opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(f.Context())
		done := make(chan error, 1)
		var runs atomic.Int64
		go func() {
			done <- c.Work(ctx, client.WorkerConfig{Name: "counter", Concurrency: 4, Tools: []client.WorkerTool{
				{Ref: "count@1.0.0", Description: map[string]any{"recovery": "rerun"}, Handle: func(ctx context.Context, call *client.WorkerCall) (any, error) {
					runs.Add(1)
					for i := range 10 {
						select {
						case <-time.After(20 * time.Second):
						case <-ctx.Done():
							return nil, context.Cause(ctx)
						}
						_ = call.Progress(arcp.JobProgressPayload{Current: float64(i + 1)})
					}
					return map[string]uint32{"attempt": call.Attempt}, nil
				}},
				{Ref: "ask@1.0.0", Handle: func(ctx context.Context, call *client.WorkerCall) (any, error) {
					a, err := call.Ask(ctx, arcp.HumanInputRequestPayload{Prompt: "n?", ExpiresAt: time.Now().Add(time.Hour)})
					if err != nil {
						return nil, err
					}
					return call.Call(ctx, client.InvokeParams{Tool: "demo.echo", Arguments: a.Value})
				}},
				{Ref: "crash@1.0.0", Handle: func(context.Context, *client.WorkerCall) (any, error) { panic("oh") }},
			}})
		}()
		synctest.Wait()
		user, _ := f.client("alice", client.Handlers{Input: func(context.Context, client.InputRequest) (any, error) { return map[string]int{"n": 1}, nil }})
		defer user.Abort()

		job, err := user.Invoke(f.Context(), client.InvokeParams{Tool: "count"})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(45 * time.Second)
			synctest.Wait() // it has come back
			_ = l.conn.Abort()
		}
		if r, err := job.Wait(f.Context()); err != nil || string(r.Value) != `{"attempt":1}` || runs.Load() != 1 {
			t.Errorf("counted to %s in %d runs: %v", r.Value, runs.Load(), err)
		}
		asked, err := user.Invoke(f.Context(), client.InvokeParams{Tool: "ask", Options: arcp.SubmitOptions{LeaseRequest: arcp.Raw(`{"tool.call":["demo.echo"]}`)}})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := asked.Wait(f.Context()); err != nil || string(r.Value) != `{"n":1}` {
			t.Errorf("asked: %s, %v", r.Value, err)
		}
		_, _, err = run(f.T, user, "crash", `{}`)
		wantCode(f.T, "a handler that panics", err, arcp.CodeInternal)

		job, err = user.Invoke(f.Context(), client.InvokeParams{Tool: "count"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := user.Cancel(f.Context(), client.CancelParams{JobID: job.ID(), Reason: "enough"}); err != nil {
			t.Error(err)
		}
		_, err = job.Wait(f.Context())
		wantCode(f.T, "a job that is cancelled", err, arcp.CodeCancelled)
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Work = %v", err)
		}
		if _, err := user.Invoke(f.Context(), client.InvokeParams{Tool: "count"}); err == nil {
			t.Error("a worker that has left is given jobs")
		}
		c.Abort()
	})
}

// Names that the configuration reserves for a program are free when it starts for the first time,
// also if a worker has registered them before.
func TestReservedNamesAreFreeForTheirProgram(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		f.startWorker("alice", "kid.a@1.0.0", `,"id":"x"`)
		f.shutdown(0)
		f.serve.Wait()
		f.boot(func(c *runtime.Config) { c.Tools.ReserveFor("program:kid", "kid.*") })
		near, far := transport.Pipe(transport.Limits{})
		f.serve.Go(func() {
			_ = f.rt.ServeWorker(context.Background(), far, runtime.Worker{Name: "kid", Tools: []string{"kid.*"}}) // the peer sees how it ended
		})
		f.Cleanup(func() { _ = near.Abort() })
		p := &peer{fixture: f, conn: near, ignoreToolChanges: true}
		p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"none"},"client":{"kind":"w","version":"1"},%s}`, executes))
		p.expect("session.accepted")
		p.send("tool.invoke", registration("", "", "kid.a@1.0.0"))
		p.expect("job.accepted", "job.completed")
		agents := f.dial("alice").must("host.agents", "{}")["items"].([]any)
		if len(agents) != 1 || agents[0].(map[string]any)["status"] != "errored" {
			t.Errorf("agents of the worker that had the name: %v", agents)
		}
	})
}

// helper runs the client's worker for q@1.0.0, one job at a time.
func (f *fixture) helper(l *link, h func(context.Context, *client.WorkerCall) (any, error)) (stop func()) {
	f.Helper()
	opts := client.Options{Auth: client.Auth{Token: client.Secret("alice-" + token)}}
	c, err := client.ConnectFunc(f.Context(), l.dial, opts)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Work(ctx, client.WorkerConfig{Tools: []client.WorkerTool{{Ref: "q@1.0.0", Description: map[string]any{"recovery": "rerun"}, Handle: h}}})
	}()
	synctest.Wait()
	return func() { cancel(); c.Abort(); <-done }
}

// A worker that has sent an outcome has room for the next job, also before the outcome is
// acknowledged.
func TestClientThatIsDoneIsNotBusy(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		defer f.helper(&link{f: f}, func(context.Context, *client.WorkerCall) (any, error) { return 1, nil })()
		alice := f.dial("alice")
		const n = 200
		for range n {
			alice.send("tool.invoke", `{"tool":"q","arguments":{}}`)
		}
		for ended := 0; ended < n; {
			env := alice.read()
			if !env.Type.Terminal() {
				continue
			}
			if ended++; env.Type != arcp.JobCompleted {
				t.Errorf("job %d: %s", ended, env.Payload)
			}
		}
	})
}

// After a restart of the runtime a job is begun anew by the worker that still does
// the attempt before: that one ends.
func TestClientLeavesAnOldAttempt(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		ended := make(map[uint32]error)
		l := &link{f: f}
		stop := f.helper(l, func(ctx context.Context, call *client.WorkerCall) (any, error) {
			select {
			case <-time.After(10 * time.Minute):
			case <-ctx.Done():
			}
			ended[call.Attempt] = context.Cause(ctx)
			return call.Attempt, ctx.Err()
		})
		f.dial("alice").submit("q", `{}`)
		time.Sleep(time.Second)
		l.breakConnection(time.Hour) // it does not look for the runtime before that is there
		f.shutdown(0)
		f.serve.Wait()
		f.boot(nil)
		l.breakConnection(0)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if err, ok := ended[1]; !ok || err == nil {
			t.Errorf("the first attempt goes on after the restart: %v", ended)
		}
		if n := f.sum("arcp_jobs", `"running"`); n != 1 {
			t.Errorf("%v jobs run after the restart, want 1", n)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if err, ok := ended[2]; !ok || err != nil {
			t.Errorf("the second attempt has not come to its end: %v", ended)
		}
		stop()
	})
}

// receives reports whether a frame of a type comes within a while.
func (w workerPeer) receives(typ arcp.Type, within time.Duration) bool {
	w.Helper()
	end := time.AfterFunc(within, func() { _ = w.conn.Abort() })
	defer end.Stop()
	for {
		raw, err := w.conn.Read()
		if err != nil {
			return false
		}
		if env, err := arcp.Decode(raw); err == nil && env.Type == typ {
			return true
		}
	}
}

// Sixteen acks that come at once make room for the seventeenth.
func TestAcksAtOnceMakeRoom(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		for round := range 20 {
			w := f.startWorker("alice", fmt.Sprintf("a%d@1.0.0", round), `,"concurrency":40`)
			alice := f.dial("alice")
			for range 17 {
				alice.send("tool.invoke", fmt.Sprintf(`{"tool":"a%d"}`, round))
			}
			var frames [][]byte
			for i := range 16 {
				d := w.expect("tool.invoke")
				frames = append(frames, fmt.Appendf(nil, `{"arcp":"1.1","id":"msg_w%d","type":"ack","timestamp":"2030-01-02T15:04:05Z","job_id":%q,"correlation_id":%q,"payload":{}}`, i, d.JobID, d.ID))
			}
			for _, frame := range frames {
				_ = w.conn.Write(frame) // the runtime may end the connection
			}
			_ = w.conn.Flush() // likewise
			if !w.receives("tool.invoke", time.Second) {
				t.Errorf("round %d: the 17th is not given", round)
			}
			_ = w.conn.Abort() // always nil
		}
	})
}

// Shutdown ends the open questions and calls of a worker, also of one without a connection: it waits
// for their goroutines.
func TestShutdownEndsQuestionsOfWorkers(t *testing.T) {
	for _, away := range []bool{false, true} {
		inBubble(t, func(c *runtime.Config) {
			endless, err := tool.NewRaw(tool.Capability{Name: "endless"}, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			if err = errors.Join(err, c.Tools.Register(endless)); err != nil {
				t.Fatal(err)
			}
		}, func(f *fixture) {
			w := f.startWorker("alice", "a@1.0.0", "")
			alice := f.dial("alice")
			alice.send("tool.invoke", `{"tool":"a","lease_request":{"tool.call":["endless"]}}`)
			alice.expect("job.accepted")
			d, _ := w.acceptDispatch()
			w.report(d, "human.input.request", `{"prompt":"how many?","expires_at":"2030-01-02T15:04:05Z"}`)
			w.report(d, "tool.invoke", `{"tool":"endless"}`)
			synctest.Wait()
			if away {
				_ = w.conn.Abort() // always nil
				synctest.Wait()
			}
			if n := f.sum("arcp_jobs", `"blocked"`) + f.sum("arcp_jobs", `"running"`); n != 2 {
				t.Errorf("away %v: %v jobs run or are blocked, want the job and its child", away, n)
			}
			f.shutdown(0)
		})
	}
}
