package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

const ownFingerprint = "sha256:0a37"

func withFingerprint(c *runtime.Config) { c.Fingerprint = ownFingerprint }

// handOff sends agent.handoff for a job; empty: for all jobs of the session.
func (p *peer) handOff(job arcp.JobID, payload string) {
	p.Helper()
	p.sent++
	member := ""
	if job != "" {
		member = fmt.Sprintf(`"job_id":%q,`, job)
	}
	frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_%d",%s"type":"agent.handoff","timestamp":"2030-01-02T15:04:05Z","payload":%s}`, p.sent, member, payload)
	if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
		p.Fatal(err)
	}
}

func handoffTo(to arcp.SessionID) string {
	return fmt.Sprintf(`{"runtime":{"kind":"arcp-go","version":"1","fingerprint":%q},"session_id":%q,"reason":"shift ends"}`, ownFingerprint, to)
}

// handsOver hands over a job, or all jobs, and reads up to the answer.
func (p *peer) handsOver(job arcp.JobID, to *peer) {
	p.Helper()
	p.handOff(job, handoffTo(to.session))
	p.until(arcp.Ack)
}

// cancels cancels a job and reads up to the answer.
func (p *peer) cancels(job arcp.JobID) arcp.Envelope {
	p.Helper()
	p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, job))
	for {
		if env := p.read(); env.Type == arcp.CancelAccepted || env.Type == arcp.CancelRefused {
			return env
		}
	}
}

// logOf returns the events in the log of a session that are of a job.
func (f *fixture) logOf(session arcp.SessionID, job arcp.JobID) (events []store.Delivery) {
	f.Helper()
	err := f.st.SessionEvents(f.Context(), session, 0, func(d store.Delivery) bool {
		if d.Event.JobID() == job {
			events = append(events, d)
		}
		return true
	})
	if err != nil {
		f.Fatal(err)
	}
	return events
}

func isHandoff(e *store.Event) bool {
	return e.Type == arcp.EventEmit && strings.HasPrefix(string(e.Payload()), `{"name":"handoff"`)
}

func TestHandoffMovesAJob(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a, b, c := f.dial("alice"), f.dial("alice"), f.dial("alice")
		a.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":3,"bytes":1,"interval_ms":60000},"strict_cancel":true}`)
		job := a.until(arcp.JobAccepted).JobID
		a.until(arcp.Log)
		a.handsOver(job, b)
		env := b.read()
		want := fmt.Sprintf(`{"name":"handoff","data":{"from_session_id":%q,"to_session_id":%q,"reason":"shift ends"}}`, a.session, b.session)
		if env.Type != arcp.EventEmit || env.JobID != job || string(env.Payload) != want || env.EventSeq == 0 {
			t.Errorf("the new owner gets %s %s of %s with event_seq %d, want %s", env.Type, env.Payload, env.JobID, env.EventSeq, want)
		}
		for _, p := range []*peer{a, c} {
			if e := refusal(t, p.cancels(job)); e.Code != arcp.CodePermissionDenied {
				t.Errorf("a session that is not the owner cancels: %v, want PERMISSION_DENIED", &e)
			}
		}
		b.until(arcp.Log)
		if env := b.cancels(job); env.Type != arcp.CancelAccepted {
			t.Errorf("the owner cancels: %s %s", env.Type, env.Payload)
		}
		b.until(arcp.JobCancelled)
		if log := f.logOf(a.session, job); !isHandoff(log[len(log)-1].Event) {
			t.Errorf("the last event in the log of the old owner is %s %s, want the handoff", log[len(log)-1].Event.Type, log[len(log)-1].Event.Payload())
		}
	})
}

