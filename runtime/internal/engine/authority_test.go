package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/tool"
)

// submitLeased submits a job with a lease that ends after a while; 0: it does not end.
func (f *fixture) submitLeased(name, raw string, d time.Duration) arcp.MessageID {
	f.Helper()
	q := f.request("sess_1", name, "{}")
	q.payload.LeaseRequest = arcp.Raw(raw)
	if d > 0 {
		q.payload.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: time.Now().Add(d).UTC()}
	}
	return f.send(q)
}

// An expired lease ends its job at the next operation, without another attempt.
func TestLeaseEndsTheJob(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		worked := 0
		f.tool("work", func(c *tool.Capability) { c.Retry = tool.Retry{MaxAttempts: 5} },
			func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				for j.Authority().Allow("fs.read", "/a/x") == nil { // it does not care why not
					worked++
					time.Sleep(time.Second)
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
		f.submitLeased("work", `{"fs.read":["/a/**"]}`, 10*time.Second)
		time.Sleep(time.Minute)
		frames := f.want("expired", "job.accepted", "job.started", "job.failed msg_1 LEASE_EXPIRED")
		if e, err := arcp.DecodePayload[arcp.Error](&frames[2].Envelope); err != nil || e.Retryable {
			t.Errorf("%+v, %v: it can be done again", e, err)
		}
		if worked != 11 { // with a second of grace
			t.Errorf("%d operations were allowed", worked)
		}
		if !strings.Contains(string(frames[0].Payload), `"lease_constraints":{"expires_at":`) {
			t.Errorf("accepted as %s", frames[0].Payload)
		}
		if n, denials := f.gauge("arcp_lease_expirations_total"), f.gauge("arcp_capability_denials_total"); n != 1 || denials != 1 {
			t.Errorf("%v expirations and %v denials are counted, want 1 and 1", n, denials)
		}
		f.expectNoState("expired")
	})
}

// That the tool returns right after the operation does not save the job.
func TestLeaseEndsTheJobThatReturns(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("work", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Minute)
			_ = j.Authority().Allow("fs.read", "/a")
			return arcp.Raw(`"done"`), nil
		})
		for range 20 {
			id := f.submitLeased("work", `{"fs.read":["/a"]}`, 10*time.Second)
			time.Sleep(2 * time.Minute)
			f.want("its lease had ended", "job.accepted", "job.started", "job.failed "+string(id)+" LEASE_EXPIRED")
		}
		f.expectNoState("expired")
	})
}

// A charge is an operation and is refused after the end of the lease. A cost metric reports
// past spending and is accepted.
func TestChargeAfterTheLease(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("work", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Minute)
			if err := j.Metric(arcp.MetricPayload{Name: "cost.x", Value: "0.001", Unit: "USD"}); err != nil {
				t.Errorf("Metric within the budget: %v", err)
			}
			if err := j.Authority().Charge("x", "USD", "0.5"); code(err) != "LEASE_EXPIRED" {
				t.Errorf("charged after the end of the lease: %v", err)
			}
			return nil, nil
		})
		f.submitLeased("work", `{"cost.budget":["USD:1"]}`, 10*time.Second)
		time.Sleep(2 * time.Minute)
		f.want("its lease had ended", "job.accepted", "job.started", "metric", "job.failed msg_1 LEASE_EXPIRED")
		if n, denials := f.gauge("arcp_lease_expirations_total"), f.gauge("arcp_capability_denials_total"); n != 1 || denials != 1 {
			t.Errorf("%v expirations and %v denials are counted, want 1 and 1", n, denials)
		}
		f.expectNoState("expired")
	})
}

