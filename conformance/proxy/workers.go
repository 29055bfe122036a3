package proxy

import (
	"github.com/arcpd/arcpd/arcp"
)

// workerFaults are defects of jobs assigned to workers.
var workerFaults = []Fault{
	{Defect: "tool.invoke to a worker names another tool version", Checks: []string{"workers.dispatch"}, House: true,
		newRewriter: editReceived(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("tool", "conformance.other@1.0.0") })},
	{Defect: "tool.invoke to a worker has no arguments", Checks: []string{"workers.dispatch"}, House: true,
		newRewriter: editReceived(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("arguments", struct{}{}) })},
	{Defect: "tool.invoke to a worker has an event_seq", Checks: []string{"workers.dispatch"}, House: true,
		newRewriter: editReceived(arcp.ToolInvoke, func(f frame) frame { return f.with("event_seq", 3) })},
	{Defect: "a job is sent to its worker twice", Checks: []string{"workers.queued", "workers.dispatch"}, House: true,
		newRewriter: duplicateWhere(func(f frame) bool { return f.Type == arcp.ToolInvoke }, sameFrame)},
	{Defect: "the priority of a submit is ignored", Checks: []string{"workers.priority", "workers.passed"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.with("priority", nil) })},
	{Defect: "a submit with low priority is treated as critical", Checks: []string{"workers.priority", "workers.passed"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.replace(`"priority":"low"`, `"priority":"critical"`) })},
	{Defect: "the quorum of a tool policy is ignored", Checks: []string{"workers.quorum"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.replace(`"quorum":2`, `"quorum":1`) })},
	{Defect: "tool.invoke is never sent to the worker", Checks: []string{"workers.absent"}, House: true, Silent: true, newRewriter: dropReceived(arcp.ToolInvoke)},
	{Defect: "a job does not say that it waits for a worker", Checks: []string{"workers.waits"}, House: true, Silent: true,
		newRewriter: dropEvents(func(f frame) bool { return f.Type == arcp.EventEmit && f.stringMember("name") == arcp.EventWaiting })},
	{Defect: "a job without a connected worker waits for a slot", Checks: []string{"workers.waits"}, House: true,
		newRewriter: replaceReceived(`"reason":"worker"`, `"reason":"slot"`)},
	{Defect: "the start timeout of a tool is ignored", Checks: []string{"workers.start-timeout"}, House: true, Silent: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.replace(`"start_timeout_ms":50`, `"start_timeout_ms":600000`) })},
	{Defect: "the start timeout fails a job with INTERNAL", Checks: []string{"workers.start-timeout"}, House: true,
		newRewriter: replaceCode(arcp.CodeUnavailable, arcp.CodeInternal)},
	{Defect: "the attempt sent to a worker is always 1", Checks: []string{"workers.rerun"}, House: true,
		newRewriter: editReceived(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("attempt", 1) })},
	{Defect: "the checkpoint is not sent to the worker of a later attempt", Checks: []string{"workers.checkpoint"}, House: true,
		newRewriter: editReceived(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("checkpoint", nil) })},
	{Defect: "a job sent again after a reconnect has another message id", Checks: []string{"workers.comes-back"}, House: true, newRewriter: changeDispatchIDs},
	{Defect: "a message of a worker for a job that it does not run is acknowledged", Checks: []string{"workers.not-taken", "workers.stale"}, House: true,
		newRewriter: replaceNack(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Defect: "an invalid message of a worker is acknowledged", Checks: []string{"workers.unreadable"}, House: true,
		newRewriter: replaceNack(arcp.CodeInvalidArgument, arcp.Ack, struct{}{})},
	{Defect: "cancel is not forwarded to the worker", Checks: []string{"workers.cancel"}, House: true, Silent: true, newRewriter: dropReceived(arcp.Cancel)},
	{Defect: "retryable is false for a job whose worker is lost", Checks: []string{"workers.lost"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", false) })},
	{Defect: "a job that no worker accepts fails with INTERNAL", Checks: []string{"workers.refused"}, House: true,
		newRewriter: replaceCode(arcp.CodeUnavailable, arcp.CodeInternal)},
	{Defect: "the answer to a question is changed on the way to the worker", Checks: []string{"workers.asks"}, House: true,
		newRewriter: editReceived(arcp.HumanInputResponse, func(f frame) frame { return f.withPayload("value", 8) })},
	{Defect: "a worker is sent other content than that of the artifact", Checks: []string{"workers.artifacts"}, House: true,
		newRewriter: editReceived(arcp.ArtifactPut, func(f frame) frame { return f.replace("bmFtZWQ=", "bmFtZWE=") })},
	{Defect: "a worker is sent an artifact that its job may not read", Checks: []string{"workers.artifacts"}, House: true,
		newRewriter: replaceNack(arcp.CodeNotFound, arcp.ArtifactPut, arcp.ArtifactPutPayload{MediaType: "text/plain", Data: "b3RoZXI="})},
	{Defect: "the artifact of a worker is not announced and later events are renumbered to hide it", Checks: []string{"workers.artifacts"}, House: true,
		newRewriter: dropEvents(func(f frame) bool { return f.Type == arcp.ArtifactRef && f.EventSeq > 0 })},
	{Defect: "a missing chunk of a worker is not noticed", Checks: []string{"workers.artifact-chunks", "workers.streams"}, House: true,
		newRewriter: replaceNack(arcp.CodeOutOfRange, arcp.Ack, struct{}{})},
	{Defect: "an artifact in chunks has lost one of them", Checks: []string{"workers.artifact-chunks"}, House: true,
		newRewriter: editReceived(arcp.ArtifactPut, func(f frame) frame { return f.replace("aGVsbG8=", "aGVs") })},
	{Defect: "the chunks of a worker come in another stream", Checks: []string{"workers.streams"}, House: true,
		newRewriter: editReceived(arcp.StreamChunk, func(f frame) frame { return f.with("stream_id", "str_other") })},
	{Defect: "the guidance of an interrupt is not passed to the worker", Checks: []string{"workers.interrupt"}, House: true,
		newRewriter: editReceived(arcp.HumanInputResponse, func(f frame) frame {
			return f.withPayload("value", map[string]string{"action": "continue"})
		})},
	{Defect: "the end of a call by a worker has an event_seq", Checks: []string{"workers.child"}, House: true,
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame {
			if !f.event() {
				f = f.with("event_seq", 3)
			}
			return f
		})},
	{Defect: "registering a name of another principal is PERMISSION_DENIED", Checks: []string{"workers.names"}, House: true,
		newRewriter: replaceCode(arcp.CodeAgentNotAvailable, arcp.CodePermissionDenied)},
	{Defect: "two principals can register the same tool name", Checks: []string{"workers.names"}, House: true, newRewriter: completeFailed(arcp.CodeAlreadyExists)},
	{Defect: "a session without executes can register a worker tool", Checks: []string{"workers.capability"}, House: true,
		newRewriter: completeFailed(arcp.CodeFailedPrecondition)},
}

// changeDispatchIDs changes the id of a tool.invoke that directly follows the handshake: a repeated
// dispatch.
func changeDispatchIDs() rewriter {
	n := 0
	return rewriter{in: func(f frame) []frame {
		if n++; n == 2 && f.Type == arcp.ToolInvoke {
			f = f.with("id", arcp.NewMessageID())
		}
		return []frame{f}
	}}
}
