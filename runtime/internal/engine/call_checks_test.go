package engine

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
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/digest"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// pathCheck is a check of the call path that a call does not pass.
type pathCheck int

// The checks, in their order.
const (
	unknown pathCheck = iota
	leaseLacks
	budgetSpent
	badArguments
	largeArguments
	rateUsedUp
	queueFull
	notApproved
	tooSlow
	largeResult
	badResult
	pathChecks
)

// refusals are the error messages of the failing checks, by prefix.
var refusals = [pathChecks]string{
	unknown:        "AGENT_NOT_AVAILABLE: no tool or agent is named",
	leaseLacks:     "PERMISSION_DENIED: ",
	budgetSpent:    "BUDGET_EXHAUSTED: nothing is left of the budget of USD",
	badArguments:   "INVALID_ARGUMENT: argument /n must be an integer",
	largeArguments: "RESOURCE_EXHAUSTED: the arguments object has",
	rateUsedUp:     "RESOURCE_EXHAUSTED: target is called more than",
	queueFull:      "RESOURCE_EXHAUSTED: target: 1 jobs are running and 1024 waiting",
	notApproved:    "PERMISSION_DENIED: ",
	tooSlow:        "DEADLINE_EXCEEDED: target ran longer than its limit of 1s (limits.timeout_ms)",
	largeResult:    "RESOURCE_EXHAUSTED: the result has",
	badResult:      "INTERNAL: the tool's result breaks its output schema",
}

// failedChecks are the checks of the call path that a call does not pass.
type failedChecks map[pathCheck]bool

func (c failedChecks) tool(t *tool.Capability) {
	t.InputSchema, t.OutputSchema = arcp.Raw(`{"properties":{"n":{"type":"integer"}}}`), arcp.Raw(`{"type":"object"}`)
	t.Limits = tool.Limits{Timeout: -1, Concurrency: -1, MaxRequestBytes: 100, MaxResponseBytes: 100}
	if c[queueFull] {
		t.Limits.Concurrency = 1
	}
	if c[rateUsedUp] {
		t.Limits.RatePerMin = c.fillers()
	}
	if c[notApproved] {
		t.Approval = tool.ApprovalManual
	}
	if c[tooSlow] {
		t.Limits.Timeout = time.Second
	}
}

// fillers returns the number of calls before the checked call.
func (c failedChecks) fillers() int {
	switch {
	case c[queueFull]:
		return tool.MaxQueue + 1
	case c[rateUsedUp]:
		return 1
	}
	return 0
}

func (c failedChecks) run(ctx context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
	switch {
	case strings.Contains(string(args), "fill"):
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case c[tooSlow]:
		<-ctx.Done()
		return arcp.Raw(`{"late":true}`), nil
	}
	switch text := strings.Repeat("x", 200); {
	case c[largeResult] && c[badResult]:
		return arcp.Raw(`"` + text + `"`), nil
	case c[largeResult]:
		return arcp.Raw(`{"r":"` + text + `"}`), nil
	case c[badResult]:
		return arcp.Raw(`"x"`), nil
	}
	return arcp.Raw(`{"done":true}`), nil
}

func (c failedChecks) call() tool.Call {
	n, pad, name := "1", "", "target"
	if c[badArguments] {
		n = `"one"`
	}
	if c[largeArguments] {
		pad = strings.Repeat("x", 200)
	}
	if c[unknown] {
		name = "nobody"
	}
	return tool.Call{Tool: name, Arguments: arcp.Raw(`{"n":` + n + `,"pad":"` + pad + `"}`)}
}

