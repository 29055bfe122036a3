package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/tool/demo"
)

// withDemoTools runs a test with an engine that has the demo tools.
func withDemoTools(t *testing.T, test func(f *fixture, fq *fakeQuestions)) {
	t.Helper()
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		if err := demo.Register(f.cfg.Tools); err != nil {
			t.Fatal(err)
		}
		test(f, fq)
	})
}

func (f *fixture) interrupt(job arcp.JobID) {
	f.Helper()
	f.e.Interrupt(Requester{Request: "msg_i", Principal: "alice", Session: "sess_1", Answers: f.session("sess_1")},
		&arcp.InterruptPayload{TargetID: string(job), Prompt: "stop"})
}

// An interrupt wakes a tool that sleeps: its guidance is applied at once, and the
// time it was interrupted does not count.
func TestSleepIsInterrupted(t *testing.T) {
	withDemoTools(t, func(f *fixture, fq *fakeQuestions) {
		start := time.Now()
		id := f.submit("demo.sleep", `{"ms":3600000}`)
		time.Sleep(handoverAfter)
		job := jobOf(f.want("sleeps", "job.accepted", "job.started"), id)
		for n := 1; n <= 2; n++ {
			time.Sleep(10 * time.Minute)
			f.interrupt(job)
			f.want("interrupted", "ack msg_i", "human.input.request")
			if state := f.row(job).State; state != arcp.StateBlocked {
				t.Errorf("the job is %s", state)
			}
			time.Sleep(50 * time.Minute)
			answer := arcp.Raw(fmt.Sprintf(`{"action":"continue","guidance":"rest %d"}`, n))
			if _, err := f.respond(fq.only(t), person("sess_1"), approval.Answer{Value: answer}); err != nil {
				t.Fatal(err)
			}
			frames := f.want("the guidance is heard", "log")
			if p, _ := arcp.DecodePayload[arcp.LogPayload](&frames[0].Envelope); p.Message != fmt.Sprintf("guidance: rest %d", n) {
				t.Errorf("logged %q", p.Message)
			}
		}
		time.Sleep(40*time.Minute - time.Second)
		f.want("still sleeps")
		time.Sleep(2 * time.Second)
		f.want("wakes up", "job.completed")
		if took := time.Since(start); took > 2*time.Hour+41*time.Minute {
			t.Errorf("took %v", took)
		}
		f.frames("sess_2")
		f.expectNoState("slept")
	})
}

