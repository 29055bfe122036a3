package proxy

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// draftSubmitFaults are defects of job.submit and its answer.
var draftSubmitFaults = []Fault{
	{Defect: "job.accepted does not name its submit", Checks: []string{"draft.submit.accepted"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("request_id", nil).withPayload("reply_to", nil) })},
	{Defect: "job.accepted follows the first event of its job", Checks: []string{"draft.submit.accepted-first"},
		newRewriter: swap(isType(arcp.JobAccepted), isType(script.JobEvent), false)},
	{Defect: "two submits are accepted in reverse order", Checks: []string{"draft.submit.order"}, House: true,
		newRewriter: swap(isType(arcp.JobAccepted), isType(arcp.JobAccepted), false)},
	{Defect: "a refusal follows the acceptance of a later submit", Checks: []string{"draft.submit.order-refusal"}, House: true,
		newRewriter: swap(isType(script.JobError), isType(arcp.JobAccepted), false)},
	{Defect: "the version in the name of an agent is ignored", Checks: []string{"draft.submit.version", "draft.submit.version-unknown"},
		newRewriter: editAgent(func(agent string) string { name, _, _ := strings.Cut(agent, "@"); return name })},
	{Defect: "a name without a version is an old version", Checks: []string{"draft.submit.default"},
		newRewriter: editAgent(func(agent string) string { return strings.Replace(agent+"@0.9.0", "@1.0.0@", "@", 1) })},
	{Defect: "job.accepted names a version that no inventory has", Checks: []string{"draft.submit.registered"},
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("agent", "demo.echo@77.0.0") })},
	{Defect: "the default agent does the work of an unknown agent", Checks: []string{"draft.submit.agent-unknown", "draft.submit.order-refusal"},
		newRewriter: editAgent(func(agent string) string { return strings.Replace(agent, "no.such.agent", "demo.echo", 1) })},
	{Defect: "an unknown agent is refused with INVALID_REQUEST", Checks: []string{"draft.submit.agent-unknown"},
		newRewriter: replaceDraftCode("AGENT_NOT_AVAILABLE", "INVALID_REQUEST")},
	{Defect: "an unknown version is refused as an unknown agent", Checks: []string{"draft.submit.version-unknown"},
		newRewriter: replaceDraftCode("AGENT_VERSION_NOT_AVAILABLE", "AGENT_NOT_AVAILABLE")},
	{Defect: "the default agent does the work of a submit that names none", Checks: []string{"draft.submit.agent-malformed"}, House: true,
		newRewriter: editSent(script.JobSubmit, func(f frame) frame {
			if f.stringMember("agent") == "" {
				f = f.withPayload("agent", "demo.echo")
			}
			return f
		})},
	{Defect: "an input that is no object is replaced by an empty object", Checks: []string{"draft.submit.input"}, House: true,
		newRewriter: editSent(script.JobSubmit, func(f frame) frame {
			if f.objectMember("input") == nil {
				f = f.withPayload("input", struct{}{})
			}
			return f
		})},
	{Defect: "numbers in an input are rounded to floating point", Checks: []string{"draft.submit.input-exact"}, House: true,
		newRewriter: editSent(script.JobSubmit, frame.roundNumbers)},
	{Defect: "an agent without an input gets an empty list", Checks: []string{"draft.submit.input-absent"}, House: true,
		newRewriter: editSent(script.JobSubmit, func(f frame) frame {
			if !f.has("input") {
				f = f.withPayload("input", []int{})
			}
			return f
		})},
	{Defect: "an input that the agent does not take is replaced by a valid one", Checks: []string{"draft.submit.input-invalid"}, House: true,
		newRewriter: editSent(script.JobSubmit, func(f frame) frame { return f.withPayload("input", map[string]int{"ms": 1}) })},
	{Defect: "a submit with unknown members is refused", Checks: []string{"draft.submit.unknown-members"}, House: true,
		newRewriter: refuseSubmits("INVALID_REQUEST", func(f frame) bool { return bytes.Contains(f.text, []byte("x-vendor.acme.more")) })},
	{Defect: "an option that is null is refused", Checks: []string{"draft.submit.nulls"}, House: true,
		newRewriter: refuseSubmits("INVALID_REQUEST", func(f frame) bool { return bytes.Contains(f.Payload, []byte(":null")) })},
	{Defect: "a submit that names a parent is accepted as its child", Checks: []string{"draft.submit.parent"}, House: true,
		newRewriter: func() rewriter {
			var parent string
			return rewriter{
				out: func(f frame) []frame {
					if f.Type == script.JobSubmit {
						parent = f.stringMember("parent_job_id")
					}
					return []frame{f}
				},
				in: func(f frame) []frame {
					if f.Type == arcp.JobAccepted && parent != "" {
						f = f.withPayload("parent_job_id", parent)
					}
					return []frame{f}
				},
			}
		}},
	{Defect: "the trace_id of a submit is replaced", Checks: []string{"draft.submit.trace"},
		newRewriter: editSent(script.JobSubmit, func(f frame) frame { return f.with("trace_id", "ffffffffffffffffffffffffffffffff") })},
	{Defect: "the events of a job have another trace_id than its acceptance", Checks: []string{"draft.submit.trace", "draft.submit.trace-made"},
		newRewriter: editEvents(func(f frame) frame { return f.with("trace_id", "ffffffffffffffffffffffffffffffff") })},
	{Defect: "all jobs have one trace_id", Checks: []string{"draft.submit.trace-made", "draft.submit.trace"},
		newRewriter: editSent(script.JobSubmit, func(f frame) frame { return f.with("trace_id", "ffffffffffffffffffffffffffffffff") })},
	{Defect: "a malformed trace_id is sent back", Checks: []string{"draft.submit.trace-malformed"}, House: true, newRewriter: repeatTrace},
}

// has reports whether the payload has the member name.
func (f frame) has(name string) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(f.Payload, &members) == nil && members[name] != nil
}

// editAgent returns rewriters that edit the name of the agent of each submit.
func editAgent(edit func(agent string) string) func() rewriter {
	return editSent(script.JobSubmit, func(f frame) frame {
		if agent := f.stringMember("agent"); agent != "" {
			f = f.withPayload("agent", edit(agent))
		}
		return f
	})
}

// refuseSubmits returns rewriters that have the selected submits refused with the code.
func refuseSubmits(code arcp.Code, selects func(f frame) bool) func() rewriter {
	return func() rewriter {
		r := replaceDraftCode("AGENT_NOT_AVAILABLE", code)()
		r.out = func(f frame) []frame {
			if f.Type == script.JobSubmit && selects(f) {
				f = f.withPayload("agent", "no.such.agent")
			}
			return []frame{f}
		}
		return r
	}
}
