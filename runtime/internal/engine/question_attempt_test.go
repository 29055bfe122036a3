package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job/question"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// ask asks for a string and returns it.
func ask(ctx context.Context, j tool.Job, prompt string) (string, error) {
	a, err := j.Ask(ctx, tool.InputRequest{Prompt: prompt, Schema: arcp.Raw(`{"type":"string"}`)})
	return string(a.Value), err
}

// retryable configures a tool to retry failed attempts.
func retryable(c *tool.Capability) {
	rerun(c)
	c.Idempotent = new(true)
	c.Retry = tool.Retry{MaxAttempts: 5, InitialMS: 1000, Factor: 1, MaxMS: 1000}
}

// storedQuestions returns the questions in the store, by prompt.
func (f *fixture) storedQuestions() map[string][]approval.Row {
	f.Helper()
	rows := make(map[string][]approval.Row)
	err := f.st.Records(context.Background(), approval.RecordPrefix(""), "", func(rec store.Record) bool {
		var row approval.Row
		if err := arcp.Unmarshal(rec.Value, &row); err != nil {
			f.Fatal(err)
		}
		rows[row.Action] = append(rows[row.Action], row)
		return true
	})
	if err != nil {
		f.Fatal(err)
	}
	return rows
}

// pendingWith returns the pending question with a prompt.
func (fq *fakeQuestions) pendingWith(t *testing.T, prompt string) (q approval.Row) {
	t.Helper()
	synctest.Wait()
	fq.mu.Lock()
	defer fq.mu.Unlock()
	for _, p := range fq.pending {
		if p.Action == prompt && q.ID != "" {
			t.Fatalf("%q is asked twice", prompt)
		} else if p.Action == prompt {
			q = p
		}
	}
	if q.ID == "" {
		t.Fatalf("%q is not asked", prompt)
	}
	return q
}

// answer answers a question with a value, as the person of sess_1.
func (f *fixture) answer(q approval.Row, value string) {
	f.Helper()
	if _, err := f.respond(q, person("sess_1"), approval.Answer{Value: arcp.Raw(value)}); err != nil {
		f.Fatal(err)
	}
}

// The offer of a question to a session that has ended does not affect the job: the answer of another
// session completes it.
func TestOfferToAnEndedSession(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("ask", nil, asker)
		job := jobOf(func() []frame {
			f.submit("ask", "{}")
			return f.want("the job asks", "job.accepted", "job.started", "human.input.request")
		}(), "msg_1")
		q := fq.only(t)
		f.e.Questions().Offer(job, q.ID, person("sess_gone"))
		synctest.Wait()
		f.answer(q, "5")
		f.want("the job goes on", "job.completed")
		f.expectNoState("")
	})
}

// A failed attempt leaves only its pending question behind. The next attempt does not start
// blocked, and its clock runs until it asks again.
func TestAttemptEndsWhileAsking(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("t", retryable, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if j.Attempt() == 1 {
				go ask(ctx, j, "a")
				time.Sleep(10 * time.Minute) // blocked: this does not count
				return nil, errUnavailable()
			}
			time.Sleep(30 * time.Second)
			done := make(chan string, 2)
			for _, prompt := range []string{"a", "b"} {
				go func() { v, _ := ask(ctx, j, prompt); done <- v }()
				time.Sleep(time.Second)
			}
			v := <-done + <-done
			<-ctx.Done()
			return arcp.Raw(v), context.Cause(ctx)
		})
		q := f.request("sess_1", "t", "{}")
		q.payload.MaxRuntimeSec = new(arcp.Number("60"))
		f.send(q)
		job := f.want("the first attempt asks", "job.accepted", "job.started", "human.input.request")[0].JobID
		time.Sleep(10*time.Minute + 40*time.Second)
		f.want("the second attempt asks only b", "event.emit", "job.started", "human.input.request")
		for _, c := range []struct {
			answer string
			want   arcp.JobState
		}{{"a", arcp.StateBlocked}, {"b", arcp.StateRunning}} {
			f.answer(fq.pendingWith(t, c.answer), `""`)
			synctest.Wait()
			if got := f.row(job).State; got != c.want {
				t.Errorf("with an answer to %s the job is %s, want %s", c.answer, got, c.want)
			}
		}
		f.frames("sess_1")
		time.Sleep(20 * time.Second) // of 60: 1 retry, 31, and these
		if got := f.row(job).State; got != arcp.StateRunning {
			t.Errorf("after about 52 s the job is %s", got)
		}
		time.Sleep(10 * time.Second)
		f.want("after 62 s", "job.failed msg_1 TIMEOUT")
		f.expectNoState("")
	})
}

