package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/transport"
)

// trusted is a worker that is also asked questions to people.
func (b *fixture) trusted(name, ref string) hand {
	b.Helper()
	p := b.connect(nil)
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"%s-%s"},"client":{"kind":"w","version":"1"},`+
		`"capabilities":{"executes":true,"human_input":true,"permission_challenge":true}}`, name, token))
	p.busy = true
	w := hand{peer: p, token: resumeToken(b, p.expect("session.accepted"))}
	w.send("tool.invoke", registration("one", "", ref))
	w.expect("job.accepted", "job.completed")
	return w
}

// Names that the configuration reserves for a program are free when it starts for the first time,
// also if a worker has registered them before.
func TestReservedNamesAreFreeForTheirProgram(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		b.work("alice", "kid.a@1.0.0", `,"id":"x"`)
		b.shutdown(0)
		b.serve.Wait()
		b.boot(func(c *runtime.Config) { c.Tools.ReserveFor("program:kid", "kid.*") })
		near, far := transport.Pipe(transport.Limits{})
		b.serve.Go(func() {
			_ = b.rt.ServeWorker(context.Background(), far, runtime.Worker{Name: "kid", Tools: []string{"kid.*"}}) // the peer sees how it ended
		})
		b.Cleanup(func() { _ = near.Abort() })
		p := &peer{fixture: b, conn: near, busy: true}
		p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"none"},"client":{"kind":"w","version":"1"},%s}`, executes))
		p.expect("session.accepted")
		p.send("tool.invoke", registration("", "", "kid.a@1.0.0"))
		p.expect("job.accepted", "job.completed")
		agents := b.dial("alice").must("host.agents", "{}")["items"].([]any)
		if len(agents) != 1 || agents[0].(map[string]any)["status"] != "errored" {
			t.Errorf("agents of the worker that had the name: %v", agents)
		}
	})
}

// A worker cannot approve a call of its own job: neither while it is registered nor when it
// has unregistered with the job unfinished.
func TestWorkerCannotApproveItsCall(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		inBubble(t, nil, func(b *fixture) {
			w := b.trusted("alice", "a@1.0.0")
			other := b.work("alice", "danger@1.0.0", about("danger@1.0.0", `"approval":"manual"`))
			human := b.human("alice")
			b.dial("alice").send("tool.invoke", `{"tool":"a","arguments":{},"lease_request":{"tool.call":["*"]}}`)
			d, _ := w.take()
			if leaves {
				w.send("tool.invoke", `{"tool":"host.unregister_agent","arguments":{"agent_id":"one"}}`)
				w.until("job.completed")
			}
			w.say(d, "tool.invoke", `{"tool":"danger","arguments":{}}`)
			q := human.until("human.choice.request")
			w.respond("human.choice.response", q, `{"choice_id":"approve"}`)
			if e := refusal(t, w.until("nack")); e.Code != arcp.CodePermissionDenied {
				t.Errorf("left: %v: a worker approves its own call: %s", leaves, e.Code)
			}
			human.respond("human.choice.response", q, `{"choice_id":"approve"}`)
			other.take()
		})
	}
}

// A worker cannot grant its own job a permission.
func TestWorkerCannotGrantItself(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.trusted("alice", "a@1.0.0")
		human := b.human("alice")
		human.send("tool.invoke", `{"tool":"a","arguments":{}}`)
		d, _ := w.take()
		const p = `"permission":"tool.call","resource":"demo.echo","operation":"call"`
		w.say(d, "permission.request", `{`+p+`,"reason":"x"}`)
		q := human.until("permission.request")
		w.respond("permission.grant", q, `{`+p+`,"lease_seconds":100}`)
		if e := refusal(t, w.until("nack")); e.Code != arcp.CodePermissionDenied {
			t.Errorf("a worker grants itself a permission: %s", e.Code)
		}
		human.respond("permission.grant", q, `{`+p+`,"lease_seconds":100}`)
		w.until("permission.grant")
	})
}

