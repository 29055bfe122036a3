package proxy

import (
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
)

// result makes a stage that edits the results of jobs as text.
func result(old, text string) func() rewriter {
	return every(arcp.JobCompleted, func(f frame) frame { return f.replace(old, text) })
}

// toolFaults break the rules for the catalogue and the calls.
var toolFaults = []Fault{
	{Name: "hide nothing", Says: "what is to be hidden is not", Shows: []string{"tools.hidden", "tools.session", "tools.refused", "tools.changed"},
		newRewriter: replacedOut(`"hide":["demo.echo"]`, `"hide":[]`)},
	{Name: "hide by name only", Says: "a hidden tool is found with its version", Shows: []string{"tools.hidden"},
		newRewriter: coded(arcp.CodeAgentNotAvailable, arcp.CodeAgentVersionNotAvailable)},
	{Name: "hint at what is hidden", Says: "an unknown name leads to a hidden one", Shows: []string{"tools.hidden"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame {
			if f.code() == arcp.CodeAgentNotAvailable {
				f = f.withPayload("message", `no such tool; did you mean "demo.echo"?`)
			}
			return f
		})},
	{Name: "always the base", Says: "an overlay never begins empty", Shows: []string{"tools.own"},
		newRewriter: replacedOut(`"include_base":false`, `"include_base":true`)},
	{Name: "no way back", Says: "an overlay that is empty changes nothing", Shows: []string{"tools.own"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame {
			if args := f.object("arguments"); f.word("tool") == "tools.overlay" && args != nil && len(args) == 0 {
				f = f.withPayload("arguments", json.RawMessage(`{"include_base":false}`))
			}
			return f
		})},
	{Name: "change whatever there is", Says: "expect_revision is ignored", Shows: []string{"tools.compare"},
		newRewriter: replacedOut(`"expect_revision"`, `"expect_generation"`)},
	{Name: "every overlay is a change", Says: "the same overlay has another revision", Shows: []string{"tools.compare"},
		newRewriter: replacedOut(`"hide":["demo.b","demo.a"]`, `"hide":["demo.b"]`)},
	{Name: "take what cannot be", Says: "an overlay of what is not there is another error", Shows: []string{"tools.refused"},
		newRewriter: coded(arcp.CodeInvalidArgument, arcp.CodeNotFound)},
	{Name: "say nothing of changes", Says: "sessions are not told what has changed", Shows: []string{"tools.changed"}, Mute: true,
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.EventEmit && f.word("name") == "tools.changed" {
				return nil
			}
			return []frame{f}
		})},
	{Name: "one page of tools", Says: "tools.list has no further pages", Shows: []string{"tools.list"}, newRewriter: result(`"next_cursor"`, `"no_cursor"`)},
	{Name: "describe another effect", Says: "the side effect is another one", Shows: []string{"tools.describe"}, newRewriter: result(`"side_effect":"none"`, `"side_effect":"read"`)},
	{Name: "allow no submit", Says: "the policy does not say what is allowed", Shows: []string{"tools.policy"}, newRewriter: result(`"submit":true`, `"submit":false`)},
	{Name: "digest of something else", Says: "the digest is not of the sorted text", Shows: []string{"tools.calls"}, newRewriter: result(`"request_digest":"9`, `"request_digest":"8`)},
	{Name: "no digest of results", Says: "results have no digest", Shows: []string{"tools.calls"}, newRewriter: result(`"response_digest"`, `"digest"`)},
	{Name: "every failure is an error", Says: "the record does not tell a denial or a timeout", Shows: []string{"tools.calls-failed"},
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.JobCompleted {
				f = f.replace(`"status":"denied"`, `"status":"error"`)
			}
			return []frame{f}
		})},
	{Name: "deny what is foreign", Says: "another principal's job is told of", Shows: []string{"tools.calls-foreign"}, newRewriter: coded(arcp.CodeJobNotFound, arcp.CodePermissionDenied)},
}
