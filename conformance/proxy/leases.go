package proxy

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// leaseFaults are defects of job leases.
var leaseFaults = []Fault{
	{Defect: "the lease of a job is not checked", Checks: []string{"leases.denied", "leases.none", "leases.paths-tricks", "leases.urls-tricks", "leases.names-tricks"},
		newRewriter: completeFailed(arcp.CodePermissionDenied)},
	{Defect: "the lease of a job permits nothing", Checks: []string{"leases.paths", "leases.urls", "leases.names", "leases.spellings"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("lease_request", struct{}{}) })},
	{Defect: "a path pattern also matches longer names with the same prefix", Checks: []string{"leases.paths-tricks"}, House: true,
		newRewriter: replaceSent(`["/w/**"]`, `["/w*/**"]`)},
	{Defect: "hosts are compared with regard to case", Checks: []string{"leases.urls"}, House: true,
		newRewriter: replaceSent(`API.Example.COM`, `api-example.com`)},
	{Defect: "a star in a host pattern matches several labels", Checks: []string{"leases.urls-tricks"}, House: true,
		newRewriter: replaceSent(`["https://*.example.com/**"]`, `["https://**.example.com/**"]`)},
	{Defect: "fs.read also permits writing", Checks: []string{"leases.members-apart"}, House: true,
		newRewriter: replaceSent(`"namespace":"fs.write"`, `"namespace":"fs.read"`)},
	{Defect: "job.accepted has the lease in one spelling only", Checks: []string{"leases.accepted", "leases.spellings"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame {
			return f.editObject("lease", func(o map[string]json.RawMessage) {
				for name := range o {
					if strings.Contains(name, "_") && name != "expires_at" {
						delete(o, name)
					}
				}
			})
		})},
	{Defect: "filesystem.read is not accepted as a spelling of fs.read", Checks: []string{"leases.spellings"}, House: true,
		newRewriter: replaceSent(`"filesystem.read"`, `"filesystem-read"`)},
	{Defect: "contradicting spellings in a lease request are accepted", Checks: []string{"leases.spellings-differ"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame {
			return f.editObject("lease_request", func(o map[string]json.RawMessage) { delete(o, "fs_read") })
		})},
	{Defect: "job.accepted has no lease_constraints", Checks: []string{"leases.accepted", "leases.expires-alone"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("lease_constraints", nil) })},
	{Defect: "lease_constraints in a submit are ignored", Checks: []string{"leases.expires-earlier", "leases.expires-past", "leases.expired"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("lease_constraints", nil) })},
	{Defect: "a malformed lease request is treated as absent", Checks: []string{"leases.malformed", "leases.patterns-refused", "leases.invisible-refusal"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("lease_request", nil) })},
	{Defect: "use of an expired lease is PERMISSION_DENIED", Checks: []string{"leases.expired"}, House: true,
		newRewriter: replaceCode(arcp.CodeLeaseExpired, arcp.CodePermissionDenied)},
	{Defect: "retryable is true for a denied permission", Checks: []string{"leases.denied"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", true) })},
	{Defect: "model.use in a lease is not checked", Checks: []string{"leases.model", "leases.model-none"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame {
			return f.editObject("lease_request", func(o map[string]json.RawMessage) { delete(o, "model.use") })
		})},
	{Defect: "session.jobs omits the lease of each job", Checks: []string{"leases.shown"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame { return parse(bytes.ReplaceAll(f.text, []byte(`"lease":`), []byte(`"hidden":`))) })},
	{Defect: "job.subscribed omits the lease of the job", Checks: []string{"leases.shown"}, House: true,
		newRewriter: editReceived(arcp.JobSubscribed, func(f frame) frame { return f.withPayload("lease", struct{}{}) })},
}

// budgetFaults are defects of job budgets.
var budgetFaults = []Fault{
	{Defect: "job.accepted has no budget", Checks: []string{"budgets.accepted", "leases.accepted"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("budget", nil) })},
	{Defect: "budget amounts are rounded to floating point", Checks: []string{"budgets.accepted"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, frame.roundNumbers)},
	{Defect: "budget amounts are strings", Checks: []string{"budgets.accepted"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame {
			return f.editObject("budget", func(o map[string]json.RawMessage) {
				for currency, amount := range o {
					o[currency] = encode(string(amount))
				}
			})
		})},
	{Defect: "the metric cost.budget.remaining is not sent", Checks: []string{"budgets.exact", "budgets.thinned"}, House: true,
		newRewriter: dropEvents(isMetric("cost.budget.remaining"))},
	{Defect: "the cost metric is not sent", Checks: []string{"budgets.exact", "budgets.none"}, House: true,
		newRewriter: dropEvents(isMetric("cost.demo"))},
	{Defect: "cost.budget.remaining is sent before its cost metric", Checks: []string{"budgets.exact"}, House: true,
		newRewriter: swap(isMetric("cost.demo"), isMetric("cost.budget.remaining"), true)},
	{Defect: "an overspent budget is reported as 0", Checks: []string{"budgets.overspent"}, House: true,
		newRewriter: editReceived(arcp.Metric, func(f frame) frame { return f.replace(`"value":-0.20`, `"value":0`) })},
	{Defect: "an exhausted budget is not enforced", Checks: []string{"budgets.exhausted", "budgets.zero", "budgets.any-currency"},
		newRewriter: completeFailed(arcp.CodeBudgetExhausted)},
	{Defect: "retryable is true for an exhausted budget", Checks: []string{"budgets.exhausted"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", f.code() == arcp.CodeBudgetExhausted) })},
	{Defect: "a cost in another currency counts against the budget", Checks: []string{"budgets.other-currency"}, House: true,
		newRewriter: replaceSent(`"currency":"EUR"`, `"currency":"USD"`)},
	{Defect: "an exhausted budget is reported before a missing permission", Checks: []string{"budgets.denied-first"}, House: true,
		newRewriter: replaceCode(arcp.CodePermissionDenied, arcp.CodeBudgetExhausted)},
	{Defect: "cost_budget beside lease_request is ignored", Checks: []string{"budgets.beside"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("cost_budget", nil) })},
}

func isMetric(name string) func(frame) bool {
	return func(f frame) bool { return f.Type == arcp.Metric && f.stringMember("name") == name }
}
