package runtime_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// outcome reads up to the outcome of a worker's call.
func (h *hand) outcome() arcp.Envelope {
	h.Helper()
	for {
		switch env := h.read(); env.Type {
		case arcp.JobCompleted, arcp.JobFailed, arcp.Nack:
			return env
		}
	}
}

// A job, and its children, continue without the session.
func TestChildOfAnEndedSession(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", "")
		alice := b.dial("alice")
		alice.send("tool.invoke", `{"tool":"a","arguments":{},"lease_request":{"tool.call":["*"]}}`)
		d, _ := w.take()
		alice.send("session.close", `{"forget":true}`)
		time.Sleep(time.Second)
		w.say(d, "tool.invoke", `{"tool":"demo.echo","arguments":{}}`)
		if env := w.outcome(); env.Type != arcp.JobCompleted {
			t.Errorf("a call of a job whose session has ended: %s %s", env.Type, env.Payload)
		}
	})
}

// Tools that an ended session had hidden stay hidden from its jobs, also after a restart,
// until the last of them has ended.
func TestHiddenFromJobsOfAnEndedSession(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", about("a@1.0.0", `"recovery":"rerun"`))
		alice := b.dial("alice")
		alice.must("tools.overlay", `{"include_base":false,"tools":["a"]}`)
		alice.send("tool.invoke", `{"tool":"a","arguments":{},"lease_request":{"tool.call":["*"]}}`)
		d, _ := w.take()
		call := func(when string) {
			t.Helper()
			w.say(d, "tool.invoke", `{"tool":"demo.echo","arguments":{}}`)
			if env := w.outcome(); env.Type == arcp.JobCompleted {
				t.Errorf("%s: what was hidden was called", when)
			}
		}
		call("while the session lives")
		alice.send("session.close", `{"forget":true}`)
		time.Sleep(time.Second)
		call("when it has ended")
		b.shutdown(0)
		b.serve.Wait()
		b.boot(nil)
		w = hand{peer: b.resume(w.token, 2)}
		w.expect("session.resumed")
		w.busy = true
		d, _ = w.take()
		call("after a restart")
		w.say(d, "tool.result", `{"value":1}`)
		w.until("ack")
		time.Sleep(time.Hour)
		synctest.Wait()
		if rows := b.overlayRows(); len(rows) != 0 {
			t.Errorf("kept for nobody: %v", rows)
		}
	})
}

// A tool that speaks of its own retries makes no records of calls.
func TestRecordsAreTheRuntimes(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", about("a@1.0.0", `"recovery":"rerun","retry":{"max_attempts":3,"initial_ms":10}`))
		alice := b.dial("alice")
		job := alice.begin("a", `{}`)
		d, _ := w.take()
		w.say(d, "event.emit", `{"name":"retry","data":{"attempt":43,"code":"PERMISSION_DENIED","delay_ms":0}}`)
		w.say(d, "event.emit", `{"name":"retry","data":{"attempt":2,"code":"PERMISSION_DENIED","delay_ms":0}}`)
		w.say(d, "tool.error", `{"code":"UNAVAILABLE","message":"x","retryable":true}`)
		w.expect("ack")
		d, _ = w.take()
		w.say(d, "tool.result", `{"value":1}`)
		alice.end("job.completed")
		items := alice.must("tools.calls", fmt.Sprintf(`{"job_id":%q}`, job))["items"].([]any)
		if len(items) != 2 || fmt.Sprint(items[0].(map[string]any)["status"]) == "denied" {
			t.Errorf("records of 2 attempts: %v", items)
		}
	})
}

// A hidden tool is not reachable as a clean-up tool either.
func TestCleanUpByAHiddenTool(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.must("tools.overlay", `{"hide":["demo.echo"]}`)
		args := `{"provider":"p","resource_type":"t","external_id":"e","lease_duration_seconds":0,"cleanup_tool":%q}`
		hidden := p.refused("hidden", "registry.lease", fmt.Sprintf(args, "demo.echo"), arcp.CodeInvalidArgument)
		none := p.refused("not there", "registry.lease", fmt.Sprintf(args, "demo.ecco"), arcp.CodeInvalidArgument)
		if strings.ReplaceAll(hidden.Message, "demo.echo", "X") != strings.ReplaceAll(none.Message, "demo.ecco", "X") {
			t.Errorf("a hidden tool is told from none: %q, %q", hidden.Message, none.Message)
		}
	})
}
