package builtin

import (
	"cmp"
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/schedule"
)

// maxTimes bounds the times of schedule.next, and of each schedule in schedule.list.
const maxTimes = 100

type scheduleCreateIn struct {
	Job  scheduledJob `json:"job" jsonschema:"description=the message to send at each time"`
	When scheduleWhen `json:"when" jsonschema:"description=exactly one of at, every and after"`
}

type scheduledJob struct {
	Type    string         `json:"type" jsonschema:"enum=tool.invoke|workflow.start"`
	Payload map[string]any `json:"payload" jsonschema:"description=the payload of the message"`
}

type scheduleWhen struct {
	At    string  `json:"at,omitzero" jsonschema:"description=one time,format=date-time"`
	Every string  `json:"every,omitzero" jsonschema:"description=an RRULE of RFC 5545, with a line DTSTART before it at most"`
	After float64 `json:"after,omitzero" jsonschema:"description=seconds from now,minimum=0"`
}

type scheduleListIn struct {
	Times int `json:"times,omitzero" jsonschema:"description=next times of each schedule; default 1,minimum=1,maximum=100"`
}

type scheduleList struct {
	Schedules []arcp.ScheduleView `json:"schedules"`
}

type scheduleNextIn struct {
	JobID arcp.JobID `json:"job_id,omitzero" jsonschema:"description=a schedule of the caller"`
	Every string     `json:"every,omitzero" jsonschema:"description=a rule, in place of job_id"`
	Times int        `json:"times,omitzero" jsonschema:"description=default 5,minimum=1,maximum=100"`
}

type scheduleNext struct {
	Next []time.Time `json:"next"`
}

type scheduleTools struct{ engine *engine.Engine }

func (t *scheduleTools) register(r *registrar) {
	register(r, waitTool(engine.ScheduleTool, "submits a job at a later time or repeatedly; the call ends with the schedule"), r.callers.find, t.create)
	register(r, readTool("schedule.list", "the schedules of the caller that have not ended, the oldest first"), r.callers.find, t.list)
	register(r, readTool("schedule.next", "the next times of a schedule of the caller, or of a rule"), r.callers.find, t.next)
}

// next returns the next times of a schedule or of a rule.
func (t *scheduleTools) next(_ context.Context, caller *Caller, in scheduleNextIn) (scheduleNext, error) {
	n := min(cmp.Or(max(in.Times, 0), 5), maxTimes)
	switch {
	case (in.JobID == "") == (in.Every == ""):
		return scheduleNext{}, arcp.Errorf(arcp.CodeInvalidArgument, "give job_id or every")
	case in.Every != "":
		plan, first, refused := schedule.New(&arcp.When{Every: in.Every}, time.Now())
		if refused != nil {
			return scheduleNext{}, refused
		}
		return scheduleNext{plan.Upcoming(first, n, schedule.NewBudget())}, nil
	}
	if list := t.engine.Schedules(caller.Principal, in.JobID, n); len(list) > 0 {
		return scheduleNext{list[0].Next}, nil
	}
	return scheduleNext{}, arcp.Errorf(arcp.CodeNotFound, "no such schedule: it has ended, or %s is none", in.JobID)
}

// create is never called: the engine keeps a job of the tool queued until its schedule ends.
func (t *scheduleTools) create(context.Context, *Caller, scheduleCreateIn) (arcp.ScheduleResult, error) {
	return arcp.ScheduleResult{}, arcp.Errorf(arcp.CodeInternal, "%s was called", engine.ScheduleTool)
}

func (t *scheduleTools) list(_ context.Context, caller *Caller, in scheduleListIn) (scheduleList, error) {
	list := scheduleList{Schedules: []arcp.ScheduleView{}}
	list.Schedules = append(list.Schedules, t.engine.Schedules(caller.Principal, "", min(max(in.Times, 1), maxTimes))...)
	return list, nil
}
