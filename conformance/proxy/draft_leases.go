package proxy

import (
	"encoding/json"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// draftLeaseFaults are defects of leases.
var draftLeaseFaults = []Fault{
	{Defect: "job.accepted has no lease", Checks: []string{"draft.leases.accepted"},
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("lease", struct{}{}) })},
	{Defect: "job.accepted has a lease that was not granted", Checks: []string{"draft.leases.accepted", "draft.leases.none"},
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("lease", map[string][]string{"fs.read": {"/**"}}) })},
	{Defect: "every job has constraints", Checks: []string{"draft.leases.unconstrained"},
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame {
			return f.withPayload("lease_constraints", map[string]string{"expires_at": "2099-01-01T00:00:00Z"})
		})},
	{Defect: "a job may do what its lease does not cover", Checks: []string{"draft.leases.none", "draft.leases.star", "draft.leases.anchored", "draft.leases.dots",
		"draft.leases.model", "draft.leases.capabilities", "draft.leases.question", "draft.leases.delegate"},
		newRewriter: completeDraft(arcp.CodePermissionDenied, `{"allowed":true}`)},
	{Defect: "lease_request is ignored", Checks: []string{"draft.leases.star", "draft.leases.anchored", "draft.leases.dots", "draft.leases.model", "draft.leases.expires-inside",
		"draft.leases.malformed", "draft.budgets.exhausted", "draft.budgets.malformed"},
		newRewriter: withoutOption("lease_request")},
	{Defect: "a question mark in a pattern covers any character", Checks: []string{"draft.leases.question"}, House: true, newRewriter: replaceSent(`["/a/b?"]`, `["/a/b*"]`)},
	{Defect: "lease_constraints are ignored", Checks: []string{"draft.leases.expires-past", "draft.leases.expires-malformed", "draft.leases.expired",
		"draft.leases.expired-child"},
		newRewriter: withoutOption("lease_constraints")},
	{Defect: "a job may do what its lease allowed before it ended", Checks: []string{"draft.leases.expired", "draft.leases.expired-child"},
		newRewriter: completeDraft(arcp.CodeLeaseExpired, `{}`)},
	{Defect: "a job whose lease has ended fails with PERMISSION_DENIED", Checks: []string{"draft.leases.expired", "draft.leases.expired-child"},
		newRewriter: replaceDraftCode(arcp.CodeLeaseExpired, arcp.CodePermissionDenied)},
	{Defect: "a job goes on after LEASE_EXPIRED", Checks: []string{"draft.leases.expired", "draft.leases.expired-child"}, newRewriter: emitAfterFailure(arcp.CodeLeaseExpired)},
	{Defect: "a job whose lease has ended is listed as running", Checks: []string{"draft.leases.expired"},
		newRewriter: editEntries(func(e map[string]any) map[string]any {
			if e["status"] == "error" {
				e["status"] = "running"
			}
			return e
		})},
	{Defect: "an expires_at in a lease_request is lost", Checks: []string{"draft.leases.expires-inside"}, House: true,
		newRewriter: editLease(func(lease map[string]json.RawMessage) { delete(lease, "expires_at") })},
	{Defect: "a child with a wider lease fails with PERMISSION_DENIED", Checks: []string{"draft.leases.subset"}, House: true,
		newRewriter: replaceDraftCode(arcp.CodeLeaseSubsetViolation, arcp.CodePermissionDenied)},
	{Defect: "a child of a parent without lease_constraints needs some", Checks: []string{"draft.leases.unconstrained-child"},
		newRewriter: editReceived(script.JobResult, func(f frame) frame {
			return f.failed(f.JobID, f.EventSeq).withPayload("code", arcp.CodeLeaseSubsetViolation)
		})},
	{Defect: "a child may have a wider lease than its parent", Checks: []string{"draft.leases.subset"},
		newRewriter: completeDraft(arcp.CodeLeaseSubsetViolation, `{}`)},
}

