package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool"
)

// hand is the other end of a connection that executes jobs.
type hand struct {
	*peer
	token string          // resumes its session
	early []arcp.Envelope // dispatches that came before the answer to the registration
}

const executes = `"capabilities":{"executes":true}`

// hired opens a session that executes.
func (b *fixture) hired(name string) hand {
	b.Helper()
	p := b.connect(nil)
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"%s-%s"},"client":{"kind":"worker","version":"1"},%s}`, name, token, executes))
	env := p.expect("session.accepted")
	a, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&env)
	if err != nil || !a.Capabilities.Flags[arcp.FeatureExecutes] {
		b.Fatalf("a worker is accepted with %s: %v", env.Payload, err)
	}
	p.busy = true
	return hand{peer: p, token: a.ResumeToken}
}

// work opens a session that executes, with an agent for one tool; more are further
// members of the registration.
func (b *fixture) work(name, ref, more string) hand {
	b.Helper()
	h := b.hired(name)
	h.send("tool.invoke", registration("", more, ref))
	for env := h.read(); env.Type != arcp.JobCompleted; env = h.read() { // jobs may have waited for it
		switch env.Type {
		case arcp.JobAccepted:
		case arcp.ToolInvoke:
			h.early = append(h.early, env)
		default:
			b.Fatalf("registered: %s %s", env.Type, env.Payload)
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

// about returns a further member of a registration: the description of a tool.
func about(ref, members string) string {
	return fmt.Sprintf(`,"capabilities":{"tools":{%q:{%s}}}`, ref, members)
}

// say sends a frame about a dispatch, and returns its id.
func (h hand) say(d arcp.Envelope, typ, payload string) (id string) {
	h.Helper()
	return h.tell(typ, string(d.JobID), string(d.ID), payload)
}

func (h hand) tell(typ, job, correlation, payload string) (id string) {
	h.Helper()
	h.n++
	id = fmt.Sprintf("msg_w%d", h.n)
	h.frame(id, typ, job, correlation, payload)
	return id
}

func (h hand) frame(id, typ, job, correlation, payload string) {
	h.Helper()
	frame := fmt.Sprintf(`{"arcp":"1.1","id":%q,"type":%q,"timestamp":"2030-01-02T15:04:05Z","job_id":%q,"correlation_id":%q,"event_seq":7,"payload":%s}`,
		id, typ, job, correlation, payload)
	if err := errors.Join(h.conn.Write([]byte(frame)), h.conn.Flush()); err != nil {
		h.Fatal(err)
	}
}

// take waits for a dispatch and takes it.
func (h *hand) take() (arcp.Envelope, arcp.ToolInvokePayload) {
	h.Helper()
	var d arcp.Envelope
	if len(h.early) > 0 {
		d, h.early = h.early[0], h.early[1:]
	} else {
		d = h.expect("tool.invoke")
	}
	p, err := arcp.DecodePayload[arcp.ToolInvokePayload](&d)
	if err != nil || d.EventSeq != 0 || d.JobID == "" || d.ID == "" {
		h.Fatalf("dispatch %+v: %v", d, err)
	}
	h.say(d, "ack", `{}`)
	return d, p
}

// back resumes the session of a worker.
func (h hand) back() hand {
	h.Helper()
	p := h.resume(h.token, 2) // the registration
	p.busy = true
	return hand{peer: p, token: resumeToken(h, p.expect("session.resumed"))}
}

// nacked expects that a frame is refused.
func (h hand) nacked(why, id string, code arcp.Code) {
	h.Helper()
	env := h.expect("nack")
	if e := refusal(h, env); string(env.CorrelationID) != id || e.Code != code {
		h.Errorf("%s: nack of %s with %s (%s), want %s of %s", why, env.CorrelationID, e.Code, e.Message, code, id)
	}
}

// run submits a job.
func (p *peer) begin(tool, args string) arcp.JobID {
	p.Helper()
	p.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s}`, tool, args))
	return p.until("job.accepted").JobID
}

// end reads up to the end of a job.
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

func TestWorkerDoesAJob(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "sum@1.0.0", "")
		alice := b.dial("alice")
		job := alice.begin("sum", `{"a":1,"b":2}`)
		d, p := w.take()
		if d.JobID != job || p.Tool != "sum@1.0.0" || p.Attempt != 1 || string(p.Arguments) != `{"a":1,"b":2}` {
			t.Errorf("dispatch of %s: %s", d.JobID, d.Payload)
		}
		w.say(d, "job.progress", `{"percent":50}`)
		w.say(d, "log", `{"level":"info","message":"hm","attributes":{"n":1}}`)
		w.say(d, "event.emit", `{"name":"half","data":[1]}`)
		w.say(d, "metric", `{"name":"rows","value":3,"unit":"count"}`)
		w.say(d, "job.checkpoint", `{"label":"one","data":{"n":1}}`)
		w.expect("ack")
		w.say(d, "tool.result", `{"value":{"sum":3}}`)
		alice.expect("job.started")
		if env := alice.expect("job.progress"); string(env.Payload) != `{"current":50,"total":100,"percent":50}` {
			t.Errorf("percent alone is %s", env.Payload)
		}
		alice.expect("log", "event.emit", "metric")
		if env := alice.end("job.completed"); string(env.Payload) != `{"value":{"sum":3}}` || env.EventSeq == 0 || env.ID == d.ID {
			t.Errorf("the end: %+v", env)
		}
		w.expect("ack")
		if n := b.sum("arcp_worker_dispatches_total", `"ok"`); n != 1 {
			t.Errorf("%v dispatches ended well, want 1", n)
		}
	})
}