// child makes the call from a job; the text is how it ended.
func (c failedChecks) child(t *testing.T) (text string) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("target", c.tool, c.run)
		f.tool("caller", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if c[budgetSpent] {
				if err := j.Metric(arcp.MetricPayload{Name: "cost.x", Unit: "USD", Value: "2"}); err != nil {
					return nil, err
				}
			}
			return j.Call(ctx, c.call())
		})
		for range c.fillers() {
			f.submit("target", `{"fill":1}`)
		}
		q := f.request("sess_1", "caller", "{}")
		q.payload.LeaseRequest, q.payload.CostBudget = arcp.Raw(`{"tool.call":["target","nobody"]}`), []string{"USD:1"}
		if c[leaseLacks] {
			q.payload.LeaseRequest = arcp.Raw(`{"tool.call":["other"]}`)
		}
		id := f.send(q)
		text = f.outcome(id)
	})
	return text
}

// submit makes the call from a client.
func (c failedChecks) submit(t *testing.T) (text string) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("target", c.tool, c.run)
		for range c.fillers() {
			f.submit("target", `{"fill":1}`)
		}
		call := c.call()
		q := f.request("sess_1", call.Tool, string(call.Arguments))
		if c[leaseLacks] {
			limit, err := lease.Parse(time.Now(), lease.Request{Lease: arcp.Raw(`{"tool.call":["other"]}`)})
			if err != nil {
				t.Fatal(err)
			}
			q.Lease, q.payload.LeaseRequest = limit, arcp.Raw(`{"tool.call":["target"]}`)
		}
		text = f.outcome(f.send(q))
	})
	return text
}

// outcome is how a submit ends, at once or within two days.
func (f *fixture) outcome(id arcp.MessageID) string {
	f.Helper()
	for range 2 {
		for _, fr := range f.frames("sess_1") {
			switch {
			case fr.CorrelationID != id:
			case fr.Type == arcp.JobFailed:
				e, err := arcp.DecodePayload[arcp.Error](&fr.Envelope)
				if err != nil {
					f.Fatal(err)
				}
				return string(e.Code) + ": " + e.Message
			case fr.Type == arcp.JobCompleted:
				return "ok"
			}
		}
		time.Sleep(48 * time.Hour)
	}
	return "nothing"
}

// The checks of a call have a fixed order: of two failing checks, the earlier one is reported
// to the caller.
func TestOrderOfChecks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	if got := (failedChecks{}).child(t); got != "ok" {
		t.Fatalf("a call that passes all checks: %s", got)
	}
	for first := range pathChecks {
		for second := first; second < pathChecks; second++ {
			c := failedChecks{first: true, second: true}
			if got := c.child(t); !strings.HasPrefix(got, refusals[first]) {
				t.Errorf("a job's call that fails the checks %d and %d: %s; want %s", first, second, got, refusals[first])
			}
			if first == budgetSpent || second == budgetSpent {
				continue // a submit spends nothing
			}
			if got := c.submit(t); !strings.HasPrefix(got, refusals[first]) {
				t.Errorf("a submit that fails the checks %d and %d: %s; want %s", first, second, got, refusals[first])
			}
		}
	}
}

// A tool's rate limit allows a burst and then a steady rate. A refused caller is told when to
// retry.
func TestRateLimit(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		c := tool.Capability{Name: "x", Limits: tool.Limits{RatePerMin: 6}}
		publish := func() {
			made, err := tool.NewRaw(c, echo)
			if err == nil {
				err = f.cfg.Tools.Replace("source", []*tool.Tool{made})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		publish()
		count := func() (accepted int, refused *arcp.Error) {
			f.submit("x", "{}")
			for _, fr := range f.frames("sess_1") {
				if fr.Type == arcp.JobCompleted {
					accepted++
				} else if fr.Type == arcp.JobFailed {
					e, _ := arcp.DecodePayload[arcp.Error](&fr.Envelope)
					refused = &e
				}
			}
			return accepted, refused
		}
		for i := range 6 {
			if n, err := count(); n != 1 {
				t.Fatalf("call %d of a minute's: %v", i, err)
			}
		}
		if _, err := count(); err == nil || err.Code != arcp.CodeResourceExhausted ||
			string(err.Details) != `{"retry_after_seconds":10}` || !err.Retryable {
			t.Fatalf("one too many: %v %s", err, err.Details)
		}
		publish() // the source lists it anew
		if _, err := count(); err == nil {
			t.Fatal("call of a tool that is listed anew = nil, want RESOURCE_EXHAUSTED")
		}
		time.Sleep(10 * time.Second)
		if n, err := count(); n != 1 {
			t.Fatalf("when it was told to: %v", err)
		}
		c.Limits.RatePerMin = 60
		publish()
		if _, err := count(); string(err.Details) != `{"retry_after_seconds":1}` {
			t.Fatalf("with a higher limit: %v %s", err, err.Details)
		}
		time.Sleep(time.Second)
		if n, err := count(); n != 1 {
			t.Fatalf("with a higher limit: %v", err)
		}
		for i := range 3 * minSweep { // names that are called once
			c.Name = fmt.Sprintf("y%d", i)
			publish()
			f.submit(c.Name, "{}")
			time.Sleep(time.Minute)
		}
		f.frames("sess_1")
		if n := len(f.e.rates.limiters); n > minSweep {
			t.Errorf("%d tools are remembered that nobody calls, want at most %d", n, minSweep)
		}
	})
}

