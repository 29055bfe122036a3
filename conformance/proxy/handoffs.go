package proxy

import "github.com/arcpd/arcpd/arcp"

// handoffFaults are defects of agent.handoff.
var handoffFaults = []Fault{
	{Defect: "the old owner of a job has its rights", Checks: []string{"handoffs.owner"}, House: true,
		newRewriter: editReceived(arcp.CancelRefused, func(f frame) frame {
			return f.withPayload("code", arcp.CodeNotFound)
		})},
	{Defect: "the event of a handoff does not name the new owner", Checks: []string{"handoffs.owner"}, House: true, Silent: true,
		newRewriter: replaceReceived(`"to_session_id":"sess_`, `"to_session_id":"sess_0`)},
	{Defect: "a handoff has no event", Checks: []string{"handoffs.session", "handoffs.children"}, House: true, Silent: true,
		newRewriter: replaceReceived(`{"name":"handoff"`, `{"name":"moved"`)},
	{Defect: "a handoff is not acknowledged", Checks: []string{"handoffs.acknowledged"}, House: true, Silent: true, newRewriter: dropReceived(arcp.Ack)},
	{Defect: "a handoff of a session hands over nothing", Checks: []string{"handoffs.session"}, House: true, Silent: true,
		newRewriter: editSent(arcp.AgentHandoff, func(f frame) frame { return f.with("job_id", "job_00000000000000000000000000") })},
	{Defect: "a job is not handed back", Checks: []string{"handoffs.back"}, House: true, Silent: true, newRewriter: dropReceived(arcp.JobCancelled)},
	{Defect: "a handoff to another runtime is accepted", Checks: []string{"handoffs.runtime"}, House: true, Silent: true, newRewriter: replaceCode(arcp.CodeUnimplemented, arcp.CodeNotFound)},
	{Defect: "agent_handoff is advertised", Checks: []string{"handoffs.advertised"}, House: true,
		newRewriter: editReceived(arcp.SessionAccepted, func(f frame) frame { return f.replace(`"agent_handoff":false`, `"agent_handoff":true`) })},
	{Defect: "a handoff tells of a foreign session", Checks: []string{"handoffs.refused"}, House: true, newRewriter: replaceCode(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Defect: "any session hands a job over", Checks: []string{"handoffs.refused"}, House: true, newRewriter: replaceCode(arcp.CodePermissionDenied, arcp.CodeNotFound)},
	{Defect: "a job that has ended is handed over", Checks: []string{"handoffs.ended"}, House: true, newRewriter: replaceCode(arcp.CodeFailedPrecondition, arcp.CodeNotFound)},
}