// All jobs of a session are handed over in one commit, with the jobs that they have called. Answers to
// requests of the session stay.
func TestHandoffOfASession(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a, b := f.dial("alice"), f.dial("alice")
		a.send("tool.invoke", `{"tool":"demo.delegate","arguments":{"tool":"demo.sleep","arguments":{"ms":3600000}},"lease_request":{"agent.delegate":["*"]}}`)
		parent := a.until(arcp.JobAccepted).JobID
		a.submit("demo.sleep", `{"ms":3600000}`)
		a.send("job.schedule", `{"job":{"type":"tool.invoke","payload":{"tool":"demo.echo","arguments":{}}},"when":{"after":1800}}`)
		schedule := a.until(arcp.JobAccepted).JobID
		a.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":3600000},"direct":true}`)
		synctest.Wait()
		var commits []int
		f.st.set(func() {
			f.st.onWrite = func(w *store.Write) {
				n := 0
				for _, part := range w.With {
					if op := store.Find[*store.Follow](part); op != nil && op.Session == b.session {
						n++
					}
				}
				if n > 0 {
					commits = append(commits, n)
				}
			}
		})
		a.handsOver("", b)
		if !slices.Equal(commits, []int{4}) {
			t.Errorf("commits with %v jobs, want one with 4: a job, its child, another job and a schedule", commits)
		}
		var handed []arcp.JobID
		for range 4 {
			handed = append(handed, b.until(arcp.EventEmit).JobID)
		}
		if !slices.Contains(handed, parent) || !slices.Contains(handed, schedule) {
			t.Errorf("jobs %v handed over, want %s and %s", handed, parent, schedule)
		}
		if env := b.until(arcp.JobAccepted); time.Since(env.Timestamp) > time.Minute || env.CorrelationID != "" {
			t.Errorf("the job of the schedule: %s of %s, want it with the new owner", env.Type, env.JobID)
		}
		if env := b.until(arcp.JobCompleted); env.JobID == "" {
			t.Error("no job")
		}
		a.until(arcp.ToolResult)
		a.handsOver("", b) // there is nothing left
	})
}

// A job that was handed over has its owner after a restart, and can be handed back.
func TestHandoffAcrossARestart(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a, _ := f.dialToken("alice")
		b, tokenOfB := f.dialToken("alice")
		a.send("tool.invoke", `{"tool":"demo.count","arguments":{"to":40,"interval_ms":60000},"strict_cancel":true}`)
		job := a.until(arcp.JobAccepted).JobID
		a.handsOver(job, b)
		last := b.expect(arcp.EventEmit).EventSeq
		f.shutdown(time.Minute)
		f.serve.Wait()
		f.boot(withFingerprint)
		b2 := f.resume(tokenOfB, last)
		b2.expect("session.resumed")
		b2.session = b.session
		a2 := f.dial("alice")
		if e := refusal(t, a2.cancels(job)); e.Code != arcp.CodePermissionDenied {
			t.Errorf("a session that is not the owner cancels after the restart: %v", &e)
		}
		b2.until(arcp.JobProgress)
		b2.handsOver(job, a2)
		a2.expect(arcp.EventEmit)
		if env := a2.cancels(job); env.Type != arcp.CancelAccepted {
			t.Errorf("the third owner cancels: %s %s", env.Type, env.Payload)
		}
		a2.until(arcp.JobCancelled)
	})
}

func TestHandoffRefused(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { withFingerprint(c); c.Limits.MaxJobsPerSession = 2 }, func(f *fixture) {
		a, b, other := f.dial("alice"), f.dial("alice"), f.dial("bob")
		for range 2 {
			b.submit("demo.sleep", `{"ms":3600000}`)
		}
		job := a.submit("demo.sleep", `{"ms":3600000}`)
		ended := a.submit("demo.echo", `{}`)
		a.until(arcp.JobCompleted)
		draft := f.dialDraft(&draftLibraries[0], "alice")
		for _, test := range []struct {
			why     string
			from    *peer
			job     arcp.JobID
			payload string
			code    arcp.Code
		}{
			{"another runtime", a, job, strings.Replace(handoffTo(b.session), ownFingerprint, "sha256:ff", 1), arcp.CodeUnimplemented},
			{"no session", a, job, strings.Replace(handoffTo("x"), `"session_id":"x",`, "", 1), arcp.CodeInvalidRequest},
			{"no session id", a, job, handoffTo("x"), arcp.CodeInvalidArgument},
			{"its own session", a, job, handoffTo(a.session), arcp.CodeInvalidRequest},
			{"an unknown session", a, job, handoffTo("sess_00000000000000000000000000"), arcp.CodeNotFound},
			{"the session of another principal", a, job, handoffTo(other.session), arcp.CodeNotFound},
			{"a session of the draft dialect", a, job, handoffTo(arcp.SessionID(draft.session)), arcp.CodeFailedPrecondition},
			{"an unknown job", a, "job_00000000000000000000000000", handoffTo(b.session), arcp.CodeJobNotFound},
			{"the job of another principal", other, job, handoffTo(f.dial("bob").session), arcp.CodeJobNotFound},
			{"a job that has ended", a, ended, handoffTo(b.session), arcp.CodeFailedPrecondition},
			{"the job of another session", f.dial("alice"), job, handoffTo(b.session), arcp.CodePermissionDenied},
			{"a job beyond the limit of the session", a, job, handoffTo(b.session), arcp.CodeResourceExhausted},
			{"all jobs beyond the limit of the session", a, "", handoffTo(b.session), arcp.CodeResourceExhausted},
		} {
			test.from.handOff(test.job, test.payload)
			if e := refusal(t, test.from.until(arcp.Nack)); e.Code != test.code {
				t.Errorf("to %s: %v, want %s", test.why, &e, test.code)
			}
		}
		if e := f.logOf(b.session, job); len(e) > 0 {
			t.Errorf("a job that was not handed over is in the log of the other session: %v", e)
		}
	})
}