// A question that its attempt has withdrawn is no answer to the next one.
func TestWithdrawnIsAskedAgain(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("t", retryable, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			short, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			v, err := ask(short, j, "a")
			if err != nil && j.Attempt() == 1 {
				return nil, errUnavailable()
			}
			return arcp.Raw(v), err
		})
		f.submit("t", "{}")
		time.Sleep(90 * time.Second)
		f.want("the retry asks again", "job.accepted", "job.started", "human.input.request", "human.input.cancelled", "event.emit",
			"job.started", "human.input.request")
		f.answer(fq.pendingWith(t, "a"), `"yes"`)
		f.want("the answer completes the job", "job.completed")
		f.expectNoState("")
	})
}

// Questions asked concurrently may come in another order from the next attempt. Each is still
// asked once.
func TestOrderOfQuestionsAskedAtOnce(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("t", rerun, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			prompts := []string{"a", "b", "c"}
			if j.Attempt()%2 == 0 {
				slices.Reverse(prompts)
			}
			answers := make([]string, 3)
			done := make(chan error, 3)
			for i, prompt := range prompts {
				go func() {
					var err error
					answers[i], err = ask(ctx, j, prompt)
					done <- err
				}()
				time.Sleep(time.Second)
			}
			for range prompts {
				if err := <-done; err != nil {
					return nil, err
				}
			}
			slices.Sort(answers)
			return arcp.Raw("[" + strings.Join(answers, ",") + "]"), nil
		})
		f.submit("t", "{}")
		for range 3 {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if n := len(fq.pending); n != 3 {
				t.Fatalf("%d questions are pending, want 3", n)
			}
			f.frames("sess_1")
			f.restart(1)
		}
		time.Sleep(5 * time.Second)
		f.frames("sess_1")
		for _, p := range []string{"a", "b", "c"} {
			f.answer(fq.pendingWith(t, p), `"`+p+`"`)
		}
		frames := f.frames("sess_1")
		if got := string(frames[len(frames)-1].Payload); got != `{"value":["a","b","c"]}` {
			t.Errorf("the job ends with %s", got)
		}
		if n := len(f.storedQuestions()); n != 3 {
			t.Errorf("%d questions in the store", n)
		}
		f.frames("sess_2")
	})
}

// An approved call is not asked about again when a later attempt continues from a checkpoint.
// The gate does not shift the ordinals of the tool's own questions.
func TestApprovedGateIsNotRepeated(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("t", func(c *tool.Capability) { c.Approval, c.Recovery = tool.ApprovalManual, tool.RecoveryCheckpoint },
			func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				if j.Restored() == nil {
					if _, err := ask(ctx, j, "a"); err != nil {
						return nil, err
					}
					if err := j.Checkpoint("", 1); err != nil {
						return nil, err
					}
				}
				v, err := ask(ctx, j, "b")
				if err != nil {
					return nil, err
				}
				if j.Attempt() == 1 {
					<-ctx.Done()
				}
				return arcp.Raw(v), context.Cause(ctx)
			})
		f.submit("t", "{}")
		if _, err := f.respond(fq.pendingWith(t, "call t@1.0.0"), person("sess_2"), approval.Answer{Resolution: approval.Approve}); err != nil {
			t.Fatal(err)
		}
		f.answer(fq.pendingWith(t, "a"), `"A"`)
		f.answer(fq.pendingWith(t, "b"), `"B"`)
		f.frames("sess_1")
		f.restart(1)
		f.want("nothing is asked again", "job.started", "job.completed")
		if rows := f.storedQuestions(); len(rows) != 3 || len(rows["b"]) != 1 {
			t.Errorf("%d questions, b %d times", len(rows), len(rows["b"]))
		}
		f.frames("sess_2")
	})
}