// With preemption a job ends with its lease, whatever it does, or waits for.
func TestPreemption(t *testing.T) {
	runEngine(t, func(c *Config) { c.PreemptExpired = true }, func(f *fixture) {
		f.tool("wait", oneAtATime, wait)
		f.tool("fail", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return nil, arcp.Errorf(arcp.CodeUnavailable, "not now").RetryAfter(3600)
		})
		f.submitLeased("wait", `{"fs.read":["/a"]}`, 10*time.Second)
		f.want("runs", "job.accepted", "job.started")
		f.submitLeased("wait", `{"fs.read":["/a"]}`, 5*time.Second)
		f.want("queued", "job.accepted msg_2")
		q := f.request("sess_1", "fail", "{}")
		q.payload.LeaseRequest = arcp.Raw(`{"fs.read":["/a"]}`)
		q.payload.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: time.Now().Add(7 * time.Second).UTC()}
		q.payload.Retry = arcp.Raw(`{"max_attempts":3}`)
		f.send(q)
		f.want("waits for its retry", "job.accepted msg_3", "job.started", "event.emit")
		time.Sleep(5 * time.Second)
		f.want("grace")
		time.Sleep(1100 * time.Millisecond)
		f.want("queued", "job.failed msg_2 LEASE_EXPIRED")
		time.Sleep(2 * time.Second)
		f.want("between attempts", "job.failed msg_3 LEASE_EXPIRED")
		time.Sleep(3 * time.Second)
		f.want("running", "job.failed msg_1 LEASE_EXPIRED")
		f.expectNoState("preempted")
	})
}

// The time of a lease keeps running while the runtime is down.
func TestLeaseOverRestart(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var got []string
		f.tool("work", func(c *tool.Capability) { c.Recovery = tool.RecoveryRerun },
			func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				got = append(got, code(j.Authority().Allow("fs.read", "/a")), code(j.Authority().Allow("fs.read", "/b")))
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
		f.submitLeased("work", `{"fs.read":["/a"]}`, 10*time.Second)
		f.want("runs", "job.accepted", "job.started")
		f.restart(1)
		f.want("again", "job.started")
		f.stop(0)
		time.Sleep(time.Minute)
		f.restart(1)
		f.want("too late", "job.started", "job.failed msg_1 LEASE_EXPIRED")
		if want := ",PERMISSION_DENIED,,PERMISSION_DENIED"; strings.Join(got, ",") != want {
			t.Errorf("the attempts were told %q, want two attempts and no call after the end of the lease", got)
		}
	})
}

// After the end of its lease a job does not call its tool, whatever it has waited for. A job without an end is
// not affected.
func TestLeaseEndsBeforeTheCall(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*tool.Capability)
		wait   func(f *fixture, fq *fakeQuestions)
		calls  int // before the end of the lease
	}{
		{"approval", func(c *tool.Capability) { c.Approval = tool.ApprovalManual }, func(f *fixture, fq *fakeQuestions) {
			q := fq.only(f.T)
			time.Sleep(time.Minute)
			if _, err := f.respond(q, person("sess_2"), approval.Answer{Resolution: approval.Approve}); err != nil {
				f.Fatal(err)
			}
		}, 0},
		{"retry", retryable, func(*fixture, *fakeQuestions) { time.Sleep(time.Minute) }, 1},
		{"queue", oneAtATime, func(*fixture, *fakeQuestions) { time.Sleep(time.Minute) }, 0},
	} {
		for _, limited := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s limited=%v", c.name, limited), func(t *testing.T) {
				withQuestions(t, func(f *fixture, fq *fakeQuestions) {
					calls := 0
					f.tool("work", c.change, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
						if string(args) == `"first"` { // it has the slot
							time.Sleep(30 * time.Second)
							return args, nil
						}
						if calls++; c.name == "retry" && calls == 1 {
							return nil, arcp.Errorf(arcp.CodeUnavailable, "not now").RetryAfter(30)
						}
						return args, nil
					})
					if c.name == "queue" {
						f.submit("work", `"first"`)
						f.want("it has the slot", "job.accepted", "job.started")
					}
					var d time.Duration
					if limited {
						d = 10 * time.Second
					}
					id := f.submitLeased("work", `{"fs.read":["/a"]}`, d)
					want, wantCalls := "job.completed", c.calls+1
					if limited {
						want, wantCalls = "job.failed "+string(id)+" LEASE_EXPIRED", c.calls
					}
					c.wait(f, fq)
					all := lines(f.frames("sess_1"))
					if len(all) == 0 || !strings.HasPrefix(all[len(all)-1], want) || calls != wantCalls {
						t.Errorf("sent %q after %d calls, want the end %s after %d calls", all, calls, want, wantCalls)
					}
					if n := f.gauge("arcp_lease_expirations_total"); (n == 1) != limited {
						t.Errorf("%v expirations are counted", n)
					}
					f.expectNoState("ended")
				})
			})
		}
	}
}

