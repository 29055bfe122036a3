package proxy

import (
	"github.com/arcpd/arcpd/arcp"
)

// traceFaults are defects of traces.
var traceFaults = []Fault{
	{Defect: "the spans of a job are missing and later events are renumbered to hide it", Checks: []string{"traces.spans", "traces.worker"}, House: true,
		newRewriter: dropEvents(isType(arcp.TraceSpan))},
	{Defect: "the spans of a job have the trace of another", Checks: []string{"traces.spans", "traces.any-trace"}, House: true,
		newRewriter: editReceived(arcp.TraceSpan, func(f frame) frame {
			return f.withPayload("trace_id", "0af7651916cd43dd8448eb211c80319c")
		})},
	{Defect: "the spans of a job have no parent", Checks: []string{"traces.spans", "traces.worker"}, House: true,
		newRewriter: editReceived(arcp.TraceSpan, func(f frame) frame { return f.withPayload("parent_span_id", nil) })},
	{Defect: "the error of a span is lost", Checks: []string{"traces.spans"}, House: true,
		newRewriter: editReceived(arcp.TraceSpan, func(f frame) frame { return f.withPayload("attributes", nil) })},
	{Defect: "the span of a submit is not the parent of its job", Checks: []string{"traces.spans", "traces.children"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.with("parent_span_id", nil) })},
	{Defect: "followers of a job are not sent its spans", Checks: []string{"traces.followers"}, House: true,
		newRewriter: dropEvents(func(f frame) bool { return f.Type == arcp.TraceSpan && len(f.Extensions) > 0 })},
	{Defect: "a worker is not told the span of its job", Checks: []string{"traces.worker"}, House: true,
		newRewriter: editReceived(arcp.ToolInvoke, func(f frame) frame { return f.with("span_id", nil) })},
	{Defect: "the metrics of the runtime are sent to sessions that did not negotiate them", Checks: []string{"traces.metrics-not-negotiated"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			return f.withPayload("capabilities", map[string]bool{"metrics": true})
		})},
	{Defect: "the metrics of the runtime are missing and later events are renumbered to hide it", Checks: []string{"traces.metrics"}, House: true,
		newRewriter: dropEvents(isType(arcp.Metric))},
	{Defect: "a failed job is not counted", Checks: []string{"traces.metrics"}, House: true,
		newRewriter: dropEvents(func(f frame) bool {
			p, _ := arcp.DecodePayload[arcp.MetricPayload](&f.Envelope) // the zero value of another payload has no name
			return p.Name == "errors.total"
		})},
}
