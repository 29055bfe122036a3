package proxy

import (
	"bytes"

	"github.com/arcpd/arcpd/arcp"
)

// execFaults are defects of commands as tools.
var execFaults = []Fault{
	{Defect: "numbers in the output of a command are rounded to floating point", Checks: []string{"exec.json"}, House: true,
		newRewriter: editReceived(arcp.JobCompleted, frame.roundNumbers)},
	{Defect: "a shell interprets the arguments of a command", Checks: []string{"exec.no-shell"}, House: true, newRewriter: replaceResult(`$HOME`, `/root`)},
	{Defect: "standard error of a command is not logged", Checks: []string{"exec.log"}, House: true, newRewriter: dropEvents(isType(arcp.Log))},
	{Defect: "lines of standard error are logged in reverse order", Checks: []string{"exec.log"}, House: true,
		newRewriter: swap(isType(arcp.Log), isType(arcp.Log), true)},
	{Defect: "standard error of a command is logged as a warning", Checks: []string{"exec.log"}, House: true,
		newRewriter: editReceived(arcp.Log, func(f frame) frame { return f.withPayload("level", arcp.LevelWarn) })},
	{Defect: "output that is not JSON completes the job", Checks: []string{"exec.text"}, House: true, newRewriter: completeFailed(arcp.CodeUnknown)},
	{Defect: "the error does not say that the output is not JSON", Checks: []string{"exec.text"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("message", "it failed") })},
	{Defect: "the exit status of a failed command is always 1", Checks: []string{"exec.status"}, House: true, newRewriter: replaceReceived(`"exit_status":3`, `"exit_status":1`)},
	{Defect: "the error of a failed command omits its last output", Checks: []string{"exec.status"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.replace("it went wrong", "") })},
	{Defect: "the error omits the signal that ended a command", Checks: []string{"exec.signal"}, House: true, newRewriter: replaceReceived(`"signal":`, `"cause":`)},
	{Defect: "a command has an environment variable that is not allowed", Checks: []string{"exec.environment"}, House: true,
		newRewriter: func() rewriter {
			return insertEvents(func(f frame) (frame, bool) {
				own := f.Type == arcp.Log && bytes.Contains(f.Payload, []byte(`"PATH=`))
				return f.withNewID().withPayload("message", "TOKEN=secret"), own
			})
		}},
	{Defect: "ARCP_JOB_ID of a command names another job", Checks: []string{"exec.environment"}, House: true, newRewriter: replaceReceived("ARCP_JOB_ID=job_", "ARCP_JOB_ID=job_X")},
	{Defect: "child processes of a command survive the end of the job", Checks: []string{"exec.leftover"}, House: true, Silent: true, newRewriter: replaceResult(`"value":false`, `"value":true`)},
	{Defect: "a command that ignores the cancel signal is not killed", Checks: []string{"exec.cancel"}, House: true, Silent: true, newRewriter: replaceResult(`"value":false`, `"value":true`)},
	{Defect: "a cancelled command sends job.cancelled twice", Checks: []string{"exec.cancel"}, House: true,
		newRewriter: func() rewriter {
			return insertEvents(func(f frame) (frame, bool) { return f.withNewID(), f.Type == arcp.JobCancelled })
		}},
	{Defect: "output above the size limit completes the job", Checks: []string{"exec.large"}, House: true, newRewriter: completeFailed(arcp.CodeResourceExhausted)},
	{Defect: "retryable is true for output above the size limit", Checks: []string{"exec.large"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", true) })},
	{Defect: "the timeout of a command is not enforced", Checks: []string{"exec.timeout"}, House: true, Silent: true, newRewriter: dropReceived(arcp.JobFailed)},
	{Defect: "the output schema of a command is not enforced", Checks: []string{"exec.schemas"}, House: true, newRewriter: completeFailed(arcp.CodeInternal)},
	{Defect: "the source of a command is reported as go", Checks: []string{"exec.source"}, House: true, newRewriter: replaceResult(`"source":"exec"`, `"source":"go"`)},
}

// mcpFaults are defects of the tools of MCP servers.
var mcpFaults = []Fault{
	{Defect: "the content of an MCP result has another type", Checks: []string{"mcp.content"}, House: true, newRewriter: replaceResult(`"type":"text"`, `"type":"image"`)},
	{Defect: "an MCP result is the whole response instead of its structured content", Checks: []string{"mcp.structured"}, House: true,
		newRewriter: replaceResult(`{"n":7}`, `{"content":[],"structuredContent":{"n":7}}`)},
	{Defect: "the output schema of an MCP tool is not enforced", Checks: []string{"mcp.schema"}, House: true, newRewriter: completeFailed(arcp.CodeInternal)},
	{Defect: "invalid arguments are sent to the MCP server instead of refused", Checks: []string{"mcp.arguments"}, House: true,
		newRewriter: replaceCode(arcp.CodeInvalidArgument, arcp.CodeUnknown)},
	{Defect: "an MCP result with isError completes the job", Checks: []string{"mcp.error"}, House: true, newRewriter: completeFailed(arcp.CodeUnknown)},
	{Defect: "the text of an MCP error is lost", Checks: []string{"mcp.error"}, House: true, newRewriter: replaceReceived("out of paper", "the tool failed")},
	{Defect: "the code of a JSON-RPC error is lost", Checks: []string{"mcp.refused"}, House: true, newRewriter: replaceReceived(`"mcp_code"`, `"number"`)},
	{Defect: "a JSON-RPC error for invalid params is UNKNOWN", Checks: []string{"mcp.refused"}, House: true, newRewriter: replaceCode(arcp.CodeInvalidArgument, arcp.CodeUnknown)},
	{Defect: "a progress notification of an MCP server is lost", Checks: []string{"mcp.progress"}, House: true,
		newRewriter: dropEvents(func(f frame) bool { return f.Type == arcp.JobProgress && f.numberMember("current") == 2 })},
	{Defect: "log messages of an MCP server all have the level info", Checks: []string{"mcp.log"}, House: true,
		newRewriter: editReceived(arcp.Log, func(f frame) frame { return f.withPayload("level", arcp.LevelInfo) })},
	{Defect: "log messages of an MCP call are lost", Checks: []string{"mcp.log"}, House: true, newRewriter: dropEvents(isType(arcp.Log))},
	{Defect: "an MCP server is not notified of a cancel", Checks: []string{"mcp.cancel"}, House: true, Silent: true, newRewriter: replaceResult(`"text":"true"`, `"text":"false"`)},
	{Defect: "a changed tool list of an MCP server is not reported", Checks: []string{"mcp.changed"}, House: true, Silent: true,
		newRewriter: dropWhere(func(f frame) bool {
			return f.Type == arcp.EventEmit && f.stringMember("name") == arcp.EventToolsChanged
		})},
	{Defect: "the source of an MCP tool is reported as go", Checks: []string{"mcp.source"}, House: true, newRewriter: replaceResult(`"source":"mcp"`, `"source":"go"`)},
}
