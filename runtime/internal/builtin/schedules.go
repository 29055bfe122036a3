package builtin

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
)

// maxTimes bounds the times of schedule.next, and of each schedule in schedule.list.
const maxTimes = 100

type scheduleCreateIn struct {
	Job  scheduledJob `json:"job" jsonschema:"description=the message to send at each time"`
	When scheduleWhen `json:"when" jsonschema:"description=exactly one of at\\, every and after"`
}

type scheduledJob struct {
	Type    string         `json:"type" jsonschema:"enum=tool.invoke,enum=workflow.start"`
	Payload map[string]any `json:"payload" jsonschema:"description=the payload of the message"`
}

type scheduleWhen struct {
	At    string  `json:"at,omitzero" jsonschema:"description=one time,format=date-time"`
	Every string  `json:"every,omitzero" jsonschema:"description=an RRULE of RFC 5545\\, with a line DTSTART before it at most"`
	After float64 `json:"after,omitzero" jsonschema:"description=seconds from now,minimum=0"`
}

type scheduleListIn struct {
	Times int `json:"times,omitzero" jsonschema:"description=next times of each schedule; default 1,minimum=1,maximum=100"`
}

type scheduleList struct {
	Schedules []arcp.ScheduleView `json:"schedules"`
}

type scheduleTools struct{ engine *engine.Engine }

func (t *scheduleTools) register(r *registrar) {
	register(r, waitTool(engine.ScheduleTool, "submits a job at a later time or repeatedly; the call ends with the schedule"), r.callers.find, t.create)
	register(r, readTool("schedule.list", "the schedules of the caller that have not ended, the oldest first"), r.callers.find, t.list)
}

// create is never called: the engine keeps a job of the tool queued until its schedule ends.
func (t *scheduleTools) create(context.Context, *Caller, scheduleCreateIn) (arcp.ScheduleResult, error) {
	return arcp.ScheduleResult{}, arcp.Errorf(arcp.CodeInternal, "%s was called", engine.ScheduleTool)
}

func (t *scheduleTools) list(_ context.Context, caller *Caller, in scheduleListIn) (scheduleList, error) {
	list := scheduleList{Schedules: []arcp.ScheduleView{}}
	list.Schedules = append(list.Schedules, t.engine.Schedules(caller.Principal, min(max(in.Times, 1), maxTimes))...)
	return list, nil
}
