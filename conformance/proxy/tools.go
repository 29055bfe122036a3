package proxy

import (
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
)

// toolFaults are defects of the tool catalogue and the call log.
var toolFaults = []Fault{
	{Defect: "hide in tools.overlay is ignored", Checks: []string{"tools.hidden", "tools.session", "tools.refused", "tools.changed"}, House: true,
		newRewriter: replaceSent(`"hide":["demo.echo"]`, `"hide":[]`)},
	{Defect: "a hidden tool is found by name and version", Checks: []string{"tools.hidden"}, House: true,
		newRewriter: replaceCode(arcp.CodeAgentNotAvailable, arcp.CodeAgentVersionNotAvailable)},
	{Defect: "the error for an unknown tool suggests a hidden tool", Checks: []string{"tools.hidden"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame {
			if f.code() == arcp.CodeAgentNotAvailable {
				f = f.withPayload("message", `no such tool; did you mean "demo.echo"?`)
			}
			return f
		})},
	{Defect: "include_base false in tools.overlay is ignored", Checks: []string{"tools.own"}, House: true,
		newRewriter: replaceSent(`"include_base":false`, `"include_base":true`)},
	{Defect: "an empty overlay does not restore the base catalogue", Checks: []string{"tools.own"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame {
			if args := f.objectMember("arguments"); f.stringMember("tool") == "tools.overlay" && args != nil && len(args) == 0 {
				f = f.withPayload("arguments", json.RawMessage(`{"include_base":false}`))
			}
			return f
		})},
	{Defect: "expect_revision in tools.overlay is ignored", Checks: []string{"tools.compare"}, House: true,
		newRewriter: replaceSent(`"expect_revision"`, `"expect_generation"`)},
	{Defect: "the revision of an overlay depends on the order of its names", Checks: []string{"tools.compare"}, House: true,
		newRewriter: replaceSent(`"hide":["demo.b","demo.a"]`, `"hide":["demo.b"]`)},
	{Defect: "an overlay with an unknown tool is NOT_FOUND", Checks: []string{"tools.refused"}, House: true,
		newRewriter: replaceCode(arcp.CodeInvalidArgument, arcp.CodeNotFound)},
	{Defect: "tools.changed is never sent", Checks: []string{"tools.changed"}, House: true, Silent: true,
		newRewriter: dropWhere(func(f frame) bool { return f.Type == arcp.EventEmit && f.stringMember("name") == "tools.changed" })},
	{Defect: "the cursor of tools.list is ignored", Checks: []string{"tools.list"}, House: true, newRewriter: replaceResult(`"next_cursor"`, `"no_cursor"`)},
	{Defect: "tools.describe reports another side effect", Checks: []string{"tools.describe"}, House: true, newRewriter: replaceResult(`"side_effect":"none"`, `"side_effect":"read"`)},
	{Defect: "tools.policy omits the permission to submit", Checks: []string{"tools.policy"}, House: true, newRewriter: replaceResult(`"submit":true`, `"submit":false`)},
	{Defect: "the arguments digest is not of the canonical JSON", Checks: []string{"tools.calls"}, House: true, newRewriter: replaceResult(`"request_digest":"9`, `"request_digest":"8`)},
	{Defect: "completed calls have no result digest", Checks: []string{"tools.calls"}, House: true, newRewriter: replaceResult(`"response_digest"`, `"digest"`)},
	{Defect: "denied and timed-out calls are recorded as errors", Checks: []string{"tools.calls-failed"}, House: true,
		newRewriter: rewriteReceived(func(f frame) []frame {
			if f.Type == arcp.JobCompleted {
				f = f.replace(`"status":"denied"`, `"status":"error"`)
			}
			return []frame{f}
		})},
	{Defect: "tools.calls returns calls of another principal", Checks: []string{"tools.calls-foreign"}, House: true, newRewriter: replaceCode(arcp.CodeJobNotFound, arcp.CodePermissionDenied)},
}
