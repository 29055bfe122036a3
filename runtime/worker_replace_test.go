package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/store"
)

// described returns members of a registration that describe a@1.0.0.
func described(description string) string {
	return fmt.Sprintf(`,"capabilities":{"tools":{"a@1.0.0":{"description":%q,"recovery":"rerun"}}}`, description)
}

// lose breaks the connection of a worker, as the end of its process does.
func (w workerPeer) lose() {
	_ = w.conn.Abort() // always nil
	synctest.Wait()
}

// wantDescription compares the description of a@1.0.0.
func (f *fixture) wantDescription(why, want string) {
	f.Helper()
	p := f.dial("alice")
	defer func() { _ = p.conn.Abort() }() // always nil
	if d := p.must("tools.describe", `{"name":"a"}`); d["description"] != want {
		f.Errorf("%s: a is described as %q, want %q", why, d["description"], want)
	}
}

// A worker that was killed does not hold its tools: its next version registers them with another
// description at once. The tools stay with the new one when the old session is resumed, and after a restart.
func TestNextVersionReplacesKilledWorker(t *testing.T) {
	for name, id := range map[string]string{"new id": "", "same id": `,"id":"w1"`} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				old := f.startWorker("alice", "a@1.0.0", described("one")+id)
				old.lose()
				next := f.startWorker("alice", "a@1.0.0", described("two")+id)
				f.wantDescription("replaced", "two")
				states := agentStates(f)
				want := "w idle"
				if id == "" {
					want = "w idle, w stopped"
				}
				if states != want {
					t.Errorf("agents after the replacement: %s, want %s", states, want)
				}

				old = old.resumeSession()
				alice := f.dial("alice")
				alice.submit("a", `{}`)
				d, _ := next.acceptDispatch()
				next.report(d, "tool.result", `{"value":1}`)
				alice.end("job.completed")
				code := arcp.CodeFailedPrecondition
				if id != "" {
					code = arcp.CodePermissionDenied
				}
				old.refuses("the replaced worker registers again", "host.register_agent",
					fmt.Sprintf(`{"name":"w","kind":"test","executes":["a@1.0.0"]%s}`, described("one")+id), code)

				old.lose()
				next.lose()
				f.shutdown(0)
				f.serve.Wait()
				f.boot(nil)
				f.wantDescription("after a restart", "two")
				old.resumeSession() // it gets no jobs
				next = next.resumeSession()
				f.dial("alice").submit("a", `{}`)
				next.acceptDispatch()
			})
		})
	}
}

// agentStates returns the names and states of alice's agents in the order of their states.
func agentStates(f *fixture) string {
	f.Helper()
	var idle, other []string
	for _, item := range f.dial("alice").must("host.agents", "{}")["items"].([]any) {
		a := item.(map[string]any)
		if state := fmt.Sprint(a["name"], " ", a["status"]); a["status"] == "idle" {
			idle = append(idle, state)
		} else {
			other = append(other, state)
		}
	}
	return strings.Join(append(idle, other...), ", ")
}

// After a restart no worker has a connection: a version that differs registers at once.
func TestNextVersionReplacesWorkerOfEarlierRuntime(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		old := f.startWorker("alice", "a@1.0.0", described("one"))
		alice := f.dial("alice")
		alice.submit("a", `{}`)
		old.acceptDispatch()
		old.lose()
		f.shutdown(0)
		f.serve.Wait()
		f.boot(nil)
		next := f.startWorker("alice", "a@1.0.0", described("two"))
		if _, p := next.acceptDispatch(); p.Attempt != 2 {
			t.Errorf("the new worker gets attempt %d of the job, want 2", p.Attempt)
		}
		f.wantDescription("replaced after a restart", "two")
	})
}

// A worker that has a job keeps its tools while it may return. The refusal says for how long, and a
// registration after that succeeds.
func TestKilledWorkerWithJobKeepsItsTools(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		old := f.startWorker("alice", "a@1.0.0", described("one"))
		alice := f.dial("alice")
		job := alice.submit("a", `{}`)
		old.acceptDispatch()
		old.lose()
		until := time.Now().Add(time.Minute)
		next := f.openWorker("alice")
		register := fmt.Sprintf(`{"name":"w","kind":"test","executes":["a@1.0.0"]%s}`, described("two"))
		e := next.refuses("a worker with a job is away", "host.register_agent", register, arcp.CodeFailedPrecondition)
		for _, part := range []string{string(old.session), string(job), until.UTC().Format(time.RFC3339),
			fmt.Sprintf("`arcp sessions evict %s --forget`", old.session), "a@1.0.0"} {
			if !strings.Contains(e.Message, part) {
				t.Errorf("the refusal does not name %s: %s", part, e.Message)
			}
		}
		if after, ok := arcp.RetryAfterOf(e.Details); !e.Retryable || !ok || after != time.Minute {
			t.Errorf("the refusal is retryable %v after %v, want after a minute", e.Retryable, after)
		}
		f.wantDescription("refused", "one")
		time.Sleep(time.Minute)
		synctest.Wait()
		next = f.startWorker("alice", "a@1.0.0", described("two"))
		if _, p := next.acceptDispatch(); p.Attempt != 2 {
			t.Errorf("the new worker gets attempt %d of the job, want 2", p.Attempt)
		}
	})
}