// A question that closes before its request is written is not sent to any session.
func TestQuestionClosedBeforeItIsSent(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Minute)
			j.Log("info", "the supervisor is busy with this", nil)
			time.Sleep(time.Second)
			a, err := j.Ask(ctx, tool.InputRequest{Prompt: "a", Expires: time.Second, Default: arcp.Raw("7")})
			return a.Value, err
		})
		f.submit("t", "{}")
		f.want("the job runs", "job.accepted", "job.started")
		release := f.st.hold()
		time.Sleep(2 * time.Minute)
		release()
		frames := f.want("the default completes the job", "log", "job.completed")
		if got := string(frames[1].Payload); got != `{"value":7}` {
			t.Errorf("the job ends with %s", got)
		}
		if n := len(f.frames("sess_2")); n != 0 || len(fq.closed) != 0 {
			t.Errorf("%d frames to others; closed %v", n, fq.closed)
		}
		if rows := f.storedQuestions()["a"]; len(rows) != 1 || rows[0].ResolvedBy != approval.ByDefault {
			t.Errorf("the questions of a are %+v, want one that is resolved by its default", rows)
		}
	})
}

// A valid answer reaches a tool that stops waiting at the same time.
func TestAnswerDuringTimeout(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			v, err := ask(ctx, j, "a")
			return arcp.Raw(v), err
		})
		f.submit("t", "{}")
		f.frames("sess_1")
		q := fq.only(t)
		release := f.st.hold()
		told := make(chan *arcp.Error, 1)
		f.e.Questions().Respond(Response{Job: q.Job, ID: q.ID, Actor: person("sess_1"),
			Answer: approval.Answer{Value: arcp.Raw(`"A"`)}, Done: func(_ approval.Row, err *arcp.Error) { told <- err }})
		time.Sleep(2 * time.Minute)
		release()
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		f.want("the answer completes the job", "job.completed")
		f.frames("sess_2")
	})
}

// The number of a job's closed questions in memory is bounded.
func TestClosedQuestionsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	const n = 1500
	for name, c := range map[string]struct {
		change func(*tool.Capability)
		keep   int
	}{"fail": {nil, question.MaxClosedFinal}, "rerun": {rerun, question.MaxClosed}} {
		t.Run(name, func(t *testing.T) {
			withQuestions(t, func(f *fixture, fq *fakeQuestions) {
				f.tool("t", c.change, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
					for i := range n {
						if _, err := j.Ask(ctx, tool.InputRequest{Prompt: fmt.Sprint(i), Expires: 1, Default: arcp.Raw("7")}); err != nil {
							return nil, err
						}
					}
					<-ctx.Done()
					return nil, context.Cause(ctx)
				})
				f.submit("t", "{}")
				time.Sleep(time.Minute)
				frames := f.frames("sess_1")
				check := func(max int) {
					t.Helper()
					synctest.Wait()
					if got := len(f.e.run(frames[0].JobID).questions.All()); got > max {
						t.Errorf("%d questions are in memory, want at most %d", got, max)
					}
				}
				check(c.keep)
				if len(f.storedQuestions()) != n {
					t.Errorf("%d questions in the store, want all", len(f.storedQuestions()))
				}
				if name == "rerun" {
					f.restart(1)
					time.Sleep(time.Minute)
					check(2 * question.MaxClosed)
				}
				f.frames("sess_1")
				f.frames("sess_2")
			})
		})
	}
	t.Run("permissions", func(t *testing.T) {
		withQuestions(t, func(f *fixture, fq *fakeQuestions) {
			f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				for range 300 {
					if _, err := j.Permissions().Request(ctx, tool.PermissionRequest{Permission: "p", Resource: "r", Operation: "o"}); err != nil {
						return nil, err
					}
					time.Sleep(time.Minute)
				}
				return nil, nil
			})
			f.submit("t", "{}")
			for range 300 {
				f.frames("sess_1")
				f.frames("sess_2")
				_, err := f.respond(fq.only(t), person("sess_1"),
					approval.Answer{Grant: &arcp.PermissionTerm{Permission: "p", Resource: "r", Operation: "o", Seconds: 1}})
				if err != nil {
					t.Fatal(err)
				}
				f.e.leases.mu.Lock()
				n := len(f.e.leases.byID)
				f.e.leases.mu.Unlock()
				if n > 128 {
					t.Fatalf("%d permission leases are in memory", n)
				}
				time.Sleep(time.Minute)
			}
			f.frames("sess_1")
			f.frames("sess_2")
			if len(f.e.leases.byID) != 0 {
				t.Errorf("%d permission leases outlive the job", len(f.e.leases.byID))
			}
		})
	})
}