// A call that satisfies the rule is approved automatically; any other call asks a question.
func TestApprovalByRule(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		rule := tool.ApprovalAuto(`args.amount <= 100 && "client" in roles && principal == "alice" && lease["tool.call"][0] == "x"`)
		f.tool("pay", func(c *tool.Capability) { c.Approval, c.Recovery = rule, tool.RecoveryRerun }, echo)
		pay := func(args string, change func(q *request)) {
			q := f.request("sess_1", "pay", args)
			q.Roles, q.payload.LeaseRequest = []string{"client"}, arcp.Raw(`{"tool.call":["x"]}`)
			change(q)
			f.send(q)
		}
		pay(`{"amount":100}`, func(*request) {})
		f.want("the rule says yes", "job.accepted", "job.started", "job.completed")
		for why, change := range map[string]func(q *request){
			"too much":            func(q *request) { q.payload.Arguments = arcp.Raw(`{"amount":101}`) },
			"no amount":           func(q *request) { q.payload.Arguments = arcp.Raw(`{}`) },
			"roles not known":     func(q *request) { q.Roles = nil },
			"no lease":            func(q *request) { q.payload.LeaseRequest = nil },
			"more than a float64": func(q *request) { q.payload.Arguments = arcp.Raw(`{"amount":1e-999}`) },
		} {
			pay(`{"amount":1}`, change)
			f.frames("sess_1")
			if _, err := f.respond(fq.only(t), person("sess_2"), approval.Answer{Resolution: approval.Approve}); err != nil {
				t.Fatalf("%s: nobody is asked: %v", why, err)
			}
			if frames := f.frames("sess_1"); len(frames) != 1 || frames[0].Type != arcp.JobCompleted {
				t.Errorf("%s: approved, and yet %v", why, frames)
			}
		}
		f.expectNoState("all have ended")
	})
}

// The rule knows the roles also when another process has accepted the job.
func TestRuleAfterARestart(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("pay", func(c *tool.Capability) {
			c.Approval, c.Recovery, c.Limits.Concurrency = tool.ApprovalAuto(`"client" in roles`), tool.RecoveryRerun, 1
		}, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if j.Attempt() == 1 && string(args) == "{}" {
				return wait(ctx, j, args)
			}
			return args, nil
		})
		q := f.request("sess_1", "pay", "{}")
		q.Roles = []string{"client"}
		f.send(q)
		f.want("it runs", "job.accepted", "job.started")
		f.restart(1)
		f.want("and runs again, and nobody is asked", "job.started", "job.completed")
	})
}

// withHooks configures an engine with hooks.
func withHooks(hooks ...tool.Hook) func(*Config) {
	return func(c *Config) {
		cat := catalog.New(c.Tools, hooks)
		c.Catalog = func(_ arcp.SessionID, _ string, trust arcp.TrustLevel) *catalog.Snapshot {
			return cat.Snapshot(catalog.Viewer{Trust: trust}, nil)
		}
	}
}

