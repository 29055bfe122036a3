package demo

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

// call calls a demo tool as a client would.
func call(t *testing.T, job *tooltest.Job, ref, args string) (string, *arcp.Error) {
	t.Helper()
	out, err := job.Run(t.Context(), demo(t, ref), arcp.Raw(args))
	return string(out), err
}

func TestSpendIsExact(t *testing.T) {
	for _, c := range []struct {
		amount string
		times  int
		cost   arcp.Number // of each metric
		spent  string
	}{
		{`"0.10"`, 3, "0.10", "0.30"},
		{`0.1`, 3, "0.1", "0.3"},
		{`"0.1"`, 10000, "0.1", "1000.0"},
		{`"007.50"`, 2, "7.50", "15.00"},
		{`2`, 4, "2", "8"},
		{`1.5e-3`, 3, "0.0015", "0.0045"},
		{`1.25e1`, 2, "12.5", "25.0"},
		{`1E2`, 2, "100", "200"},
		{`0`, 2, "0", "0"},
		{`-0`, 2, "0", "0"},
		{`"0.000000000000000000000000000001"`, 3, "0.000000000000000000000000000001", "0.000000000000000000000000000003"},
		{`123456789012345678901234567890.12`, 10, "123456789012345678901234567890.12", "1234567890123456789012345678901.20"},
		{`"5"`, 0, "", "0"},
	} {
		job := newJob()
		got, err := call(t, job, "demo.spend", fmt.Sprintf(`{"currency":"USD","amount":%s,"times":%d}`, c.amount, c.times))
		if want := fmt.Sprintf(`{"spent":%q,"currency":"USD","times":%d}`, c.spent, c.times); err != nil || got != want {
			t.Errorf("%s × %d = %s, %v, want %s", c.amount, c.times, got, err, want)
		}
		r := job.Record()
		if len(r.Metrics) != c.times || len(r.Checks) != c.times {
			t.Errorf("%s: %d costs after %d authority checks, want %d", c.amount, len(r.Metrics), len(r.Checks), c.times)
		}
		for i, m := range r.Metrics {
			if m.Name != "cost.demo" || m.Unit != "USD" || m.Value != c.cost || r.Checks[i] != (tooltest.Check{Namespace: "tool.call", Target: "demo.spend"}) {
				t.Fatalf("%s: asked for %q and reported %+v, want %s", c.amount, r.Checks[i], m, c.cost)
			}
		}
	}
}

// An operation fails after the budget is used up, and its amount is not spent.
func TestSpendStopsWhenBudgetIsExhausted(t *testing.T) {
	job := tooltest.New(tooltest.Script{Budget: map[string]arcp.Number{"USD": "2"}})
	if out, err := call(t, job, "demo.spend", `{"currency":"USD","amount":1,"times":5}`); err == nil || err.Code != arcp.CodeBudgetExhausted || out != "" {
		t.Errorf("%s, %v, want BUDGET_EXHAUSTED", out, err)
	}
	if r := job.Record(); len(r.Metrics) != 2 || len(r.Checks) != 3 {
		t.Errorf("%d costs after %d authority checks, want 2 and 3", len(r.Metrics), len(r.Checks))
	}
}

func TestToolChecksTheAuthorityItNeeds(t *testing.T) {
	denied := tooltest.Script{Allow: func(string, string) error { return arcp.Errorf(arcp.CodePermissionDenied, "not covered") }}
	for _, c := range []struct {
		tool, args string
		check      tooltest.Check
		want       string
	}{
		{"demo.model", `{"model":"claude-x"}`, tooltest.Check{Namespace: "model.use", Target: "claude-x"}, `{"model":"claude-x","allowed":true}`},
		{"demo.access", `{"namespace":"fs.read","target":"/a/b"}`, tooltest.Check{Namespace: "fs.read", Target: "/a/b"}, `{"allowed":true}`},
		{"demo.access", `{"namespace":"com.example.own","target":"x"}`, tooltest.Check{Namespace: "com.example.own", Target: "x"}, `{"allowed":true}`},
	} {
		job := newJob()
		got, err := call(t, job, c.tool, c.args)
		if checks := job.Record().Checks; err != nil || got != c.want || len(checks) != 1 || checks[0] != c.check {
			t.Errorf("%s %s = %s, %v after %q, want %s after %q", c.tool, c.args, got, err, checks, c.want, c.check)
		}
		if got, err := call(t, tooltest.New(denied), c.tool, c.args); err == nil || err.Code != arcp.CodePermissionDenied || got != "" {
			t.Errorf("%s %s denied = %s, %v", c.tool, c.args, got, err)
		}
	}
}