// A principal whose lease has ended submits no jobs. It may call built-in tools, but no tool in their place.
func TestSubmitAfterTheLeaseOfThePrincipal(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		calls := f.schedules(0)
		f.tool("builtin", builtin(tool.SideEffectWrite), echo)
		limit, refused := lease.Parse(time.Now(), lease.Request{Lease: arcp.Raw(`{"tool.call":["*"]}`),
			Constraints: &arcp.LeaseConstraints{ExpiresAt: time.Now().Add(time.Minute)}})
		if refused != nil {
			t.Fatal(refused)
		}
		submit := func(name, args string) {
			q := f.request("sess_1", name, args)
			q.Lease = limit
			f.send(q)
		}
		submit("t", `{"n":1}`)
		f.want("before the end", "job.accepted", "job.started", "job.completed")
		time.Sleep(2 * time.Minute)
		submit("t", `{"n":1}`)
		f.want("after the end", "job.failed msg_2 LEASE_EXPIRED")
		submit(ScheduleTool, `{"job":{"type":"tool.invoke","payload":{"tool":"t","arguments":{}}},"when":{"after":10}}`)
		f.want("a schedule acts later", "job.failed msg_3 LEASE_EXPIRED")
		submit("builtin", `{}`)
		f.want("a built-in tool", "job.accepted", "job.completed msg_4")
		if n := calls.Load(); n != 1 {
			t.Errorf("the tool was called %d times, want once", n)
		}
		if n := f.gauge("arcp_capability_denials_total"); n != 2 {
			t.Errorf("%v denials are counted, want 2", n)
		}
	})
}

// A schedule submits no job after the end of its lease.
func TestScheduleAfterItsLease(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		calls := f.schedules(0)
		for _, when := range []string{`{"after":3600}`, `{"every":"FREQ=HOURLY;COUNT=3"}`} {
			q := f.request("sess_1", ScheduleTool, `{"job":{"type":"tool.invoke","payload":{"tool":"t","arguments":{}}},"when":`+when+`}`)
			q.env.Type = arcp.JobSchedule
			q.payload.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: time.Now().Add(time.Minute).UTC()}
			f.send(q)
		}
		f.frames("sess_1")
		time.Sleep(4 * time.Hour)
		f.want("after the end", "job.failed msg_1 LEASE_EXPIRED", "job.completed msg_2")
		if n, failed := calls.Load(), f.fired("failed"); n > 1 || failed != 4-float64(n) {
			t.Errorf("%d calls and %v failed occurrences, want only an occurrence at once to call", n, failed)
		}
	})
}

func TestModels(t *testing.T) {
	for _, required := range []bool{false, true} {
		runEngine(t, func(c *Config) { c.RequireModelLease = required }, func(f *fixture) {
			f.tool("think", withoutSideEffect, func(_ context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				return arcp.Raw("{}"), j.Authority().UseModel("tier-fast/small")
			})
			silent := "job.completed"
			if required {
				silent = "job.failed"
			}
			for raw, want := range map[string]string{
				``: silent, `{"fs.read":["/a"]}`: silent, `{"model.use":["tier-fast/*"]}`: "job.completed",
				`{"model_use":["tier-slow/*"]}`: "job.failed",
				`{"model.use":[]}`:              "job.failed", `{"model.use":["*"]}`: "job.completed",
			} {
				id := f.submitLeased("think", raw, 0)
				frames := f.frames("sess_1")
				if got := frames[len(frames)-1]; string(got.Type) != want || got.CorrelationID != id {
					t.Errorf("required %v, lease %s: %s, want %s", required, raw, got, want)
				}
			}
		})
	}
}