// The job of a built-in tool and a direct job answer requests of their session.
func TestHandoffOfAnswers(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a, b := f.dial("alice"), f.dial("alice")
		a.send("tool.invoke", `{"tool":"approval.gate","arguments":{"action":"deploy"}}`)
		synctest.Wait()
		var gate arcp.JobID
		if err := f.st.LiveJobs(f.Context(), func(j store.Job) bool { gate = j.ID; return true }); err != nil {
			t.Fatal(err)
		}
		a.handOff(gate, handoffTo(b.session))
		if e := refusal(t, a.until(arcp.Nack)); e.Code != arcp.CodeFailedPrecondition {
			t.Errorf("the call of a built-in tool: %v, want FAILED_PRECONDITION", &e)
		}
	})
}

// A job that ends with the connection of its session ends if the new session has none.
func TestHandoffToASessionWithoutConnection(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a, b := f.dial("alice"), f.dial("alice")
		a.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":3600000},"on_disconnect":"cancel"}`)
		job := a.until(arcp.JobAccepted).JobID
		lasting := a.submit("demo.sleep", `{"ms":3600000}`)
		_ = b.conn.Abort() // the runtime sees the end
		synctest.Wait()
		a.handsOver("", b)
		synctest.Wait()
		for id, want := range map[arcp.JobID]arcp.JobState{job: arcp.StateCancelled, lasting: arcp.StateRunning} {
			if row, err := f.st.Job(f.Context(), id); err != nil || row.State != want {
				t.Errorf("job %s is %s, %v; want %s", id, row.State, err, want)
			}
		}
	})
}

// A permission that a job has asked for before the handoff is asked of its new owner.
func TestHandoffOfAPendingPermission(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a, b := f.dial("alice"), f.dial("alice")
		job := a.submit("demo.permit", `{"permission":"x","resource":"r","operation":"o","lease_seconds":60,"hold_ms":1}`)
		question := a.until(arcp.PermissionRequest)
		a.handsOver(job, b)
		b.expect(arcp.EventEmit)
		env := b.expect(arcp.PermissionRequest)
		if env.ID != question.ID {
			t.Errorf("the new owner is asked %s, want the pending question %s", env.ID, question.ID)
		}
	})
}

// The session that has submitted a job is a follower like any other after the handoff.
func TestSubscribeAfterAHandoff(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a, b := f.dial("alice"), f.dial("alice")
		job := a.submit("demo.emit", `{"count":2,"bytes":1,"delay_ms":60000,"interval_ms":60000}`)
		a.handsOver(job, b)
		a.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, job))
		a.until(arcp.JobSubscribed)
		a.until(arcp.Log)
		a.send("job.unsubscribe", fmt.Sprintf(`{"job_id":%q}`, job))
		synctest.Wait()
		b.until(arcp.JobCompleted)
		if log := f.logOf(a.session, job); log[len(log)-1].Event.Type != arcp.Log {
			t.Errorf("the last event after job.unsubscribe is %s", log[len(log)-1].Event.Type)
		}
		before := len(f.logOf(a.session, job))
		a.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, job))
		a.until(arcp.JobSubscribed)
		a.until(arcp.JobCompleted)
		if n := len(f.logOf(a.session, job)) - before; n != 6 {
			t.Errorf("%d events of the history of the job that has ended, want 6", n)
		}
		b.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, job))
		b.until(arcp.JobSubscribed)
	})
}