// client.Work registers a worker as soon as the one that was killed cannot return to its job.
func TestClientWorkRepeatsItsRegistration(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		old := f.startWorker("alice", "q@1.0.0", `,"capabilities":{"tools":{"q@1.0.0":{"description":"one","recovery":"rerun"}}}`)
		alice := f.dial("alice")
		alice.submit("q", `{}`)
		old.acceptDispatch()
		old.lose()
		var attempts []uint32
		defer f.helper(&link{f: f}, func(_ context.Context, call *client.WorkerCall) (any, error) {
			attempts = append(attempts, call.Attempt)
			return "done", nil
		})()
		alice.until("job.completed")
		if len(attempts) != 1 || attempts[0] != 2 {
			t.Errorf("the new worker ran the attempts %v of the job, want 2", attempts)
		}
	})
}

// A connected worker keeps its tools, whatever others describe.
func TestConnectedWorkerIsNotReplaced(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		old := f.startWorker("alice", "a@1.0.0", described("one"))
		e := f.openWorker("alice").refuses("a connected worker", "host.register_agent",
			fmt.Sprintf(`{"name":"w","kind":"test","executes":["a@1.0.0"]%s}`, described("two")), arcp.CodeFailedPrecondition)
		if !strings.Contains(e.Message, string(old.session)) || e.Retryable {
			t.Errorf("refused with %v, want an error that names session %s and is not retryable", e, old.session)
		}
		f.wantDescription("refused", "one")
	})
}

// A replacement that is not written is undone: the replaced agent executes its tools again, and the call
// that is repeated after the conflict replaces it.
func TestReplacementIsRepeatedAfterConflict(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		f.startWorker("alice", "a@1.0.0", described("one")+`,"id":"old"`).lose()
		conflicts := 0
		f.st.set(func() {
			f.st.onWrite = func(w *store.Write) {
				for _, part := range append([]*store.Write{w}, w.With...) {
					for _, op := range part.Ops {
						if rec, ok := op.(*store.PutRecord); ok && strings.HasSuffix(rec.Key, "/old") && conflicts == 0 {
							rec.Rev += 7
							conflicts++
						}
					}
				}
			}
		})
		f.startWorker("alice", "a@1.0.0", described("two"))
		if states := agentStates(f); states != "w idle, w stopped" || conflicts != 1 {
			t.Errorf("agents after %d conflicts: %s, want one conflict and one agent stopped", conflicts, states)
		}
		f.wantDescription("replaced", "two")
	})
}

// client.Work ends when its session is resumed and another program has replaced its agent meanwhile. A worker that
// keeps its agent continues.
func TestClientWorkEndsWhenItsAgentIsReplaced(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		l := &link{f: f}
		c, err := client.ConnectFunc(f.Context(), l.dial, client.Options{Auth: client.Auth{Token: client.Secret("alice-" + token)}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Abort()
		done := make(chan error, 1)
		go func() {
			done <- c.Work(f.Context(), client.WorkerConfig{ID: "w", Tools: []client.WorkerTool{{Ref: "a@1.0.0", Description: map[string]string{"description": "one"},
				Handle: func(context.Context, *client.WorkerCall) (any, error) { return "done", nil }}}})
		}()
		synctest.Wait()
		l.breakConnection(time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		alice := f.dial("alice")
		alice.submit("a", `{}`)
		alice.until("job.completed")
		if len(done) > 0 {
			t.Errorf("Work ends with %v after a resume, want that it continues", <-done)
		}
		l.breakConnection(5 * time.Second)
		synctest.Wait()
		next := f.startWorker("alice", "a@1.0.0", described("two"))
		if err := <-done; !errors.Is(err, client.ErrReplaced) || !strings.Contains(err.Error(), "agent w: another program has replaced") {
			t.Errorf("Work = %v, want that agent w is replaced", err)
		}
		alice.submit("a", `{}`)
		next.acceptDispatch()
		if c.Err() != nil {
			t.Errorf("the session of the replaced worker has ended: %v", c.Err())
		}
	})
}