// An unanswered interrupt blocks the next attempt from its start.
func TestInterruptSurvivesRestart(t *testing.T) {
	withDemoTools(t, func(f *fixture, fq *fakeQuestions) {
		id := f.submit("demo.sleep", `{"ms":60000}`)
		time.Sleep(handoverAfter)
		job := jobOf(f.want("sleeps", "job.accepted", "job.started"), id)
		time.Sleep(30 * time.Second)
		f.interrupt(job)
		f.want("interrupted", "ack msg_i", "human.input.request")
		q := fq.only(t)
		f.restart(1)
		f.want("again", "job.started")
		time.Sleep(10 * time.Minute)
		f.want("still interrupted")
		if state := f.row(job).State; state != arcp.StateBlocked {
			t.Errorf("the job is %s", state)
		}
		if _, err := f.respond(q, person("sess_1"), approval.Answer{Value: arcp.Raw(`{"action":"continue"}`)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		f.want("goes on", "job.completed")
		f.expectNoState("slept")
	})
}

// A question of a tool that runs again after a restart is asked and answered
// once.
func TestDemoQuestionsSurviveRestart(t *testing.T) {
	for _, c := range []struct {
		tool, args, request string
		answer              approval.Answer
		want                string
	}{
		{"demo.ask", `{"prompt":"how many?","response_schema":{"type":"integer"}}`, "human.input.request",
			approval.Answer{Value: arcp.Raw("7")}, `{"value":{"value":7,"responded_by":"alice"}}`},
		{"demo.choose", `{"prompt":"which?","options":[{"id":"a","label":"A"},{"id":"b","label":"B"}]}`, "human.choice.request",
			approval.Answer{Resolution: "b", RespondedBy: "the phone"}, `{"value":{"choice_id":"b","responded_by":"the phone"}}`},
	} {
		withDemoTools(t, func(f *fixture, fq *fakeQuestions) {
			id := f.submit(c.tool, c.args)
			time.Sleep(handoverAfter)
			f.want(c.tool+" asks", "job.accepted", "job.started", c.request)
			q := fq.only(t)
			f.restart(1)
			f.want(c.tool+" does not ask again", "job.started")
			if _, err := f.respond(q, person("sess_1"), c.answer); err != nil {
				t.Fatal(err)
			}
			frames := f.want(c.tool+" goes on", "job.completed "+string(id))
			if got := string(frames[0].Payload); got != c.want {
				t.Errorf("%s ends with %s, want %s", c.tool, got, c.want)
			}
			f.frames("sess_2")
			f.expectNoState(c.tool)
		})
	}
}

// A granted permission is usable after a hold only if its lease lasts that long.
func TestDemoPermit(t *testing.T) {
	withDemoTools(t, func(f *fixture, fq *fakeQuestions) {
		for _, c := range []struct {
			seconds uint64 // granted
			want    string
		}{{120, "job.completed"}, {10, "job.failed"}} {
			id := f.submit("demo.permit", `{"permission":"order.refund","resource":"order:*","operation":"refund","lease_seconds":300,"hold_ms":60000,"reason":"why not"}`)
			time.Sleep(handoverAfter)
			f.want("asks", "job.accepted", "job.started", "permission.request")
			term := &arcp.PermissionTerm{Permission: "order.refund", Resource: "order:7", Operation: "refund", Seconds: c.seconds}
			if _, err := f.respond(fq.only(t), person("sess_1"), approval.Answer{Grant: term}); err != nil {
				t.Fatal(err)
			}
			f.want("granted", "lease.granted")
			time.Sleep(time.Minute)
			frames := f.want("held", c.want+" "+string(id))
			if c.want == "job.failed" {
				if e, _ := arcp.DecodePayload[arcp.Error](&frames[0].Envelope); e.Code != arcp.CodeLeaseExpired {
					t.Errorf("a permission that has ended: %v", e)
				}
			}
		}
		f.frames("sess_2")
		f.expectNoState("permits")
	})
}

// An operation after the budget is exhausted fails, and the costs before it count.
func TestDemoSpend(t *testing.T) {
	withDemoTools(t, func(f *fixture, _ *fakeQuestions) {
		spend := func(lease string, budget ...string) (ends string, costs int) {
			q := f.request("sess_1", "demo.spend", `{"currency":"usd","amount":"0.40","times":5}`)
			q.payload.LeaseRequest, q.payload.CostBudget = arcp.Raw(lease), budget
			f.send(q)
			for _, fr := range f.frames("sess_1") {
				p, _ := arcp.DecodePayload[arcp.MetricPayload](&fr.Envelope)
				if fr.Type == arcp.Metric && p.Name == "cost.demo" {
					costs++
				}
				ends = string(fr.Type)
				if e, _ := arcp.DecodePayload[arcp.Error](&fr.Envelope); e.Code != "" {
					ends += " " + string(e.Code)
				}
			}
			return ends, costs
		}
		const may = `{"tool.call":["demo.spend"]}`
		for _, c := range []struct {
			why, lease string
			budget     []string
			ends       string
			costs      int
		}{
			{"no lease", ``, nil, "job.failed PERMISSION_DENIED", 0},
			{"no budget is no limit", may, nil, "job.completed", 5},
			{"the third goes below zero, the fourth is refused", may, []string{"USD:1.00"}, "job.failed BUDGET_EXHAUSTED", 3},
			{"the second reaches zero", may, []string{"USD:0.80"}, "job.failed BUDGET_EXHAUSTED", 2},
			{"it ends as the budget does", may, []string{"USD:2.00"}, "job.completed", 5},
			{"another currency", may, []string{"EUR:0.10"}, "job.completed", 5},
		} {
			if ends, costs := spend(c.lease, c.budget...); ends != c.ends || costs != c.costs {
				t.Errorf("%s: %s after %d costs, want %s after %d", c.why, ends, costs, c.ends, c.costs)
			}
		}
		f.expectNoState("spent")
	})
}