func TestWhoMayExecute(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(c *runtime.Config) {
		c.Log = zerolog.New(zerolog.SyncWriter(&log))
		var ac auth.Config
		for _, name := range []string{"alice", "bob", "clerk"} {
			entry := auth.Token{Principal: name, Secret: auth.Secret(name + "-" + token)}
			if name != "clerk" {
				entry.Roles = auth.LocalRoles()
			}
			if err := ac.AddToken(entry); err != nil {
				t.Fatal(err)
			}
		}
		c.Auth = auth.NewSet(&ac)
	}, func(b *fixture) {
		refused := func(why string, p *peer, payload string, code arcp.Code) {
			t.Helper()
			p.send("tool.invoke", payload)
			var env arcp.Envelope
			for env = p.read(); !env.Type.Terminal(); env = p.read() {
			}
			if e := refusal(t, env); e.Code != code {
				t.Errorf("%s: %s (%s), want %s", why, e.Code, e.Message, code)
			}
		}
		clerk := b.connect(nil)
		clerk.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"clerk-%s"},"client":{"kind":"w","version":"1"},%s}`, token, executes))
		env := clerk.expect("session.accepted")
		if p, _ := arcp.DecodePayload[arcp.SessionAcceptedPayload](&env); p.Capabilities.Flags[arcp.FeatureExecutes] {
			t.Error("executes is negotiated with a principal that has not the role worker")
		}
		refused("without the role", clerk, registration("", "", "a@1.0.0"), arcp.CodePermissionDenied)
		refused("without the capability", b.dial("alice"), registration("", "", "a@1.0.0"), arcp.CodeFailedPrecondition)

		alice := b.work("alice", "a@1.0.0", "")
		bob := b.hired("bob")
		refused("a name of somebody else", bob.peer, registration("", "", "a@2.0.0"), arcp.CodeAlreadyExists)
		b.cfg.Tools.ReservePrefix("git.")
		refused("a name that a source may have", bob.peer, registration("", "", "git.status@1.0.0"), arcp.CodeAlreadyExists)
		b.cfg.Tools.ReserveFor("program:kid", "kid.*")
		refused("a name that arcp.yaml gives to a worker", bob.peer, registration("", "", "kid.a@1.0.0"), arcp.CodeAlreadyExists)
		refused("a reserved name", bob.peer, registration("", "", "demo.echo@9.0.0"), arcp.CodeAlreadyExists)
		refused("no name", bob.peer, registration("", "", "A b@1"), arcp.CodeInvalidArgument)
		refused("a word too many", bob.peer, registration("", about("b@1.0.0", `"recover":"rerun"`), "b@1.0.0"), arcp.CodeInvalidArgument)
		refused("a broken schema", bob.peer, registration("", about("b@1.0.0", `"input_schema":{"type":7}`), "b@1.0.0"), arcp.CodeInvalidArgument)
		refused("about what it does not execute", bob.peer, registration("", about("c@1.0.0", ``), "b@1.0.0"), arcp.CodeInvalidArgument)
		second := b.hired("alice")
		refused("another description", second.peer, registration("", about("a@1.0.0", `"recovery":"rerun"`), "a@1.0.0"), arcp.CodeFailedPrecondition)

		stranger := b.dial("bob")
		refused("the tool of another principal", stranger, `{"tool":"a","arguments":{}}`, arcp.CodeAgentNotAvailable)
		if agents := shown(b, "bob"); slices.Contains(agents, "a") {
			t.Errorf("bob is shown %v", agents)
		}
		if agents := shown(b, "alice"); !slices.Contains(agents, "a") {
			t.Errorf("alice is shown %v", agents)
		}
		_ = alice
	})
	if n := strings.Count(log.String(), `"action":"host.register_agent"`); n < 5 {
		t.Errorf("%d refused registrations are audited: %s", n, log.String())
	}
}

// shown is the inventory that a new session of a principal is shown.
func shown(b *fixture, name string) []string {
	p := b.connect(nil)
	p.open(name)
	return agentsOf(b.T, p.expect("session.accepted"))
}

func TestJobsWaitForAWorker(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", `,"concurrency":2`)
		alice := b.dial("alice")
		for range 3 {
			alice.begin("a", `{}`)
		}
		first, _ := w.take()
		w.take()
		synctest.Wait()
		if n := b.sum("arcp_jobs", `"queued"`); n != 1 {
			t.Errorf("%v jobs are queued at a worker of two, want 1", n)
		}
		w.say(first, "tool.result", `{"value":1}`)
		w.expect("ack")
		w.take()

		_ = w.conn.Abort()
		synctest.Wait()
		alice.begin("a", `{}`)
		synctest.Wait()
		if n := b.sum("arcp_jobs", `"queued"`); n != 1 {
			t.Errorf("%v jobs are queued without a worker, want 1", n)
		}
		other := b.work("alice", "a@1.0.0", "")
		other.take()
	})
}

func TestRefusedDispatches(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		hands := []hand{b.work("alice", "a@1.0.0", ""), b.work("alice", "a@1.0.0", ""), b.work("alice", "a@1.0.0", ""), b.work("alice", "a@1.0.0", "")}
		alice := b.dial("alice")
		alice.begin("a", `{}`)
		ids := map[arcp.MessageID]bool{}
		for _, h := range hands[:3] {
			d := h.expect("tool.invoke")
			h.say(d, "nack", `{"code":"RESOURCE_EXHAUSTED","message":"busy","retryable":true}`)
			ids[d.ID] = true
		}
		if e := refusal(t, alice.end("job.failed")); e.Code != arcp.CodeResourceExhausted {
			t.Errorf("three have refused: %s, want what the last one said", e.Code)
		}
		if len(ids) != 3 {
			t.Errorf("dispatches %v: each has its own id", ids)
		}
		alice.begin("a", `{}`)
		hands[3].take() // the fourth was not asked, so its turn is next
		alice.begin("a", `{}`)
		d := hands[0].expect("tool.invoke")
		time.Sleep(2*runtime.DefaultHeartbeat + time.Second) // it says nothing
		hands[0].expect("cancel")
		id := hands[0].say(d, "log", `{"level":"info","message":"late"}`)
		hands[0].nacked("a dispatch that was given to another", id, arcp.CodeFailedPrecondition)
		hands[1].take()
	})
}

func TestLyingWorker(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w, other := b.work("alice", "a@1.0.0", ""), b.work("alice", "b@1.0.0", "")
		alice := b.dial("alice")
		alice.begin("a", `{}`)
		alice.begin("b", `{}`)
		d := w.expect("tool.invoke")
		w.nacked("before the ack", w.say(d, "job.progress", `{"current":1}`), arcp.CodeFailedPrecondition)
		w.nacked("a result before the ack", w.say(d, "tool.result", `{"value":"stolen"}`), arcp.CodeFailedPrecondition)
		w.say(d, "ack", `{}`)
		foreign, _ := other.take()
		w.nacked("a job of another session", w.say(foreign, "tool.result", `{"value":"stolen"}`), arcp.CodeFailedPrecondition)
		w.nacked("another's job, its own dispatch", w.tell("tool.result", string(foreign.JobID), string(d.ID), `{"value":"stolen"}`), arcp.CodeFailedPrecondition)
		w.nacked("its own job, another's dispatch", w.tell("tool.result", string(d.JobID), string(foreign.ID), `{"value":"stolen"}`), arcp.CodeFailedPrecondition)
		w.nacked("a child of another's job", w.tell("tool.invoke", string(foreign.JobID), "", `{"tool":"demo.echo"}`), arcp.CodeFailedPrecondition)
		w.nacked("no progress", w.say(d, "job.progress", `{"current":-1}`), arcp.CodeInvalidArgument)
		w.nacked("progress of nothing", w.say(d, "job.progress", `{"message":"on it"}`), arcp.CodeInvalidRequest)
		w.nacked("nothing at all", w.say(d, "log", `{"level":"info"}`), arcp.CodeInvalidRequest)
		w.nacked("what is not offered", w.say(d, "job.result_chunk", `{"result_id":"r","chunk_seq":0,"data":"x","encoding":"utf8","more":true}`), arcp.CodeUnimplemented)
		w.nacked("an event of 600 KiB", w.say(d, "log", `{"level":"info","message":"`+strings.Repeat("x", 600<<10)+`"}`), arcp.CodeResourceExhausted)
		w.say(d, "tool.result", `{"value":"mine"}`)
		twice := w.say(d, "tool.result", `{"value":"again"}`)
		for range 2 {
			switch env := w.read(); env.Type {
			case arcp.Ack:
			case arcp.Nack:
				if string(env.CorrelationID) != twice {
					t.Errorf("nack of %s, want of the second result", env.CorrelationID)
				}
			default:
				t.Errorf("answered with %s", env.Type)
			}
		}
		if env := alice.end("job.completed"); string(env.Payload) != `{"value":"mine"}` {
			t.Errorf("the result is %s", env.Payload)
		}
		w.nacked("when all is over", w.say(d, "log", `{"level":"info","message":"late"}`), arcp.CodeFailedPrecondition)
		w.say(d, "ack", `{}`) // is never answered
		w.send("ping", `{}`)
		w.expect("pong")
		other.say(foreign, "tool.error", `{"code":"NOT_A_CODE","message":"no","retryable":false}`)
		if e := refusal(t, alice.end("job.failed")); e.Code != arcp.CodeUnknown || !strings.Contains(string(e.Details), "NOT_A_CODE") {
			t.Errorf("an error of its own: %+v", e)
		}
	})
}

func TestCancelOfAWorkersJob(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", "")
		alice := b.dial("alice")
		job := alice.begin("a", `{}`)
		d, _ := w.take()
		alice.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q,"reason":"enough","deadline_ms":10000}`, job))
		env := w.expect("cancel")
		if env.CorrelationID != d.ID || env.JobID != job || !strings.Contains(string(env.Payload), "enough") {
			t.Errorf("the worker is told %+v", env)
		}
		w.say(d, "log", `{"level":"info","message":"tidying up"}`)
		w.say(d, "tool.error", `{"code":"CANCELLED","message":"as you wish","retryable":false}`)
		w.expect("ack")
		alice.until("log")
		if p := alice.end("job.cancelled"); !strings.Contains(string(p.Payload), "CANCELLED") {
			t.Errorf("cancelled with %s", p.Payload)
		}

		stuck := alice.begin("a", `{}`)
		d, _ = w.take()
		alice.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q,"deadline_ms":1000}`, stuck))
		w.expect("cancel")
		if p := alice.end("job.cancelled"); !strings.Contains(string(p.Payload), "ABORTED") {
			t.Errorf("a worker that does not care: %s, want the hard stop", p.Payload)
		}
		alice.begin("a", `{}`)
		synctest.Wait()
		if n := b.sum("arcp_jobs", `"queued"`); n != 1 {
			t.Errorf("%v jobs wait for a worker that has not stopped, want 1", n)
		}
		w.expect("cancel")
		w.nacked("the end of what is over", w.say(d, "tool.result", `{"value":1}`), arcp.CodeFailedPrecondition)
		d, _ = w.take()
		w.say(d, "tool.result", `{"value":2}`)
		alice.end("job.completed")
	})
}

func TestWorkerComesBack(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", "")
		alice := b.dial("alice")
		alice.begin("a", `{}`)
		d, _ := w.take()
		w.say(d, "job.progress", `{"current":1}`)
		alice.expect("job.started", "job.progress")
		_ = w.conn.Abort()
		synctest.Wait()
		time.Sleep(2*runtime.DefaultHeartbeat - time.Second)
		w = w.back()
		again := w.expect("tool.invoke")
		if again.ID != d.ID || !bytes.Equal(again.Payload, d.Payload) {
			t.Errorf("given again as %s, want the same dispatch %s", again.ID, d.ID)
		}
		w.say(d, "job.progress", `{"current":2}`) // a message of the job it had: no second ack is needed
		w.say(d, "tool.result", `{"value":2}`)
		w.expect("ack")
		alice.until("job.progress")
		alice.end("job.completed")

		// The next one, whose acknowledgement is lost with the connection.
		alice.begin("a", `{}`)
		d = w.expect("tool.invoke")
		_ = w.conn.Abort()
		synctest.Wait()
		w = w.back()
		if again, _ := w.take(); again.ID != d.ID {
			t.Errorf("given again as %s, want %s", again.ID, d.ID)
		}
		w.say(d, "tool.result", `{"value":3}`)
		alice.end("job.completed")
	})
}

func TestWorkerIsLost(t *testing.T) {
	for _, c := range []struct {
		name, recovery string
		silent         bool
	}{{"gone, fail", "fail", false}, {"gone, rerun", "rerun", false}, {"gone, checkpoint", "checkpoint", false},
		{"silent, fail", "fail", true}, {"silent, rerun", "rerun", true}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				declared := about("a@1.0.0", fmt.Sprintf(`"recovery":%q`, c.recovery))
				w := b.work("alice", "a@1.0.0", declared)
				alice := b.dial("alice")
				alice.begin("a", `{"x":1}`)
				d, _ := w.take()
				if c.recovery == "checkpoint" {
					w.say(d, "job.checkpoint", `{"data":{"n":41},"label":"here"}`)
					w.expect("ack")
				}
				if !c.silent {
					_ = w.conn.Abort()
				}
				other := b.work("alice", "a@1.0.0", declared)
				time.Sleep(2*runtime.DefaultHeartbeat + time.Second)
				if c.recovery == "fail" {
					if e := refusal(t, alice.end("job.failed")); e.Code != arcp.CodeAborted || !e.Retryable {
						t.Errorf("failed with %+v, want ABORTED, retryable", e)
					}
				} else {
					again, p := other.take()
					if again.ID == d.ID || again.JobID != d.JobID || p.Attempt != 2 || string(p.Arguments) != `{"x":1}` {
						t.Errorf("given to another as %s: %s", again.ID, again.Payload)
					}
					if c.recovery == "checkpoint" && (p.Checkpoint == nil || string(p.Checkpoint.Data) != `{"n":41}` || p.Checkpoint.CheckpointID == "") {
						t.Errorf("goes on from %+v", p.Checkpoint)
					}
					if c.silent {
						w.expect("cancel")
					} else {
						w = w.back()
					}
					w.nacked("of an attempt before", w.say(d, "tool.result", `{"value":"old"}`), arcp.CodeFailedPrecondition)
					other.say(again, "tool.result", `{"value":"new"}`)
					if env := alice.end("job.completed"); string(env.Payload) != `{"value":"new"}` {
						t.Errorf("the result is %s", env.Payload)
					}
				}
				if n := b.sum("arcp_worker_dispatches_total", `"lost"`); !c.silent && n != 1 {
					t.Errorf("%v dispatches are counted as lost", n)
				}
			})
		})
	}
}

// Heartbeats are the worker's: a job that is at work for long is not lost.
func TestHeartbeatsOfAWorker(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", "")
		alice := b.dial("alice")
		alice.begin("a", `{}`)
		d, _ := w.take()
		for range 10 {
			time.Sleep(runtime.DefaultHeartbeat)
			w.say(d, "job.heartbeat", `{"sequence":1,"state":"running"}`)
		}
		w.say(d, "tool.result", `{"value":1}`)
		alice.end("job.completed")
	})
}

// A job whose workers all die is not dispatched for ever.
func TestJobThatEndsItsWorkers(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		declared := about("a@1.0.0", `"recovery":"rerun"`)
		alice := b.dial("alice")
		first := b.work("alice", "a@1.0.0", declared)
		alice.begin("a", `{}`)
		n := 0
		for w := first; ; w = b.work("alice", "a@1.0.0", declared) {
			w.take()
			n++
			_ = w.conn.Abort()
			time.Sleep(2*runtime.DefaultHeartbeat + time.Second)
			if b.sum("arcp_jobs", "") == 0 {
				break
			}
			if n > 20 {
				t.Fatal("it goes on and on")
			}
		}
		if e := refusal(t, alice.end("job.failed")); e.Code != arcp.CodeAborted || e.Retryable || n != 5 {
			t.Errorf("after %d workers: %+v", n, e)
		}
	})
}

func TestInterruptOfAWorkersJob(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", about("a@1.0.0", `"interruptible":true`))
		alice := b.connect(nil)
		alice.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"t","version":"1"},"capabilities":{"human_input":true}}`, token))
		alice.expect("session.accepted")
		job := alice.begin("a", `{}`)
		d, _ := w.take()
		for _, guidance := range []string{"left", "right"} {
			alice.send("interrupt", fmt.Sprintf(`{"target":"job","target_id":%q,"prompt":"which way?"}`, job))
			stop := w.expect("interrupt")
			if stop.CorrelationID != d.ID {
				t.Errorf("interrupted: %+v", stop)
			}
			_ = w.conn.Abort()
			synctest.Wait()
			w = w.back()
			w.expect("tool.invoke")
			if again := w.expect("interrupt"); again.ID != stop.ID {
				t.Errorf("interrupted again by %s, want %s", again.ID, stop.ID)
			}
			q := alice.until("human.input.request")
			alice.respond("human.input.response", q, fmt.Sprintf(`{"value":{"action":"continue","guidance":%q}}`, guidance))
			if env := w.expect("human.input.response"); env.CorrelationID != stop.ID || !strings.Contains(string(env.Payload), guidance) {
				t.Errorf("goes on with %+v", env)
			}
		}
		w.say(d, "tool.result", `{"value":1}`)
		alice.end("job.completed")
	})
}