func TestQuestionsThatCannotBeAsked(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		var got []string
		f.tool("t", func(c *tool.Capability) { c.Interruptible = true }, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for _, prompt := range []string{strings.Repeat("x", 1<<20), "\xff"} {
				_, err := ask(ctx, j, prompt)
				_, other := j.Permissions().Request(ctx, tool.PermissionRequest{Permission: "p", Resource: prompt, Operation: "o"})
				got = append(got, code(err), code(other))
			}
			_, err := ask(ctx, j, "a")
			return nil, err
		})
		f.submit("t", "{}")
		job := f.want("the valid question is asked", "job.accepted", "job.started", "human.input.request")[0].JobID
		if want := []string{"RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "INVALID_ARGUMENT"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		f.e.Interrupt(Requester{Request: "msg_i", Principal: "alice", Session: "sess_1", Answers: f.session("sess_1")},
			&arcp.InterruptPayload{TargetID: string(job), Prompt: "\xff"})
		f.want("the prompt is not valid UTF-8", "nack msg_i INVALID_ARGUMENT")

		q := fq.pendingWith(t, "a")
		row, err := f.respond(q, approval.Actor{Principal: "bob", Session: "sess_9"}, approval.Answer{Value: arcp.Raw("7")})
		if err == nil || err.Code != arcp.CodeNotFound || row.ID != "" {
			t.Errorf("a stranger's answer that the schema does not allow: %v, with %q", err, row.ID)
		}
		for _, a := range []approval.Answer{{Value: arcp.Raw(`"`)}, {Value: arcp.Raw(`""`), Reason: "\xff"},
			{Value: arcp.Raw(`"` + strings.Repeat("x", approval.MaxValue) + `"`)}} {
			if _, err := f.respond(q, person("sess_1"), a); err == nil || err.Code != arcp.CodeInvalidArgument {
				t.Errorf("the answer %.40s with the reason %q: %v, want INVALID_ARGUMENT", a.Value, a.Reason, err)
			}
		}
		f.answer(q, `"b"`)
		f.want("the valid answer completes the job", "job.completed")
		f.frames("sess_2")
	})
}