// A job asks a question after a handoff. A session that attaches later is asked the same question.
func TestQuestionAfterAHandoff(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a, b := f.dial("alice"), f.human("alice")
		job := a.submit("demo.sleep", `{"ms":3600000}`)
		a.handsOver(job, b)
		b.until(arcp.EventEmit)
		b.send("interrupt", fmt.Sprintf(`{"target":"job","target_id":%q,"prompt":"go on?"}`, job))
		asked := b.until(arcp.HumanInputRequest)
		if late := f.human("alice").until(arcp.HumanInputRequest); late.ID != asked.ID || string(late.Payload) != string(asked.Payload) {
			t.Errorf("a session that attaches later is asked %s %s, want %s %s", late.ID, late.Payload, asked.ID, asked.Payload)
		}
	})
}

// Sessions pass jobs around while the jobs emit and call others. Each event is in the log of one session,
// and the event of a handoff in those of two.
func TestHandoffsLoseAndRepeatNothing(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		const sessions, jobs, rounds = 4, 5, 40
		var peers []*peer
		for range sessions {
			peers = append(peers, f.dial("alice"))
		}
		owner := make(map[arcp.JobID]int)
		for i := range jobs {
			p := peers[i%sessions]
			owner[p.submit("demo.emit", `{"count":100000,"bytes":1,"interval_ms":1}`)] = i % sessions
		}
		for _, p := range peers {
			go func() {
				for {
					if _, err := p.conn.Read(); err != nil {
						return
					}
				}
			}()
		}
		for round := range rounds {
			time.Sleep(3 * time.Millisecond)
			for id, at := range owner {
				to := (at + 1 + round%(sessions-1)) % sessions
				peers[at].handOff(id, handoffTo(peers[to].session))
				owner[id] = to
				synctest.Wait()
			}
		}
		for id := range owner {
			var all int
			if err := f.st.JobEvents(context.Background(), id, 0, func(*store.Event) bool { all++; return true }); err != nil {
				t.Fatal(err)
			}
			seen := make(map[uint64]int)
			handoffs := 0
			for _, p := range peers {
				before := uint64(0)
				for _, d := range f.logOf(p.session, id) {
					if d.Event.JSeq <= before {
						t.Errorf("session %s has event %d of %s after %d", p.session, d.Event.JSeq, id, before)
					}
					before = d.Event.JSeq
					if seen[d.Event.JSeq]++; isHandoff(d.Event) {
						handoffs++
						seen[d.Event.JSeq] += 10
					}
				}
			}
			for n := 1; n <= all; n++ {
				if got := seen[uint64(n)]; got != 1 && got != 22 {
					t.Errorf("event %d of %s is in the logs of %d sessions", n, id, got)
				}
			}
			if handoffs != 2*rounds {
				t.Errorf("%s has %d events of handoffs in the logs, want %d", id, handoffs, 2*rounds)
			}
		}
	})
}

// The handles of the jobs that a client has handed over end, and those of the session that gets them go on.
func TestClientHandsOff(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		from, _ := f.client("alice", client.Handlers{})
		to, _ := f.client("alice", client.Handlers{})
		defer from.Abort()
		defer to.Abort()
		job, err := from.Invoke(f.Context(), client.InvokeParams{Tool: "demo.sleep", Arguments: map[string]any{"ms": 60000}})
		if err != nil {
			t.Fatal(err)
		}
		followed, err := to.SubscribeJob(f.Context(), client.SubscribeJobParams{JobID: job.ID()})
		if err != nil {
			t.Fatal(err)
		}
		err = client.HandOff(f.Context(), from, client.HandoffParams{JobID: job.ID(), To: "sess_00000000000000000000000000"})
		wantCode(t, "to an unknown session", err, arcp.CodeNotFound)
		if err := client.HandOff(f.Context(), from, client.HandoffParams{JobID: job.ID(), To: to.Session().ID, Reason: "shift ends"}); err != nil {
			t.Fatal(err)
		}
		_, err = job.Wait(f.Context())
		if e, ok := errors.AsType[*client.HandedOverError](err); !ok || e.Job != job.ID() || e.To != to.Session().ID {
			t.Errorf("the job ends with %v, want it handed over to %s", err, to.Session().ID)
		}
		if result, err := followed.Wait(f.Context()); err != nil {
			t.Errorf("the job of the new owner: %v, %v", result, err)
		}
	})
}

