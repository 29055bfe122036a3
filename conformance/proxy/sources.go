package proxy

import (
	"bytes"

	"github.com/arcpd/arcpd/arcp"
)

// execFaults break the rules for commands.
var execFaults = []Fault{
	{Name: "round what commands say", Says: "the numbers of a command are read as floating point", Shows: []string{"exec.json"},
		newRewriter: every(arcp.JobCompleted, frame.roundNumbers)},
	{Name: "run it in a shell", Says: "a shell reads the words of a command", Shows: []string{"exec.no-shell"}, newRewriter: result(`$HOME`, `/root`)},
	{Name: "lose what commands say", Says: "standard error is lost", Shows: []string{"exec.log"}, newRewriter: without(isType(arcp.Log))},
	{Name: "mix what commands say", Says: "lines of standard error change places", Shows: []string{"exec.log"},
		newRewriter: swap(isType(arcp.Log), isType(arcp.Log), true)},
	{Name: "warn of what commands say", Says: "standard error is a warning", Shows: []string{"exec.log"},
		newRewriter: every(arcp.Log, func(f frame) frame { return f.withPayload("level", arcp.LevelWarn) })},
	{Name: "take any text", Says: "output that is not JSON is a result", Shows: []string{"exec.text"}, newRewriter: succeeds(arcp.CodeUnknown)},
	{Name: "do not say what is wrong", Says: "the error does not say that the output is not JSON", Shows: []string{"exec.text"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("message", "it failed") })},
	{Name: "one status for all", Says: "the exit status is always 1", Shows: []string{"exec.status"}, newRewriter: replaced(`"exit_status":3`, `"exit_status":1`)},
	{Name: "forget the last words", Says: "what a command that failed has said is lost", Shows: []string{"exec.status"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.replace("it went wrong", "") })},
	{Name: "forget the signal", Says: "the signal that ended a command is not told", Shows: []string{"exec.signal"}, newRewriter: replaced(`"signal":`, `"cause":`)},
	{Name: "hand everything on", Says: "a command has a variable that is not allowed", Shows: []string{"exec.environment"},
		newRewriter: func() rewriter {
			return adding(func(f frame) (frame, bool) {
				own := f.Type == arcp.Log && bytes.Contains(f.Payload, []byte(`"PATH=`))
				return f.withNewID().withPayload("message", "TOKEN=secret"), own
			})
		}},
	{Name: "another job's id", Says: "a command is told another job's id", Shows: []string{"exec.environment"}, newRewriter: replaced("ARCP_JOB_ID=job_", "ARCP_JOB_ID=job_X")},
	{Name: "leave processes", Says: "what a command has begun goes on", Shows: []string{"exec.leftover"}, newRewriter: result(`"value":false`, `"value":true`)},
	{Name: "cancel and go on", Says: "a command that ignores a cancel goes on", Shows: []string{"exec.cancel"}, newRewriter: result(`"value":false`, `"value":true`)},
	{Name: "end a command twice", Says: "a cancel ends a job twice", Shows: []string{"exec.cancel"},
		newRewriter: func() rewriter {
			return adding(func(f frame) (frame, bool) { return f.withNewID(), f.Type == arcp.JobCancelled })
		}},
	{Name: "any amount", Says: "output over the limit is a result", Shows: []string{"exec.large"}, newRewriter: succeeds(arcp.CodeResourceExhausted)},
	{Name: "once more as much", Says: "output over the limit may be retried", Shows: []string{"exec.large"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", true) })},
	{Name: "no time limit", Says: "a command takes as long as it likes", Shows: []string{"exec.timeout"}, Mute: true, newRewriter: never(arcp.JobFailed)},
	{Name: "any result of a command", Says: "the output schema does not count", Shows: []string{"exec.schemas"}, newRewriter: succeeds(arcp.CodeInternal)},
	{Name: "commands of the program", Says: "the source of a command is another", Shows: []string{"exec.source"}, newRewriter: result(`"source":"exec"`, `"source":"go"`)},
}

// mcpFaults break the rules for MCP servers.
var mcpFaults = []Fault{
	{Name: "another content", Says: "content comes as another kind", Shows: []string{"mcp.content"}, newRewriter: result(`"type":"text"`, `"type":"image"`)},
	{Name: "content for structure", Says: "the structured content is not the result", Shows: []string{"mcp.structured"},
		newRewriter: result(`{"n":7}`, `{"content":[],"structuredContent":{"n":7}}`)},
	{Name: "any structure", Says: "the output schema does not count", Shows: []string{"mcp.schema"}, newRewriter: succeeds(arcp.CodeInternal)},
	{Name: "ask the server", Says: "arguments that do not fit are the server's to refuse", Shows: []string{"mcp.arguments"},
		newRewriter: coded(arcp.CodeInvalidArgument, arcp.CodeUnknown)},
	{Name: "errors are results", Says: "a result that is an error is a result", Shows: []string{"mcp.error"}, newRewriter: succeeds(arcp.CodeUnknown)},
	{Name: "errors without words", Says: "the text of an error is lost", Shows: []string{"mcp.error"}, newRewriter: replaced("out of paper", "the tool failed")},
	{Name: "errors without codes", Says: "the code of an error of the protocol is lost", Shows: []string{"mcp.refused"}, newRewriter: replaced(`"mcp_code"`, `"number"`)},
	{Name: "any error is unknown", Says: "invalid params are UNKNOWN", Shows: []string{"mcp.refused"}, newRewriter: coded(arcp.CodeInvalidArgument, arcp.CodeUnknown)},
	{Name: "lose a step", Says: "progress of an MCP server is lost", Shows: []string{"mcp.progress"},
		newRewriter: without(func(f frame) bool { return f.Type == arcp.JobProgress && f.number("current") == 2 })},
	{Name: "one level for all", Says: "what an MCP server logs is information", Shows: []string{"mcp.log"},
		newRewriter: every(arcp.Log, func(f frame) frame { return f.withPayload("level", arcp.LevelInfo) })},
	{Name: "say it to somebody else", Says: "what a call logs does not come to its job", Shows: []string{"mcp.log"}, newRewriter: without(isType(arcp.Log))},
	{Name: "cancel in silence", Says: "a server is not told of a cancel", Shows: []string{"mcp.cancel"}, newRewriter: result(`"text":"true"`, `"text":"false"`)},
	{Name: "lists that stay", Says: "nobody is told that a server's list has changed", Shows: []string{"mcp.changed"}, Mute: true,
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.EventEmit && f.word("name") == arcp.EventToolsChanged {
				return nil
			}
			return []frame{f}
		})},
	{Name: "tools of the program", Says: "the source of an MCP tool is another", Shows: []string{"mcp.source"}, newRewriter: result(`"source":"mcp"`, `"source":"go"`)},
}