func TestHooksOfCalls(t *testing.T) {
	var ran []string
	guard := tool.Hook{Name: "guard", Before: func(_ context.Context, c *tool.HookCall) (tool.HookDecision, error) {
		if c.Tool.Name != "x" {
			return tool.HookDecision{}, nil
		}
		switch string(c.Arguments) {
		case `{"a":1}`:
			return tool.HookDecision{Arguments: arcp.Raw(`{"a":2}`)}, nil
		case `{"a":"deny"}`:
			return tool.HookDecision{Deny: true, Reason: "no"}, nil
		case `{"a":"abort"}`:
			return tool.HookDecision{Abort: true, Reason: "enough"}, nil
		case `{"a":"panic"}`:
			panic("secret")
		}
		return tool.HookDecision{}, nil
	}}
	runEngine(t, withHooks(guard), func(f *fixture) {
		f.tool("x", nil, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
			ran = append(ran, string(args))
			return args, nil
		})
		var caught error
		f.tool("caller", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			_, caught = j.Call(ctx, tool.Call{Tool: "x", Arguments: args})
			if string(args) == `{"a":"abort"}` {
				<-ctx.Done()
			}
			return arcp.Raw("1"), nil
		})
		f.submit("x", `{"a":1}`)
		frames := f.want("other arguments", "job.accepted", "job.started", "job.completed")
		if got := string(frames[2].Payload); got != `{"value":{"a":2}}` || !slices.Equal(ran, []string{`{"a":2}`}) {
			t.Errorf("the tool was called with %v, the result is %s", ran, got)
		}
		f.submit("x", `{"a":"deny"}`)
		f.want("denied", "job.accepted", "job.started", "job.failed msg_2 PERMISSION_DENIED")
		f.submit("x", `{"a":"panic"}`)
		f.want("a hook that panics", "job.accepted", "job.started", "job.failed msg_3 PERMISSION_DENIED")
		f.submit("x", `{"a":"abort"}`)
		f.want("ended", "job.accepted", "job.started", "job.failed msg_4 ABORTED")
		f.parent("caller", `{"a":"deny"}`)
		f.frames("sess_1")
		if e, ok := errors.AsType[*arcp.Error](caught); !ok || e.Code != arcp.CodePermissionDenied {
			t.Errorf("a call that is denied ends with %v; the job goes on", caught)
		}
		id := f.parent("caller", `{"a":"abort"}`)
		if got := f.outcome(id); got != "ABORTED: hook guard has ended the job: enough" {
			t.Errorf("the job whose call a hook has ended it for: %s", got)
		}
		if len(ran) != 1 {
			t.Errorf("calls that were refused were made: %v", ran)
		}
		f.expectNoState("")
	})
}

// records are the calls of a job, in pages of n.
func (f *fixture) records(id arcp.JobID, n int) (list []CallRecord) {
	f.Helper()
	after := ""
	for more := true; more; {
		more = false
		j := f.row(id)
		got := 0
		err := f.e.Calls(context.Background(), &j, after, func(place string, c CallRecord) bool {
			if got == n {
				more = true
				return false
			}
			got++
			list, after = append(list, c), place
			return true
		})
		if err != nil {
			f.Fatal(err)
		}
	}
	return list
}

func recordLines(list []CallRecord) (lines []string) {
	for _, c := range list {
		line := fmt.Sprintf("%s %d %s %s %dms", c.Name, c.Attempt, c.SideEffect, c.Status, c.DurationMS)
		if c.Error != nil {
			line += " " + string(c.Error.Code)
		}
		lines = append(lines, line)
	}
	return lines
}