// helper runs the client's worker for q@1.0.0, one job at a time.
func (b *fixture) helper(l *link, h func(context.Context, *client.WorkerCall) (any, error)) (stop func()) {
	b.Helper()
	opts := client.Options{Auth: client.Auth{Token: client.Secret("alice-" + token)}}
	c, err := client.ConnectFunc(b.Context(), l.dial, opts)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
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
	inBubble(t, nil, func(b *fixture) {
		defer b.helper(&link{b: b}, func(context.Context, *client.WorkerCall) (any, error) { return 1, nil })()
		alice := b.dial("alice")
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
	inBubble(t, nil, func(b *fixture) {
		ended := make(map[uint32]error)
		l := &link{b: b}
		stop := b.helper(l, func(ctx context.Context, call *client.WorkerCall) (any, error) {
			select {
			case <-time.After(10 * time.Minute):
			case <-ctx.Done():
			}
			ended[call.Attempt] = context.Cause(ctx)
			return call.Attempt, ctx.Err()
		})
		b.dial("alice").begin("q", `{}`)
		time.Sleep(time.Second)
		l.breakConnection(time.Hour) // it does not look for the runtime before that is there
		b.shutdown(0)
		b.serve.Wait()
		b.boot(nil)
		l.breakConnection(0)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if err, ok := ended[1]; !ok || err == nil {
			t.Errorf("the first attempt goes on after the restart: %v", ended)
		}
		if n := b.sum("arcp_jobs", `"running"`); n != 1 {
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

// goesTo reports whether a frame of a type comes within a while.
func (h hand) goesTo(typ arcp.Type, within time.Duration) bool {
	h.Helper()
	end := time.AfterFunc(within, func() { _ = h.conn.Abort() })
	defer end.Stop()
	for {
		raw, err := h.conn.Read()
		if err != nil {
			return false
		}
		if env, err := arcp.Decode(raw); err == nil && env.Type == typ {
			return true
		}
	}
}

// A job that ended while its worker was away takes no place when the worker returns.
func TestPlaceOfADispatchThatEndedInAbsence(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", "")
		alice := b.dial("alice")
		job := alice.begin("a", `{}`)
		synctest.Wait()
		_ = w.conn.Abort() // it has not read that it was given something
		synctest.Wait()
		alice.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q,"deadline_ms":1000}`, job))
		alice.end("job.cancelled")
		time.Sleep(5 * time.Second)
		w = w.back()
		alice.begin("a", `{}`)
		w.expect("cancel")
		if !w.goesTo("tool.invoke", 3*runtime.DefaultHeartbeat) {
			t.Error("a job waits for a worker that is connected and idle")
		}
	})
}

// Sixteen acks that come at once make room for the seventeenth.
func TestAcksAtOnceMakeRoom(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		for round := range 20 {
			w := b.work("alice", fmt.Sprintf("a%d@1.0.0", round), `,"concurrency":40`)
			alice := b.dial("alice")
			for range 17 {
				alice.send("tool.invoke", fmt.Sprintf(`{"tool":"a%d"}`, round))
			}
			var frames [][]byte
			for i := range 16 {
				d := w.expect("tool.invoke")
				frames = append(frames, fmt.Appendf(nil, `{"arcp":"1.1","id":"msg_w%d","type":"ack","timestamp":"2030-01-02T15:04:05Z","job_id":%q,"correlation_id":%q,"payload":{}}`, i, d.JobID, d.ID))
			}
			for _, f := range frames {
				_ = w.conn.Write(f)
			}
			_ = w.conn.Flush()
			if !w.goesTo("tool.invoke", time.Second) {
				t.Errorf("round %d: the 17th is not given", round)
			}
			_ = w.conn.Abort()
		}
	})
}

// A job that is cancelled is not offered to the next worker when the first refuses.
func TestCancelledJobIsNotOfferedAgain(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		one, two := b.work("alice", "a@1.0.0", ""), b.work("alice", "a@1.0.0", "")
		alice := b.dial("alice")
		job := alice.begin("a", `{}`)
		d := one.expect("tool.invoke")
		alice.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q,"deadline_ms":30000}`, job))
		one.expect("cancel")
		alice.until("cancel.accepted")
		one.say(d, "nack", `{"code":"CANCELLED","message":"not begun","retryable":false}`)
		if two.goesTo("tool.invoke", 20*time.Second) {
			t.Error("a cancelled job is given to another worker")
		}
	})
}

// A worker that returns and sends nothing is watched by its heartbeats like others.
func TestSilenceAfterComingBack(t *testing.T) {
	for _, says := range []string{`progress`, `heartbeat`} {
		inBubble(t, nil, func(b *fixture) {
			w := b.work("alice", "a@1.0.0", "")
			b.dial("alice").begin("a", `{}`)
			d := w.expect("tool.invoke")
			_ = w.conn.Abort()
			synctest.Wait()
			w = w.back()
			w.expect("tool.invoke")
			w.say(d, "job."+says, map[string]string{"progress": `{"current":1}`, "heartbeat": `{"sequence":1,"state":"running"}`}[says])
			time.Sleep(time.Hour)
			synctest.Wait()
			if b.sum("arcp_jobs", `"running"`) != 0 {
				t.Errorf("%s, then an hour of silence, and the job runs", says)
			}
		})
	}
}

// One that comes back late and never says whether it takes the job is not waited
// for for ever.
func TestNeverTakenAfterComingBack(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", "")
		b.dial("alice").begin("a", `{}`)
		w.expect("tool.invoke")
		time.Sleep(2*runtime.DefaultHeartbeat - 5*time.Second)
		_ = w.conn.Abort()
		time.Sleep(20 * time.Second)
		w = w.back()
		w.expect("tool.invoke")
		time.Sleep(time.Hour)
		synctest.Wait()
		if b.sum("arcp_jobs", `"running"`) != 0 {
			t.Error("nobody has taken the job for an hour, and it runs")
		}
	})
}

// Jobs that wait for a worker of a former owner do not hold the places of the next owner of
// the tool's name.
func TestJobsOfAFormerOwner(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.hired("bob")
		w.send("tool.invoke", registration("one", "", "a@1.0.0"))
		w.until("job.completed")
		bob := b.dial("bob")
		for range 5 {
			bob.begin("a", `{}`)
		}
		d, _ := w.take()
		w.send("tool.invoke", `{"tool":"host.unregister_agent","arguments":{"agent_id":"one"}}`)
		w.until("job.completed")
		w.say(d, "tool.result", `{"value":1}`)
		synctest.Wait()
		mine := b.work("alice", "a@1.0.0", "")
		job := b.dial("alice").begin("a", `{}`)
		if d, _ := mine.take(); d.JobID != job {
			t.Errorf("alice's worker is given %s, want %s", d.JobID, job)
		}
	})
}