func TestPermitHoldsWhatWasGranted(t *testing.T) {
	const args = `{"permission":"order.refund","resource":"order:*","operation":"refund","lease_seconds":600,"hold_ms":60000,"reason":"asked for","expires_in_ms":5000}`
	grant := tool.PermissionLease{ID: "lease_1", Permission: "order.refund", Resource: "order:7", Operation: "refund",
		ExpiresAt: time.Date(2026, 5, 9, 15, 0, 0, 0, time.FixedZone("", 7200))}
	revoked, denied := arcp.Errorf(arcp.CodeLeaseRevoked, "revoked"), arcp.Errorf(arcp.CodePermissionDenied, "no")
	permits := func(err error) func(tool.PermissionRequest) (tool.PermissionLease, error) {
		return func(tool.PermissionRequest) (tool.PermissionLease, error) { return grant, err }
	}
	for _, c := range []struct {
		why    string
		script tooltest.Script
		code   arcp.Code
		took   time.Duration
	}{
		{"granted", tooltest.Script{Permit: permits(nil)}, "", time.Minute},
		{"revoked meanwhile", tooltest.Script{Permit: permits(nil), Permitted: func(string, string, string) error { return revoked }}, arcp.CodeLeaseRevoked, time.Minute},
		{"denied", tooltest.Script{Permit: permits(denied)}, arcp.CodePermissionDenied, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			job, start := tooltest.New(c.script), time.Now()
			got, err := call(t, job, "demo.permit", args)
			const want = `{"lease_id":"lease_1","permission":"order.refund","resource":"order:7","operation":"refund","expires_at":"2026-05-09T13:00:00.000000Z"}`
			if c.code == "" && (err != nil || got != want) || c.code != "" && (err == nil || err.Code != c.code) {
				t.Errorf("%s: result = %s, %v, want %s or the code %q", c.why, got, err, want, c.code)
			}
			asked := tool.PermissionRequest{Permission: "order.refund", Resource: "order:*", Operation: "refund", Reason: "asked for",
				For: 10 * time.Minute, Expires: 5 * time.Second}
			if diff := cmp.Diff([]any{asked}, job.Record().Questions); diff != "" {
				t.Errorf("%s: asked for (-want +got):\n%s", c.why, diff)
			}
			if took := time.Since(start); took != c.took {
				t.Errorf("%s: took %v, want %v", c.why, took, c.took)
			}
			if c.took > 0 && !slices.Equal(job.Record().Checks, []tooltest.Check{{Namespace: "order.refund", Target: "order:7", Operation: "refund"}}) {
				t.Errorf("%s: looked at %q afterwards, want what was granted", c.why, job.Record().Checks)
			}
		})
	}
}

func TestQuestionsReturnTheAnswer(t *testing.T) {
	schema := arcp.Raw(`{"type":"integer"}`)
	for _, c := range []struct {
		tool, args string
		asks       any
		answer     tool.Answer
		want       string
	}{
		{"demo.ask", `{"prompt":"how many?"}`, tool.InputRequest{Prompt: "how many?"},
			tool.Answer{Value: arcp.Raw(`[1, 2]`), ResolvedBy: "alice"}, `{"value":[1,2],"responded_by":"alice"}`},
		{"demo.ask", `{"prompt":"how many?","response_schema":{"type":"integer"},"default":7,"expires_in_ms":1000}`,
			tool.InputRequest{Prompt: "how many?", Schema: schema, Default: arcp.Raw("7"), Expires: time.Second},
			tool.Answer{Value: arcp.Raw(`7`), RespondedBy: "default", ResolvedBy: "default"}, `{"value":7,"responded_by":"default"}`},
		{"demo.ask", `{"prompt":"?","default":null}`, tool.InputRequest{Prompt: "?", Default: arcp.Raw("null")},
			tool.Answer{Value: arcp.Raw(`null`), ResolvedBy: "alice"}, `{"value":null,"responded_by":"alice"}`},
		{"demo.choose", `{"prompt":"which?","options":[{"id":"a","label":"A"},{"id":"b","label":""}],"expires_in_ms":3600000}`,
			tool.ChoiceRequest{Prompt: "which?", Options: []arcp.Option{{ID: "a", Label: "A"}, {ID: "b"}}, Expires: time.Hour},
			tool.Answer{ChoiceID: "b", RespondedBy: "the phone", ResolvedBy: "alice"}, `{"choice_id":"b","responded_by":"the phone"}`},
	} {
		answers := func(err error) *tooltest.Job {
			return tooltest.New(tooltest.Script{
				Ask:    func(tool.InputRequest) (tool.Answer, error) { return c.answer, err },
				Choose: func(tool.ChoiceRequest) (tool.Answer, error) { return c.answer, err },
			})
		}
		job := answers(nil)
		got, err := call(t, job, c.tool, c.args)
		if diff := cmp.Diff([]any{c.asks}, job.Record().Questions); err != nil || got != c.want || diff != "" {
			t.Errorf("%s %s = %s, %v, want %s; asked (-want +got):\n%s", c.tool, c.args, got, err, c.want, diff)
		}
		late := answers(arcp.Errorf(arcp.CodeDeadlineExceeded, "nobody answered in time"))
		if got, err := call(t, late, c.tool, c.args); err == nil || err.Code != arcp.CodeDeadlineExceeded || got != "" {
			t.Errorf("%s %s, unanswered: %s, %v", c.tool, c.args, got, err)
		}
	}
}

// The outcome of a delegation is the outcome of the child.
func TestDelegateReturnsTheOutcome(t *testing.T) {
	const args = `{"tool":"other@1.0.0","arguments":{"a":[1]},"lease_request":{"fs.read":["/a"]}}`
	calls := func(err error) *tooltest.Job {
		return tooltest.New(tooltest.Script{Call: func(context.Context, tool.Call) (arcp.Raw, error) { return arcp.Raw(`{"b":2}`), err }})
	}
	job := calls(nil)
	if got, err := call(t, job, "demo.delegate", args); err != nil || got != `{"b":2}` {
		t.Errorf(`demo.delegate = %s, %v, want the result {"b":2} of the child`, got, err)
	}
	want := []tool.Call{{Tool: "other@1.0.0", Arguments: arcp.Raw(`{"a":[1]}`), Lease: arcp.Raw(`{"fs.read":["/a"]}`), Delegate: true}}
	if diff := cmp.Diff(want, job.Record().Calls); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
	if _, err := call(t, calls(arcp.Errorf(arcp.CodeAborted, "enough")), "demo.delegate", args); err == nil || err.Code != arcp.CodeAborted {
		t.Errorf("%v, want ABORTED", err)
	}
}
