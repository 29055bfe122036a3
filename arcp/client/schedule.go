package client

import (
	"context"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
)

// ScheduleParams is a job to submit at a later time or repeatedly.
type ScheduleParams struct {
	InvokeParams           // job of each occurrence; JobID and Options.Direct must not be set
	When         arcp.When // exactly one member is set
}

// Schedules submits jobs at later times.
type Schedules struct{ c *Client }

// SchedulesOf returns the methods for the schedules of the principal of a client.
func SchedulesOf(c *Client) Schedules { return Schedules{c} }

// Add schedules a job and waits until the schedule is accepted. A refusal is a *RemoteError. The
// returned job is the schedule: it ends with the outcome of its job or, with When.Every, with an
// arcp.ScheduleResult. Client.Cancel ends the schedule.
//
// IdempotencyKey, ID and DiscardEvents are of the schedule. In the draft dialect Add calls the tool
// schedule.create.
func (s Schedules) Add(ctx context.Context, p ScheduleParams) (*Job, error) {
	env, err := p.envelope()
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	payload, err := arcp.Marshal(arcp.JobSchedulePayload{Job: arcp.ScheduledJob{Type: env.Type, Payload: env.Payload}, When: p.When})
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", p.Tool, err)
	}
	if s.c.opts.Dialect == arcp.DialectDraft {
		call := p.InvokeParams
		call.Tool, call.Arguments, call.Options = scheduleTool, payload, arcp.SubmitOptions{}
		return s.c.Invoke(ctx, call)
	}
	env.Type, env.Payload = arcp.JobSchedule, payload
	return s.c.submit(ctx, env, p.DiscardEvents, false)
}

// scheduleTool is the tool that is the same as job.schedule.
const scheduleTool = "schedule.create"
