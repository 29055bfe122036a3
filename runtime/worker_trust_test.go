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
				_ = w.conn.Write(frame)
			}
			_ = w.conn.Flush()
			if !w.receives("tool.invoke", time.Second) {
				t.Errorf("round %d: the 17th is not given", round)
			}
			_ = w.conn.Abort()
		}
	})
}