// The call records of a job are its attempts, its children, and its refused calls.
func TestCallRecords(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("leaf", withoutSideEffect, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
			time.Sleep(30 * time.Millisecond)
			return args, nil
		})
		f.tool("slow", func(c *tool.Capability) { c.Limits.Timeout = time.Second }, wait)
		f.tool("other", nil, echo)
		f.tool("caller", func(c *tool.Capability) {
			c.SideEffect, c.Retry = tool.SideEffectNetwork, tool.Retry{MaxAttempts: 2, InitialMS: 1000}
		}, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if j.Attempt() == 1 {
				return nil, arcp.Errorf(arcp.CodeUnavailable, "later")
			}
			for _, name := range []string{"leaf", "slow", "nobody", "other"} {
				_, _ = j.Call(ctx, tool.Call{Tool: name, Arguments: args})
			}
			return arcp.Raw(`{"b":1,"a":1.0}`), nil
		})
		q := f.request("sess_1", "caller", `{ "n" : 1.0 }`)
		q.payload.LeaseRequest = arcp.Raw(`{"tool.call":["leaf","slow","nobody"]}`)
		id := f.send(q)
		if got := f.outcome(id); got != "ok" {
			t.Fatal(got)
		}
		job := f.jobs("caller")[0]
		want := []string{
			"caller@1.0.0 1 network error 0ms UNAVAILABLE",
			"caller@1.0.0 2 network ok 1030ms",
			"leaf@1.0.0 1 none ok 30ms",
			"slow@1.0.0 1 external_system timeout 1000ms DEADLINE_EXCEEDED",
			"nobody 2  error 0ms AGENT_NOT_AVAILABLE",
			"other 2 external_system denied 0ms PERMISSION_DENIED",
		}
		for _, page := range []int{1, 2, 100} {
			if got := recordLines(f.records(job.ID, page)); !slices.Equal(got, want) {
				t.Errorf("in pages of %d:\n\t%s\nwant\n\t%s", page, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
		}
		list := f.records(job.ID, 100)
		for i, c := range list {
			if c.Request != digest.Of(arcp.Raw(`{"n":1.0}`)) {
				t.Errorf("record %d: the request's digest is %s", i, c.Request)
			}
		}
		if list[1].Response != digest.Of(arcp.Raw(`{"a":1.0,"b":1}`)) || list[2].Response != list[2].Request || list[3].Response != "" {
			t.Errorf("the digests of the responses: %q", []string{list[1].Response, list[2].Response, list[3].Response})
		}
		f.restart(0)
		if got := recordLines(f.records(job.ID, 100)); !slices.Equal(got, want) {
			t.Errorf("after a restart:\n\t%s", strings.Join(got, "\n\t"))
		}
		if err := f.delete(job.ID); err != nil {
			t.Fatal(err)
		}
		left := 0
		err := f.st.Records(context.Background(), store.JobRecordPrefix(job.ID), "", func(store.Record) bool {
			left++
			return true
		})
		if err != nil || left > 0 {
			t.Errorf("%d records are left of a job that was deleted, %v", left, err)
		}
	})
}

// jobs are the rows of a tool's jobs.
func (f *fixture) jobs(name string) (rows []store.Job) {
	f.Helper()
	err := f.st.Jobs(context.Background(), store.JobQuery{Principal: "alice"}, func(j store.Job) bool {
		if strings.HasPrefix(j.Agent, name+"@") {
			rows = append(rows, j)
		}
		return true
	})
	if err != nil {
		f.Fatal(err)
	}
	return rows
}