// A budget is spent exactly and announced, and its remainder survives a restart.
func TestBudgetOverRestart(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		step := 0
		f.tool("spend", func(c *tool.Capability) { c.Recovery = tool.RecoveryRerun },
			func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
				step++
				if err := j.Authority().Allow("tool.call", "x"); err != nil {
					return nil, err
				}
				if err := j.Metric(arcp.MetricPayload{Name: "cost.calls", Value: "0.1", Unit: "usd"}); err != nil {
					return nil, err
				}
				if err := j.Authority().Charge("big", "USD", "0.25"); code(err) != "BUDGET_EXHAUSTED" {
					t.Errorf("a charge over what is left: %v", err)
				}
				if err := j.Authority().Charge("free", "EUR", "1000"); err != nil {
					t.Errorf("a currency without a budget: %v", err)
				}
				if err := j.Metric(arcp.MetricPayload{Name: "cost.calls", Value: "-1", Unit: "USD"}); code(err) != "INVALID_ARGUMENT" {
					t.Errorf("a negative cost: %v", err)
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
		q := f.request("sess_1", "spend", "{}")
		q.payload.LeaseRequest = arcp.Raw(`{"tool.call":["*"]}`)
		q.payload.CostBudget = []string{"USD:0.20"}
		f.send(q)
		frames := f.want("spends", "job.accepted", "job.started", "metric", "metric", "metric")
		if got := string(frames[3].Payload); got != `{"name":"cost.budget.remaining","value":0.10,"unit":"USD"}` {
			t.Errorf("left is %s", got)
		}
		f.restart(1)
		frames = f.want("spends again", "job.started", "metric", "metric", "metric")
		if got := string(frames[2].Payload); got != `{"name":"cost.budget.remaining","value":0.00,"unit":"USD"}` {
			t.Errorf("left is %s", got)
		}
		f.restart(1)
		f.want("has nothing left", "job.started", "job.failed msg_1 BUDGET_EXHAUSTED")
		if step != 3 || f.gauge("arcp_budget_exhausted_total") == 0 {
			t.Errorf("%d attempts", step)
		}
	})
}

// A job that starts from another job's checkpoint has that job's lease, within the present
// lease of its principal.
func TestRestoredJobHasItsLease(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		id, made := f.finished(func(p *arcp.ToolInvokePayload) { p.LeaseRequest = arcp.Raw(`{"fs.read":["/a/**"]}`) })
		q := f.restoreRequest("sess_1", id, made[0])
		q.Lease = leaseFrom(t, `{"fs.read":["/**"],"fs.write":["/**"]}`)
		f.sendRestore(q)
		frames := f.want("restored", "job.accepted", "job.started")
		if got := string(frames[0].Payload); !strings.Contains(got, `"fs.read":["/a/**"]`) || strings.Contains(got, "fs.write") {
			t.Errorf("accepted as %s", got)
		}
		q = f.restoreRequest("sess_1", id, made[0])
		q.Lease = leaseFrom(t, `{"fs.read":["/b/**"]}`)
		f.sendRestore(q)
		f.want("not any more", "job.failed "+string(q.Envelope.ID)+" PERMISSION_DENIED")
		f.e.SessionJobs().CancelAll("sess_1", "")
		f.frames("sess_1")
	})
}

// denials returns the audit records of refused operations, one line each.
func denials(t *testing.T, log []byte) (list []string) {
	t.Helper()
	for line := range bytes.Lines(log) {
		var rec struct{ Logger, Action, Actor, Target, Namespace, Decision, Reason string }
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}
		if rec.Logger == "audit" && rec.Decision == "denied" {
			list = append(list, strings.Join(strings.Fields(strings.Join([]string{rec.Action, rec.Actor, rec.Target,
				rec.Namespace, rec.Reason}, " ")), " "))
		}
	}
	return list
}

