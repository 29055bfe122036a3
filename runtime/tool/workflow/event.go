package workflow

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// The names of the events of a workflow. An attempt that repeats the steps repeats their events: the last
// event of a step and item has its state.
const (
	EventSteps = "workflow.steps" // a StepsEvent, at the start of an attempt
	EventStep  = "workflow.step"  // a StepEvent
)

// StepsEvent lists the steps of a workflow, each behind those that it needs.
type StepsEvent struct {
	Steps []StepInfo `json:"steps"`
}

// StepInfo describes a step.
type StepInfo struct {
	Name  string   `json:"name"`
	Tool  string   `json:"tool"`
	Needs []string `json:"needs,omitzero"`
}

// State is the state of a step, or of a call for an item.
type State string

// The states.
const (
	Running            State = "running"
	Retrying           State = "retrying" // the call has failed, and another attempt follows
	Completed          State = "completed"
	Skipped            State = "skipped"
	Failed             State = "failed"
	Compensating       State = "compensating"
	Compensated        State = "compensated"
	CompensationFailed State = "compensation_failed"
)

// StepEvent is a change of the state of a step.
type StepEvent struct {
	Step    string     `json:"step"`
	Item    *int       `json:"item,omitzero"` // index in Step.Each; nil: the step itself
	State   State      `json:"state"`
	Attempt int        `json:"attempt,omitzero"`      // of the call, from 1
	Child   arcp.JobID `json:"child_job_id,omitzero"` // of the call that runs or has ended
	Code    arcp.Code  `json:"code,omitzero"`         // of the failure
}

// emit emits an event. An error means that the job has ended, which the context reports.
func emit(job tool.Job, e StepEvent) { _ = job.Emit(EventStep, e) }

// emitSteps emits the steps of the workflow.
func (g *graph) emitSteps(job tool.Job) {
	var all StepsEvent
	for _, s := range g.steps {
		info := StepInfo{Name: s.name, Tool: s.call.tool}
		for _, need := range s.needs {
			info.Needs = append(info.Needs, need.name)
		}
		all.Steps = append(all.Steps, info)
	}
	_ = job.Emit(EventSteps, all) // as emit
}