// An unanswered interrupt blocks the next attempt as well. An answer between two attempts
// guides the next one.
func TestInterruptBlocksTheNextAttempt(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		var guided []string
		f.tool("t", func(c *tool.Capability) { retryable(c); c.Interruptible = true; c.Limits.Timeout = 30 * time.Second },
			func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				time.Sleep(5 * time.Second)
				if j.Attempt() != 2 { // which does not look
					return nil, errUnavailable()
				}
				g, err := j.Yield(ctx)
				guided = append(guided, g)
				return arcp.Raw("1"), err
			})
		interrupt := func(job arcp.JobID) {
			f.e.Interrupt(Requester{Request: "msg_i", Principal: "alice", Session: "sess_1", Answers: f.session("sess_1")},
				&arcp.InterruptPayload{TargetID: string(job), Prompt: "stop"})
		}
		f.submit("t", "{}")
		job := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		interrupt(job)
		time.Sleep(30 * time.Minute)
		f.want("the interrupt outlasts the attempt", "ack", "human.input.request", "event.emit", "job.started")
		if got := f.row(job).State; got != arcp.StateBlocked {
			t.Errorf("an interrupted job is %s in its next attempt", got)
		}
		f.answer(fq.only(t), `{"action":"continue","guidance":"faster"}`)
		f.want("the answer completes the job", "job.completed")

		f.submit("t", "{}")
		job = f.want("the second job runs", "job.accepted", "job.started")[0].JobID
		interrupt(job)
		time.Sleep(5500 * time.Millisecond) // between two attempts
		f.frames("sess_1")
		f.answer(fq.only(t), `{"action":"continue","guidance":"slower"}`)
		time.Sleep(time.Minute)
		if frames := f.frames("sess_1"); frames[len(frames)-1].Type != arcp.JobCompleted {
			t.Errorf("after the second interrupt the session has %q, want job.completed at the end", lines(frames))
		}
		if want := []string{"faster", "slower"}; !slices.Equal(guided, want) {
			t.Errorf("guided by %q, want %q", guided, want)
		}
		f.frames("sess_2")
	})
}

// A tool's own time limit does not come back for a job that is being cancelled.
func TestCancelWhileAsking(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("t", func(c *tool.Capability) { c.Limits.Timeout = 2 * time.Second },
			func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				ask(ctx, j, "a")
				time.Sleep(time.Minute)
				return nil, nil
			})
		f.submit("t", "{}")
		job := f.want("the job asks", "job.accepted", "job.started", "human.input.request")[0].JobID
		time.Sleep(time.Minute)
		f.cancel(job, 10*time.Second)
		time.Sleep(10*time.Second - 1)
		f.want("the cancel closes the question", "cancel.accepted", "human.input.cancelled")
		time.Sleep(time.Nanosecond)
		f.want("the deadline ends the job", "job.cancelled msg_1 ABORTED")
		f.frames("sess_2")
	})
}

// A permission that has ended when another attempt finds it is none, and an
// attempt that has ended extends nothing.
func TestPermissionOfAnEarlierAttempt(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		late := make(chan error, 1)
		p := tool.PermissionRequest{Permission: "p", Resource: "r", Operation: "o", For: 500 * time.Millisecond}
		f.tool("t", retryable, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			l, err := j.Permissions().Request(ctx, p)
			switch j.Attempt() {
			case 1:
				go func() {
					<-ctx.Done()
					_, err := j.Permissions().Extend(context.Background(), l.ID, time.Hour)
					late <- err
				}()
				return nil, errUnavailable()
			case 2:
				return nil, err
			}
			return nil, nil
		})
		f.submit("t", "{}")
		f.want("the job requests the permission", "job.accepted", "job.started", "permission.request")
		row, err := f.respond(fq.only(t), person("sess_1"),
			approval.Answer{Grant: &arcp.PermissionTerm{Permission: "p", Resource: "r", Operation: "o", Seconds: 600}})
		if err != nil || row.Permission.Seconds != 1 {
			t.Fatalf("the granted permission is %+v, %v; want one second", row.Permission, err)
		}
		time.Sleep(time.Minute)
		if err := <-late; code(err) != "ABORTED" {
			t.Errorf("extended by an attempt that has ended: %v", err)
		}
		f.frames("sess_1")
		f.frames("sess_2")
	})
}