// A call waiting for approval already has a record, with the arguments as changed by hooks.
func TestCallRecordsOfGatesAndHooks(t *testing.T) {
	fq := newQuestions(person("sess_1"), person("sess_2"))
	swap := tool.Hook{Name: "swap", Before: func(_ context.Context, c *tool.HookCall) (tool.HookDecision, error) {
		return tool.HookDecision{Arguments: arcp.Raw(`{"n":2}`)}, nil
	}}
	runEngine(t, func(c *Config) { c.Questions = fq; withHooks(swap)(c) }, func(f *fixture) {
		f.session("sess_2")
		f.tool("danger", func(c *tool.Capability) { c.Approval = tool.ApprovalManual }, echo)
		f.submit("danger", `{"n":1}`)
		q := fq.only(t)
		if !strings.Contains(string(q.Details), `{"n":2}`) {
			t.Errorf("who approves is shown %s, not what the tool will be called with", q.Details)
		}
		time.Sleep(time.Minute)
		got := f.records(q.Job, 9)
		if lines := recordLines(got); !slices.Equal(lines, []string{"danger@1.0.0 1 external_system approval_pending 60000ms"}) ||
			got[0].Request != digest.Of(arcp.Raw(`{"n":2}`)) {
			t.Errorf("while it waits: %v", got)
		}
		if _, err := f.respond(q, person("sess_2"), approval.Answer{Resolution: approval.Deny}); err != nil {
			t.Fatal(err)
		}
		f.frames("sess_1")
		got = f.records(q.Job, 9)
		if lines := recordLines(got); !slices.Equal(lines, []string{"danger@1.0.0 1 external_system denied 60000ms PERMISSION_DENIED"}) ||
			got[0].Request != digest.Of(arcp.Raw(`{"n":2}`)) {
			t.Errorf("denied: %v", got)
		}
		f.expectNoState("")
	})
}

// A tool that calls in vain without end fills nothing.
func TestRefusedCallRecordsAreBounded(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("caller", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for i := range 3 * maxNotes {
				_, _ = j.Call(ctx, tool.Call{Tool: "nobody", Arguments: arcp.Raw(fmt.Sprint(i))})
			}
			return nil, nil
		})
		f.submit("caller", "{}")
		f.frames("sess_1")
		job := f.jobs("caller")[0].ID
		if got := len(f.records(job, 100)); got != 1+maxNotes {
			t.Errorf("%d records, want the attempt and %d refused calls", got, maxNotes)
		}
	})
}

// A job's own calls use the catalog of the job's submission: a hidden or a later tool is not
// available to them.
func TestCallsUseTheJobsCatalog(t *testing.T) {
	var overlay *catalog.Overlay
	runEngine(t, func(c *Config) {
		cat := catalog.New(c.Tools, nil)
		c.Catalog = func(_ arcp.SessionID, _ string, trust arcp.TrustLevel) *catalog.Snapshot {
			return cat.Snapshot(catalog.Viewer{Trust: trust}, overlay)
		}
	}, func(f *fixture) {
		f.tool("secret", nil, echo)
		f.tool("leaf", nil, echo)
		var got []string
		gate := make(chan struct{})
		f.tool("caller", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			<-gate
			for _, ref := range []string{"secret", "secret@1.0.0", "secret@2", "leaf", "late"} {
				_, err := j.Call(ctx, tool.Call{Tool: ref, Delegate: ref == "secret"})
				e, _ := errors.AsType[*arcp.Error](err)
				if e == nil {
					got = append(got, ref+": ok")
				} else {
					got = append(got, ref+": "+string(e.Code))
				}
			}
			return nil, nil
		})
		var err *arcp.Error
		overlay, err = catalog.ParseOverlay(catalog.Overlay{IncludeBase: true, Hide: []string{"secret"}, Tools: []string{"secret"}})
		if err != nil {
			t.Fatal(err)
		}
		f.parent("caller", "{}")
		synctest.Wait()
		f.submit("secret", "{}")
		f.want("hidden from clients, too", "job.accepted", "job.started", "job.failed msg_2 AGENT_NOT_AVAILABLE")
		overlay = nil // the session's overlay does not affect the job
		f.tool("late", nil, echo)
		close(gate)
		f.frames("sess_1")
		want := []string{"secret: AGENT_NOT_AVAILABLE", "secret@1.0.0: AGENT_NOT_AVAILABLE",
			"secret@2: AGENT_NOT_AVAILABLE", "leaf: ok", "late: AGENT_NOT_AVAILABLE"}
		if !slices.Equal(got, want) {
			t.Errorf("the job calls: %q, want %q", got, want)
		}
	})
}