// draftBudgetFaults are defects of budgets.
var draftBudgetFaults = []Fault{
	{Defect: "job.accepted does not tell the budget", Checks: []string{"draft.budgets.accepted", "draft.budgets.sum"},
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("budget", nil) })},
	{Defect: "the first amount of a currency counts alone", Checks: []string{"draft.budgets.sum", "draft.budgets.accepted"},
		newRewriter: editBudget(func(amounts []string) []string { return amounts[:1] })},
	{Defect: "cost.budget is ignored", Checks: []string{"draft.budgets.exhausted", "draft.budgets.remaining", "draft.budgets.malformed"},
		newRewriter: editLease(func(lease map[string]json.RawMessage) { delete(lease, "cost.budget") })},
	{Defect: "half of a budget is held back", Checks: []string{"draft.budgets.within", "draft.budgets.remaining"},
		newRewriter: replaceSent(`"USD:1.00"`, `"USD:0.50"`)},
	{Defect: "what is left of a budget is not told", Checks: []string{"draft.budgets.remaining", "draft.budgets.exact"},
		newRewriter: dropEvents(func(f frame) bool { return f.body()["name"] == "cost.budget.remaining" })},
	{Defect: "amounts are added as floating point", Checks: []string{"draft.budgets.exact", "draft.budgets.remaining"},
		newRewriter: editBody("metric", func(body map[string]any) {
			if body["name"] == "cost.budget.remaining" {
				body["value"] = body["value"].(float64) + 5.5e-17
			}
		})},
	{Defect: "a job without a budget has one", Checks: []string{"draft.budgets.unlimited"},
		newRewriter: editLease(func(lease map[string]json.RawMessage) {
			if lease["cost.budget"] == nil {
				lease["cost.budget"] = json.RawMessage(`["USD:1.00"]`)
			}
		})},
	{Defect: "a negative cost adds to a budget", Checks: []string{"draft.budgets.negative"},
		newRewriter: func() rewriter {
			return insertEvents(func(f frame) (frame, bool) {
				payload := map[string]any{"kind": "metric", "ts": past, "body": map[string]any{"name": "cost.budget.remaining", "value": 1.5, "unit": "USD"}}
				return f.withNewID().with("type", script.JobEvent).with("payload", payload), f.Type == script.JobEvent
			})
		}},
	{Defect: "a cost counts in every currency", Checks: []string{"draft.budgets.other-currency"},
		newRewriter: editBudget(func(amounts []string) []string {
			for i := range amounts {
				amounts[i] = strings.Replace(amounts[i], "EUR", "USD", 1)
			}
			return amounts
		})},
}

// draftQuestionFaults are defects of questions.
var draftQuestionFaults = []Fault{
	{Defect: "nobody learns that a job waits", Checks: []string{"draft.questions.input", "draft.questions.choice", "draft.questions.permission"}, House: true,
		newRewriter: dropEvents(func(f frame) bool { return hasPhase("waiting_for_input")(f) || hasPhase("waiting_for_permission")(f) })},
	{Defect: "the end of a question is not told", Checks: []string{"draft.questions.default", "draft.questions.unanswered"}, House: true,
		newRewriter: dropEvents(hasPhase("input_closed"))},
	{Defect: "a question that nobody answers is a success", Checks: []string{"draft.questions.unanswered", "draft.questions.choice"}, House: true,
		newRewriter: completeDraft("TIMEOUT", `{}`)},
	{Defect: "a permission that nobody grants is granted", Checks: []string{"draft.questions.permission"}, House: true,
		newRewriter: completeDraft(arcp.CodePermissionDenied, `{}`)},
	{Defect: "a job that waits is not listed", Checks: []string{"draft.questions.running"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame { return f.withPayload("jobs", []int{}) })},
	{Defect: "the cancel of a job that waits is ignored", Checks: []string{"draft.questions.cancel"}, House: true, Silent: true, newRewriter: dropSent(script.JobCancel)},
	{Defect: "the time of a job that waits goes on", Checks: []string{"draft.questions.time"}, House: true,
		newRewriter: editReceived(script.JobResult, func(f frame) frame { return f.failed(f.JobID, f.EventSeq).withPayload("code", "TIMEOUT") })},
}

// emitAfterFailure returns rewriters that send another event of each job after it has failed with the code.
func emitAfterFailure(code arcp.Code) func() rewriter {
	return func() rewriter {
		return insertEvents(func(f frame) (frame, bool) {
			payload := map[string]any{"kind": "metric", "ts": past, "body": map[string]any{"name": "cost.demo", "value": 1, "unit": "USD"}}
			return f.withNewID().with("type", script.JobEvent).with("payload", payload), f.ends() && f.code() == code
		})
	}
}

// editLease returns rewriters that edit the lease_request of each submit.
func editLease(edit func(lease map[string]json.RawMessage)) func() rewriter {
	return editSent(script.JobSubmit, func(f frame) frame { return f.editObject("lease_request", edit) })
}

// editBudget returns rewriters that edit the amounts of the budget of each submit.
func editBudget(edit func(amounts []string) []string) func() rewriter {
	return editLease(func(lease map[string]json.RawMessage) {
		var amounts []string
		if json.Unmarshal(lease["cost.budget"], &amounts) == nil && len(amounts) > 0 {
			lease["cost.budget"] = encode(edit(amounts))
		}
	})
}