// answer answers a question.
func (p *peer) respond(typ string, q arcp.Envelope, payload string) {
	p.Helper()
	p.n++
	frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_a%d","type":%q,"timestamp":"2030-01-02T15:04:05Z","correlation_id":%q,"payload":%s}`, p.n, typ, q.ID, payload)
	if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
		p.Fatal(err)
	}
}

func TestWorkerAsks(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", "")
		alice := b.connect(nil)
		alice.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"t","version":"1"},"capabilities":{"human_input":true}}`, token))
		alice.expect("session.accepted")
		alice.send("tool.invoke", `{"tool":"a","lease_request":{"tool.call":["demo.echo"]}}`)
		alice.expect("job.accepted")
		d, p := w.take()
		if !strings.Contains(string(p.Lease), "demo.echo") {
			t.Errorf("its lease is %s", p.Lease)
		}
		expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		ask := w.say(d, "human.input.request", `{"prompt":"how many?","expires_at":"`+expires+`"}`)
		q := alice.until("human.input.request")
		_ = w.conn.Abort() // it does not hear the answer
		synctest.Wait()
		alice.respond("human.input.response", q, `{"value":7}`)
		alice.until("ack")
		synctest.Wait()
		w = w.back()
		w.expect("tool.invoke")
		heard := w.expect("human.input.response")
		if string(heard.CorrelationID) != ask || !strings.Contains(string(heard.Payload), `"value":7`) {
			t.Errorf("the answer is %+v", heard)
		}
		w.frame(ask, "human.input.request", string(d.JobID), string(d.ID), `{"prompt":"how many?","expires_at":"`+expires+`"}`)
		if again := w.expect("human.input.response"); again.ID != heard.ID {
			t.Errorf("asked again under the same id: %+v", again)
		}

		choice := w.say(d, "human.choice.request", `{"prompt":"which?","options":[{"id":"l","label":"left"},{"id":"r","label":"right"}],"expires_at":"`+expires+`"}`)
		alice.respond("human.choice.response", alice.until("human.choice.request"), `{"choice_id":"r"}`)
		if env := w.expect("human.choice.response"); string(env.CorrelationID) != choice || !strings.Contains(string(env.Payload), `"r"`) {
			t.Errorf("chosen: %+v", env)
		}
		for _, answer := range []string{"permission.deny", "permission.grant"} {
			id := w.say(d, "permission.request", `{"permission":"order.refund","resource":"o1","operation":"write"}`)
			q := alice.until("permission.request")
			alice.respond(answer, q, `{"permission":"order.refund","resource":"o1","operation":"write","lease_seconds":60,"reason":"no"}`)
			if env := w.expect(arcp.Type(answer)); string(env.CorrelationID) != id {
				t.Errorf("permitted: %+v", env)
			}
		}

		call := w.tell("tool.invoke", string(d.JobID), "", `{"tool":"demo.echo","arguments":{"n":1}}`)
		made := w.expect("job.accepted")
		ended := w.expect("job.completed")
		if string(made.CorrelationID) != call || string(ended.CorrelationID) != call || ended.EventSeq != 0 || made.EventSeq != 0 ||
			made.JobID == d.JobID || made.JobID != ended.JobID || string(ended.Payload) != `{"value":{"n":1}}` {
			t.Errorf("the child: %+v, %+v", made, ended)
		}
		w.frame(call, "tool.invoke", string(d.JobID), "", `{"tool":"demo.echo","arguments":{"n":1}}`) // on the same connection: a duplicate
		w.tell("tool.invoke", string(d.JobID), string(d.ID), `{"tool":"demo.fail","arguments":{"code":"INTERNAL","message":"x"}}`)
		if e := refusal(t, w.expect("job.failed")); e.Code != arcp.CodePermissionDenied {
			t.Errorf("a call that the lease does not cover: %s", e.Code)
		}
		for _, bound := range []string{`"lease_constraints":{"expires_at":"1999-01-01T00:00:00Z"}`,
			`"lease_constraints":{"expires_at":"2999-01-01T00:00:00+02:00"}`, `"cost_budget":["USD"]`} {
			w.tell("tool.invoke", string(d.JobID), string(d.ID), `{"tool":"demo.echo",`+bound+`}`)
			if e := refusal(t, w.expect("job.failed")); e.Code != arcp.CodeInvalidRequest {
				t.Errorf("a call with %s: %s", bound, e.Code)
			}
		}
		w.say(d, "tool.result", `{"value":1}`)
		alice.end("job.completed")
	})
}

// A worker does not approve calls of its own jobs.
func TestWorkerDoesNotApprove(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		declared := about("a@1.0.0", `"approval":"manual"`)
		p := b.connect(nil)
		p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"w","version":"1"},"capabilities":{"executes":true,"human_input":true}}`, token))
		p.busy = true
		w := hand{peer: p, token: resumeToken(t, p.expect("session.accepted"))}
		w.send("tool.invoke", registration("", declared, "a@1.0.0"))
		w.expect("job.accepted", "job.completed")
		boss := b.connect(nil)
		boss.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"b","version":"1"},"capabilities":{"human_input":true}}`, token))
		boss.expect("session.accepted")
		alice := b.dial("alice")
		alice.begin("a", `{}`)
		q := boss.until("human.choice.request")
		w.respond("human.choice.response", q, `{"choice_id":"approve"}`)
		if e := refusal(t, w.expect("nack")); e.Code != arcp.CodePermissionDenied {
			t.Errorf("the worker approves: %s", e.Code)
		}
		boss.respond("human.choice.response", q, `{"choice_id":"approve"}`)
		d, _ := w.take()
		w.say(d, "tool.result", `{"value":1}`)
		alice.end("job.completed")
	})
}

// Jobs go to the least busy worker; the jobs of all tools of an agent count.
func TestLeastBusyWorker(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		var small, large atomic.Int64
		stop := make(chan struct{})
		share := func(h hand, n *atomic.Int64) {
			b.serve.Go(func() {
				for {
					raw, err := h.conn.Read()
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
					_ = errors.Join(h.conn.Write([]byte(frames)), h.conn.Flush())
				}
			})
		}
		one, three := b.hired("alice"), b.hired("alice")
		one.send("tool.invoke", registration("", `,"concurrency":4`, "a@1.0.0", "b@1.0.0"))
		one.expect("job.accepted", "job.completed")
		three.send("tool.invoke", registration("", `,"concurrency":12`, "a@1.0.0", "b@1.0.0"))
		three.expect("job.accepted", "job.completed")
		share(one, &small)
		share(three, &large)
		alice := b.dial("alice")
		for i := range 20 {
			alice.send("tool.invoke", fmt.Sprintf(`{"tool":%q}`, []string{"a", "b"}[i%2]))
			synctest.Wait()
			if i == 7 && (small.Load() != 2 || large.Load() != 6) {
				t.Errorf("of 8 jobs %d and %d are given to workers of 4 and 12", small.Load(), large.Load())
			}
		}
		if small.Load() != 4 || large.Load() != 12 || b.sum("arcp_jobs", `"queued"`) != 4 {
			t.Errorf("of 20 jobs %d and %d are given to workers of 4 and 12, %v are queued", small.Load(), large.Load(), b.sum("arcp_jobs", `"queued"`))
		}
		close(stop)
	})
}

// After a restart the tools of workers are there before the workers are.
func TestWorkersAfterARestart(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "again@1.0.0", about("again@1.0.0", `"recovery":"rerun"`))
		w.send("tool.invoke", registration("other", "", "once@1.0.0"))
		w.expect("job.accepted", "job.completed")
		alice, token := b.dialToken("alice")
		first, second := alice.begin("again", `{}`), alice.begin("again", `{}`)
		once := alice.begin("once", `{}`)
		w.take()
		w.take()
		synctest.Wait()
		b.shutdown(0)
		b.serve.Wait()
		b.boot(nil)
		alice = b.resume(token, 0)
		alice.expect("session.resumed")
		ended := alice.end("job.failed")
		if e := refusal(t, ended); ended.JobID != once || e.Code != arcp.CodeAborted || !e.Retryable {
			t.Errorf("%s failed with %+v", ended.JobID, e)
		}
		alice.begin("again", `{}`)
		p := b.resume(w.token, 4)
		w = hand{peer: p, token: resumeToken(t, p.expect("session.resumed"))}
		for i, want := range []arcp.JobID{first, second} {
			d, p := w.take()
			if d.JobID != want || i == 0 && p.Attempt != 2 || i == 1 && p.Attempt > 2 {
				t.Errorf("given %s in attempt %d, want %s", d.JobID, p.Attempt, want)
			}
			w.say(d, "tool.result", `{"value":1}`)
			w.expect("ack")
			alice.end("job.completed")
		}
		w.take()
	})
}

// One that does not read, and one that talks without an end, are slow themselves.
func TestWorkersThatFlood(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		deaf, chatty := b.work("alice", "deaf@1.0.0", `,"concurrency":1000`), b.work("alice", "chatty@1.0.0", "")
		alice := b.dial("alice")
		args := `{"x":"` + strings.Repeat("x", 100<<10) + `"}`
		for range 100 {
			alice.send("tool.invoke", `{"tool":"deaf","arguments":`+args+`}`)
		}
		bob := b.dial("bob")
		bob.begin("demo.echo", `{}`)
		bob.end("job.completed")

		follower := b.dial("alice")
		follower.begin("chatty", `{}`)
		d, _ := chatty.take()
		for i := range 3000 {
			chatty.frame(fmt.Sprintf("msg_f%d", i), "log", string(d.JobID), string(d.ID), `{"level":"info","message":"`+strings.Repeat("y", 1000)+`"}`)
		}
		chatty.say(d, "tool.result", `{"value":1}`)
		n := 0
		for env := follower.read(); !env.Type.Terminal(); env = follower.read() {
			if env.Type == arcp.Log {
				n++
			}
		}
		if n != 3000 {
			t.Errorf("%d of 3,000 events came", n)
		}
		_ = deaf
	})
}

// Answers that a worker does not take, because it is away or does not read, are
// bounded by their bytes: it is told of each one above that.
func TestAnswersThatAWorkerDoesNotTake(t *testing.T) {
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
		}, func(b *fixture) {
			w := b.work("alice", "a@1.0.0", "")
			alice := b.dial("alice")
			alice.send("tool.invoke", `{"tool":"a","lease_request":{"tool.call":["held"]}}`)
			alice.expect("job.accepted")
			d, _ := w.take()
			for range calls {
				w.tell("tool.invoke", string(d.JobID), "", `{"tool":"held"}`)
				w.expect("job.accepted")
			}
			if away {
				_ = w.conn.Abort()
				synctest.Wait()
			}
			close(gate)
			synctest.Wait()
			if away {
				w = w.back()
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
			w.tell("tool.invoke", string(d.JobID), "", `{"tool":"held"}`)
			w.expect("job.accepted")
			w.expect("job.completed") // there is room again
			w.say(d, "tool.result", `{"value":1}`)
			alice.end("job.completed")
		})
	}
}

// client.Work follows the rules for workers, over several connections.
func TestClientWorks(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		l := &link{b: b}
		opts := client.Options{Auth: client.Auth{Token: client.Secret("alice-" + token)}, Log: func(msg string, args ...any) { t.Log(append([]any{msg}, args...)...) }}
		c, err := client.ConnectFunc(b.Context(), l.dial, opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(b.Context())
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
					return call.Call(ctx, client.InvokeRequest{Tool: "demo.echo", Arguments: a.Value})
				}},
				{Ref: "crash@1.0.0", Handle: func(context.Context, *client.WorkerCall) (any, error) { panic("oh") }},
			}})
		}()
		synctest.Wait()
		user, _ := b.client("alice", client.Handlers{Input: func(context.Context, client.InputRequest) (any, error) { return map[string]int{"n": 1}, nil }})
		defer user.Abort()

		job, err := user.Invoke(b.Context(), client.InvokeRequest{Tool: "count"})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(45 * time.Second)
			synctest.Wait() // it has come back
			_ = l.conn.Abort()
		}
		if r, err := job.Wait(b.Context()); err != nil || string(r.Value) != `{"attempt":1}` || runs.Load() != 1 {
			t.Errorf("counted to %s in %d runs: %v", r.Value, runs.Load(), err)
		}
		asked, err := user.Invoke(b.Context(), client.InvokeRequest{Tool: "ask", Options: arcp.SubmitOptions{LeaseRequest: arcp.Raw(`{"tool.call":["demo.echo"]}`)}})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := asked.Wait(b.Context()); err != nil || string(r.Value) != `{"n":1}` {
			t.Errorf("asked: %s, %v", r.Value, err)
		}
		_, _, err = run(b.T, user, "crash", `{}`)
		wantCode(b.T, "a handler that panics", err, arcp.CodeInternal)

		job, err = user.Invoke(b.Context(), client.InvokeRequest{Tool: "count"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := user.Cancel(b.Context(), client.CancelParams{JobID: job.ID(), Reason: "enough"}); err != nil {
			t.Error(err)
		}
		_, err = job.Wait(b.Context())
		wantCode(b.T, "a job that is cancelled", err, arcp.CodeCancelled)
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Work = %v", err)
		}
		if _, err := user.Invoke(b.Context(), client.InvokeRequest{Tool: "count"}); err == nil {
			t.Error("a worker that has left is given jobs")
		}
		c.Abort()
	})
}

// A worker does the jobs of the principals that the auth file says, also before it
// is back after a restart.
func TestWorkerServesOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.yaml")
	var text strings.Builder
	text.WriteString("principals:\n")
	for _, p := range []string{"alice, roles: [client, worker], serves: [b*]", "bob, roles: [client]", "carol, roles: [client]"} {
		name, _, _ := strings.Cut(p, ",")
		fmt.Fprintf(&text, "  - {name: %s, tokens: [%q]}\n", p, auth.FileHash(auth.Secret(name+"-"+token)))
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ac, err := auth.Load(file, auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	configure := func(c *runtime.Config) { c.Auth = auth.NewSet(ac) }
	inBubble(t, configure, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", "")
		ask := func() (job arcp.JobID) {
			t.Helper()
			bob, carol := b.dial("bob"), b.dial("carol")
			carol.send("tool.invoke", `{"tool":"a"}`)
			if e := refusal(t, carol.expect("job.failed")); e.Code != arcp.CodeAgentNotAvailable {
				t.Errorf("carol is told %s", e.Code)
			}
			return bob.begin("a", `{}`)
		}
		job := ask()
		if d, _ := w.take(); d.JobID != job {
			t.Errorf("given %s, want bob's %s", d.JobID, job)
		}
		b.shutdown(0)
		b.serve.Wait()
		b.boot(configure)
		ask()
	})
}

// A shutdown pauses a job that can continue from its checkpoint.
func TestShutdownPausesAWorkersJob(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.work("alice", "a@1.0.0", about("a@1.0.0", `"recovery":"checkpoint"`))
		alice := b.dial("alice")
		alice.begin("a", `{}`)
		d, _ := w.take()
		synctest.Wait()
		done := make(chan struct{})
		go func() { b.shutdown(time.Minute); close(done) }()
		time.Sleep(time.Second)
		w.say(d, "job.checkpoint", `{"data":{"n":1}}`)
		w.expect("cancel")
		<-done
		b.serve.Wait()
		b.boot(nil)
		w = hand{peer: b.resume(w.token, 2)}
		w.expect("session.resumed")
		again, p := w.take()
		if again.JobID != d.JobID || p.Attempt != 2 || p.Checkpoint == nil || string(p.Checkpoint.Data) != `{"n":1}` {
			t.Errorf("goes on with %s", again.Payload)
		}
	})
}

// A worker that says something else about its tool, or comes anew under another
// session, gets the jobs that wait.
func TestJobsOutliveADescription(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		w := b.hired("alice")
		w.send("tool.invoke", registration("one", "", "a@1.0.0"))
		w.expect("job.accepted", "job.completed")
		alice := b.dial("alice")
		for range 3 {
			alice.begin("a", `{}`)
		}
		d, _ := w.take()
		w.send("tool.invoke", registration("one", about("a@1.0.0", `"recovery":"rerun"`), "a@1.0.0"))
		w.expect("job.accepted", "job.completed")
		w.say(d, "tool.result", `{"value":1}`)
		w.expect("ack")
		d, _ = w.take()
		w.send("tool.invoke", `{"tool":"host.unregister_agent","arguments":{"agent_id":"one"}}`)
		w.expect("job.accepted", "job.completed")
		alice.send("tool.invoke", `{"tool":"a"}`)
		for env := alice.read(); ; env = alice.read() {
			if env.Type == arcp.JobFailed {
				if e := refusal(t, env); e.Code != arcp.CodeAgentNotAvailable {
					t.Errorf("a tool that nobody executes any more: %s", e.Code)
				}
				break
			}
		}
		w.say(d, "tool.result", `{"value":2}`) // it finishes its job
		w.expect("ack")
		alice.until("job.completed")
		synctest.Wait()
		if n := b.sum("arcp_jobs", `"queued"`); n != 1 {
			t.Errorf("%v jobs wait for somebody who executes a, want 1", n)
		}
		other := b.work("alice", "a@1.0.0", about("a@1.0.0", `"recovery":"checkpoint"`))
		d, _ = other.take()
		other.say(d, "tool.result", `{"value":3}`)
		if env := alice.until("job.completed"); string(env.Payload) != `{"value":3}` {
			t.Errorf("the last one: %s", env.Payload)
		}
	})
}

// Sessions that see a worker's tool are told of its arrival and departure; others are not.
func TestToolsOfWorkersComeAndGo(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		alice, bob := b.dial("alice"), b.dial("bob")
		w := b.hired("alice")
		w.send("tool.invoke", registration("one", "", "a@1.0.0"))
		w.until("job.completed")
		if d := alice.changed(); fmt.Sprint(d["added"], d["removed"]) != "[a@1.0.0] []" {
			t.Errorf("it comes: %v", d)
		}
		time.Sleep(5 * time.Second)
		w.send("tool.invoke", `{"tool":"host.unregister_agent","arguments":{"agent_id":"one"}}`)
		w.until("job.completed")
		if d := alice.changed(); fmt.Sprint(d["added"], d["removed"]) != "[] [a@1.0.0]" {
			t.Errorf("it goes: %v", d)
		}
		time.Sleep(5 * time.Second)
		bob.send("ping", "{}")
		bob.expect("pong")
	})
}

// Every question and call of a worker is answered once, also when its attempt ends
// before: with the error that ended it.
func TestQuestionsOfAnAttemptThatEnds(t *testing.T) {
	for _, c := range []struct {
		why, options string
		end          arcp.Type
		code         arcp.Code
	}{
		{"its time is over", `"max_runtime_sec":1`, "job.failed", arcp.CodeTimeout},
		{"it is cancelled", `"retry":null`, "job.cancelled", arcp.CodeCancelled},
	} {
		t.Run(c.why, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				w := b.work("alice", "a@1.0.0", "")
				alice := b.dial("alice")
				alice.send("tool.invoke", `{"tool":"a","lease_request":{"tool.call":["demo.sleep"]},`+c.options+`}`)
				job := alice.until("job.accepted").JobID
				d, _ := w.take()
				asked := map[string]bool{w.tell("tool.invoke", string(job), "", `{"tool":"demo.sleep","arguments":{"ms":3600000}}`): true}
				accepted := w.expect("job.accepted")
				if c.end == "job.cancelled" { // while it waits for people, its time stands still
					asked[w.say(d, "human.input.request", `{"prompt":"well?","expires_at":"2100-01-01T00:00:00Z"}`)] = true
					asked[w.say(d, "permission.request", `{"permission":"p","resource":"r","operation":"o","reason":"because of it"}`)] = true
					synctest.Wait()
					alice.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q,"deadline_ms":1000}`, job))
				}
				alice.end(c.end)
				for len(asked) > 0 {
					env := w.read()
					id := string(env.CorrelationID)
					if !asked[id] {
						continue // the cancels
					}
					delete(asked, id)
					want := arcp.Type("nack")
					if id == string(accepted.CorrelationID) {
						want = "job.failed"
					}
					if e := refusal(t, env); env.Type != want && env.Type != "job.cancelled" || env.Type == want && e.Code != c.code {
						t.Errorf("%s is answered with %s %s, want %s of %s", id, env.Type, env.Payload, c.code, want)
					}
				}
				w.send("ping", `{}`)
				for env := w.read(); env.Type != "pong"; env = w.read() {
					if env.Type != "cancel" {
						t.Errorf("it is also told %s %s", env.Type, env.Payload)
					}
				}
			})
		})
	}
}
