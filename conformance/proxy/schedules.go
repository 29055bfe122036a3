package proxy

import "github.com/arcpd/arcpd/arcp"

// scheduleFaults are defects of schedules.
var scheduleFaults = []Fault{
	{Defect: "scheduled_jobs is not advertised", Checks: []string{"schedules.advertised"}, House: true,
		newRewriter: editReceived(arcp.SessionAccepted, func(f frame) frame { return f.replace(`"scheduled_jobs":true`, `"scheduled_jobs":false`) })},
	{Defect: "a schedule is listed as running", Checks: []string{"schedules.queued"}, House: true, newRewriter: replaceReceived(`"status":"queued"`, `"status":"running"`)},
	{Defect: "the reason for the cancel of a schedule is lost", Checks: []string{"schedules.queued"}, House: true,
		newRewriter: editReceived(arcp.JobCancelled, func(f frame) frame { return f.withPayload("reason", nil) })},
	{Defect: "schedule.list tells a time that has passed", Checks: []string{"schedules.queued"}, House: true, newRewriter: replaceResult(`"next":[`, `"next":["2020-01-01T00:00:00Z",`)},
	{Defect: "schedule.list counts a job that was not started", Checks: []string{"schedules.queued"}, House: true, newRewriter: replaceResult(`"fired":0`, `"fired":1`)},
	{Defect: "the job of a schedule has no parent", Checks: []string{"schedules.once"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("parent_job_id", nil) })},
	{Defect: "the job of a schedule has another trace", Checks: []string{"schedules.once"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame {
			if f.stringMember("parent_job_id") != "" {
				f = f.with("trace_id", "0af7651916cd43dd8448eb211c80319c")
			}
			return f
		})},
	{Defect: "a schedule has another result than its job", Checks: []string{"schedules.once"}, House: true, newRewriter: replaceResult(`"n":1`, `"n":2`)},
	{Defect: "a schedule completes although its job has failed", Checks: []string{"schedules.once-failed"}, House: true, newRewriter: completeFailed(arcp.CodeNotFound)},
	{Defect: "a schedule with a time fires at once", Checks: []string{"schedules.at"}, newRewriter: editWhen("at", arcp.Raw(`{"after":0}`))},
	{Defect: "COUNT of a rule is ignored", Checks: []string{"schedules.every"}, House: true, Silent: true, newRewriter: replaceSent("COUNT=2", "COUNT=9")},
	{Defect: "a rule counts an occurrence that did not fire", Checks: []string{"schedules.every"}, House: true, newRewriter: replaceSent("COUNT=2", "COUNT=1")},
	{Defect: "the jobs of a rule are reported as failed", Checks: []string{"schedules.every"}, House: true, newRewriter: replaceResult(`"fired":`, `"failed":1,"fired":`)},
	{Defect: "a schedule calls a workflow as a tool", Checks: []string{"schedules.workflow"}, House: true, Silent: true,
		newRewriter: replaceSent(`"type":"workflow.start","payload":{"workflow":`, `"type":"tool.invoke","payload":{"tool":`)},
	{Defect: "a time in the past is scheduled", Checks: []string{"schedules.past"}, House: true, newRewriter: editWhen("at", arcp.Raw(`{"after":60}`))},
	{Defect: "after is used, and other times are ignored", Checks: []string{"schedules.one-time"}, newRewriter: editWhen("after", arcp.Raw(`{"after":60}`))},
	{Defect: "a rule without an occurrence is scheduled", Checks: []string{"schedules.rule"}, House: true, newRewriter: replaceSent("BYMONTHDAY=30", "BYMONTHDAY=28")},
	{Defect: "the zone of a rule is ignored when it is scheduled", Checks: []string{"schedules.rule"}, House: true, newRewriter: replaceSent("TZID=No/Where", "TZID=Europe/Berlin")},
	{Defect: "an unknown tool is scheduled", Checks: []string{"schedules.tool-unknown"}, House: true, newRewriter: replaceSent(`"no.such.tool"`, `"demo.echo"`)},
	{Defect: "wrong arguments are scheduled", Checks: []string{"schedules.arguments"}, House: true, newRewriter: replaceSent(`"ms":"long"`, `"ms":1`)},
	{Defect: "a malformed lease is scheduled", Checks: []string{"schedules.lease"}, House: true, newRewriter: replaceSent(`"tool.call":5`, `"tool.call":["*"]`)},
	{Defect: "a direct call is scheduled", Checks: []string{"schedules.direct"}, House: true, newRewriter: replaceSent(`"direct":true`, `"direct":false`)},
	{Defect: "a built-in tool is scheduled", Checks: []string{"schedules.built-in"}, House: true, newRewriter: replaceSent(`"tools.list"`, `"demo.echo"`)},
	{Defect: "the cancel of a schedule cancels its job", Checks: []string{"schedules.cancel"}, House: true, newRewriter: replaceReceived(`"status":"running"`, `"status":"cancelled"`)},
	{Defect: "a schedule ends with its session", Checks: []string{"schedules.session"}, House: true, newRewriter: replaceResult(`"schedules":[{`, `"ended":[{`)},
	{Defect: "the idempotency key of job.schedule is ignored", Checks: []string{"schedules.repeated"}, House: true,
		newRewriter: editSent(arcp.JobSchedule, func(f frame) frame { return f.with("idempotency_key", nil) })},
	{Defect: "the cancel of a foreign schedule is refused as one that is there", Checks: []string{"schedules.foreign"}, House: true,
		newRewriter: editReceived(arcp.CancelRefused, func(f frame) frame { return f.withPayload("reason", "permission_denied") })},
	{Defect: "schedule.next tells of a foreign schedule", Checks: []string{"schedules.foreign"}, House: true, newRewriter: replaceCode(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Defect: "the zone of a rule is ignored", Checks: []string{"schedules.next"}, House: true, newRewriter: replaceSent("TZID=Europe/Berlin", "TZID=UTC")},
	{Defect: "a time that does not exist is moved", Checks: []string{"schedules.next"}, House: true, newRewriter: replaceResult("2090-03-27T00:30", "2090-03-26T01:30")},
	{Defect: "schedule.create ends when the schedule is accepted", Checks: []string{"schedules.create"}, House: true, newRewriter: replaceResult(`"n":1`, `"job_id":"job_1"`)},
}

// editWhen returns rewriters that replace the time of each job.schedule whose time has the member name.
func editWhen(name string, when arcp.Raw) func() rewriter {
	return editSent(arcp.JobSchedule, func(f frame) frame {
		if f.objectMember("when")[name] != nil {
			f = f.withPayload("when", when)
		}
		return f
	})
}