// A job is handed over while it calls another tool: the child is created first, and handed over with it.
func TestHandoffWhileAChildIsCreated(t *testing.T) {
	for name, all := range map[string]bool{"job": false, "session": true} {
		t.Run(name, func(t *testing.T) {
			start := make(chan struct{})
			inBubble(t, withFingerprint, func(f *fixture) {
				start = make(chan struct{})
				caller, err := tool.New(tool.Capability{Name: "caller"}, func(ctx context.Context, job tool.Job, _ struct{}) (arcp.Raw, error) {
					<-start
					return job.Call(ctx, tool.Call{Tool: "demo.sleep", Arguments: arcp.Raw(`{"ms":1000}`)})
				})
				if err == nil {
					err = f.rt.AddTool(caller)
				}
				if err != nil {
					t.Fatal(err)
				}
				a, b := f.dial("alice"), f.dial("alice")
				a.ignoreToolChanges, b.ignoreToolChanges = true, true
				a.send("tool.invoke", `{"tool":"caller","arguments":{},"lease_request":{"tool.call":["*"]}}`)
				job := a.until(arcp.JobAccepted).JobID
				a.until(arcp.JobStarted)
				synctest.Wait()
				gate := make(chan struct{})
				f.st.set(func() { f.st.commitGate = gate })
				close(start)
				synctest.Wait()
				if all {
					a.handOff("", handoffTo(b.session))
				} else {
					a.handOff(job, handoffTo(b.session))
				}
				synctest.Wait()
				f.st.set(func() { f.st.commitGate = nil })
				close(gate)
				a.until(arcp.Ack)
				var handed []arcp.JobID
				for len(handed) < 2 {
					handed = append(handed, b.until(arcp.EventEmit).JobID)
				}
				if !slices.Contains(handed, job) || handed[0] == handed[1] {
					t.Errorf("%v handed over, want %s and its child", handed, job)
				}
				b.until(arcp.JobCompleted)
				b.until(arcp.JobCompleted)
			})
		})
	}
}

// No owner answers a gate of its job, also not one that was asked before the handoff.
func TestHandoffOfAPendingGate(t *testing.T) {
	people := withPeople(t)
	inBubble(t, func(c *runtime.Config) { people(c); withFingerprint(c) }, func(f *fixture) {
		a, b, c := f.human("bob"), f.human("bob"), f.human("bob")
		job := a.submit("danger", `{}`)
		gate := b.until(arcp.HumanChoiceRequest)
		c.until(arcp.HumanChoiceRequest)
		a.handsOver(job, b)
		approve := func(p *peer) arcp.Envelope {
			p.sent++
			frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_%d","correlation_id":%q,"type":"human.choice.response","timestamp":"2030-01-02T15:04:05Z","payload":{"choice_id":"approve"}}`, p.sent, gate.ID)
			if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
				t.Fatal(err)
			}
			for {
				if env := p.read(); env.Type == arcp.Nack || env.Type == arcp.Ack {
					return env
				}
			}
		}
		if e := refusal(t, approve(b)); e.Code != arcp.CodePermissionDenied {
			t.Errorf("the new owner answers the gate: %v, want PERMISSION_DENIED", &e)
		}
		approve(c)
		b.until(arcp.JobCompleted)
	})
}

// A subscription of an owner ends with the ownership, and a new one begins.
func TestSubscribeAfterHandingOn(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a, b := f.dial("alice"), f.dial("alice")
		job := a.submit("demo.emit", `{"count":5,"bytes":1,"delay_ms":60000,"interval_ms":60000}`)
		b.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, job))
		b.until(arcp.JobSubscribed)
		a.handsOver(job, b)
		b.handsOver(job, a)
		b.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, job))
		b.until(arcp.JobSubscribed)
		b.until(arcp.JobCompleted)
	})
}

// A job is not deleted before its owner has received its end.
func TestDeleteAfterAHandoff(t *testing.T) {
	inBubble(t, withFingerprint, func(f *fixture) {
		a := f.dial("alice")
		b, tokenOfB := f.dialToken("alice")
		job := a.submit("demo.emit", `{"count":2,"bytes":1,"delay_ms":60000,"interval_ms":1000}`)
		a.handsOver(job, b)
		last := b.until(arcp.EventEmit).EventSeq
		_ = b.conn.Abort() // the runtime sees the end
		time.Sleep(2 * time.Minute)
		args := fmt.Sprintf(`{"job_id":%q}`, job)
		a.refused("the owner has not received the end", "jobs.delete", args, arcp.CodeFailedPrecondition)
		b = f.resume(tokenOfB, last)
		end := b.until(arcp.JobCompleted)
		b.send("session.ack", fmt.Sprintf(`{"last_processed_seq":%d}`, end.EventSeq))
		b.wantOpen("after the end")
		a.must("jobs.delete", args)
	})
}