// Whatever is refused for lack of authority is counted and written down, on
// whichever way it was asked for.
func TestDenialsAreAudited(t *testing.T) {
	var log bytes.Buffer
	var strict arcp.JobID
	runEngine(t, func(c *Config) { c.Logger = zerolog.New(zerolog.SyncWriter(&log)) }, func(f *fixture) {
		f.tool("trusting", func(c *tool.Capability) { c.MinTrust = "trusted" }, echo)
		f.tool("builtin", func(c *tool.Capability) { c.Source = tool.SourceBuiltin }, echo)
		f.tool("patient", func(c *tool.Capability) { c.Interruptible, c.Recovery = true, tool.RecoveryCheckpoint }, wait)
		f.tool("try", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			_, err := j.Call(ctx, tool.Call{Tool: "trusting"})
			_, err2 := j.Call(ctx, tool.Call{Tool: "builtin", Delegate: true})
			_, err3 := j.Call(ctx, tool.Call{Tool: "try", Lease: arcp.Raw(`{"fs.read":["/**"]}`)})
			got := []string{code(err), code(err2), code(err3), code(j.Authority().Charge("x", "USD", "2")),
				code(j.Authority().Allow("fs.read", "/a"))}
			_, err = j.Authority().Files().Open("/dev/null") // it is no regular file
			got = append(got, code(err))
			want := []string{"PERMISSION_DENIED", "PERMISSION_DENIED", "LEASE_SUBSET_VIOLATION", "BUDGET_EXHAUSTED",
				"PERMISSION_DENIED", "PERMISSION_DENIED"}
			if !slices.Equal(got, want) {
				t.Errorf("the tool was told %q, want %q", got, want)
			}
			return nil, nil
		})
		q := f.request("sess_1", "try", "{}")
		q.payload.LeaseRequest, q.Lease = arcp.Raw(`{"fs.read":["/b"]}`), leaseFrom(t, `{"fs.read":["/a/**"]}`)
		f.send(q)
		q = f.request("sess_1", "trusting", "{}")
		q.Trust = "constrained"
		f.send(q)
		q = f.request("sess_1", "try", "{}")
		q.Trust, q.payload.CostBudget = "constrained", []string{"USD:1"}
		q.payload.LeaseRequest = arcp.Raw(`{"tool.call":["*"],"agent.delegate":["*"],"fs.read":["/dev/null"]}`)
		f.send(q)
		q = f.request("sess_1", "patient", "{}")
		q.payload.StrictCancel = true
		id := f.send(q)
		strict = jobOf(f.frames("sess_1"), id)
		answers := f.session("sess_2")
		f.e.Cancel(Requester{Request: "msg_c", Principal: "alice", Session: "sess_2", Answers: answers},
			&arcp.CancelPayload{TargetID: string(strict)})
		f.e.Interrupt(Requester{Request: "msg_i", Principal: "alice", Session: "sess_2", Answers: answers},
			&arcp.InterruptPayload{TargetID: string(strict)})
		f.e.RestoreCheckpoint(&Submit{Envelope: &arcp.Envelope{ID: "msg_r", JobID: strict}, Principal: "alice",
			Session: "sess_2", Answers: answers}, new(arcp.CheckpointRestorePayload))
		f.frames("sess_2")
		if n := f.gauge("arcp_capability_denials_total"); n != 7 {
			t.Errorf("%v denials are counted", n)
		}
		if n := f.gauge("arcp_budget_exhausted_total"); n != 1 {
			t.Errorf("%v times a budget is counted as used up", n)
		}
	})
	want := []string{"submit alice try@1.0.0 lease", "submit alice trusting@1.0.0 trust",
		"denial alice tool.call not_covered", "denial alice agent.delegate not_covered",
		"denial alice tool.call not_covered", "denial alice cost.budget exhausted", "denial alice fs.read not_covered",
		"denial alice fs.read not_covered",
		"cancel alice " + string(strict) + " strict_cancel",
		"interrupt alice " + string(strict) + " strict_cancel",
		"checkpoint.restore alice " + string(strict) + " strict_cancel"}
	if got := denials(t, log.Bytes()); !slices.Equal(got, want) {
		t.Errorf("audited are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A cost that no budget limits makes no record.
func TestCostWithoutABudget(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			j.Metric(arcp.MetricPayload{Name: "cost.x", Value: "1", Unit: "USD"})
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		f.submit("t", "{}")
		job := f.want("the cost is an event", "job.accepted", "job.started", "metric")[0].JobID
		if rec, err := f.st.Get(t.Context(), progressKey(job)); rec.Rev != 0 || err != nil {
			t.Errorf("the progress record is %s, %v; want none", rec.Value, err)
		}
	})
}
