package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

func newWorkflow(a *app) *cobra.Command {
	cmd := newGroup("workflow", "Run workflows and show their steps")
	cmd.AddCommand(newWorkflowRun(a), newWorkflowShow(a))
	return cmd
}

func newWorkflowRun(a *app) *cobra.Command {
	in := invocation{workflow: true}
	cmd := &cobra.Command{
		Use:   "run NAME [JSON|@FILE|-]",
		Short: "Start a workflow and wait for its result",
		Long: "Starts a workflow and waits for its end. The states of the steps are printed to standard\n" +
			"error, the result to standard output as JSON. SIGINT cancels the workflow. A second SIGINT\n" +
			"ends the command without waiting for the end of the workflow, which is being cancelled.\n\n" +
			"The lease must allow tool.call of the tools of the steps.",
		Example: "  arcp workflow run order.ship '{\"order\":\"o1\"}' --lease '{\"tool.call\":[\"*\"]}'",
		Args:    argsBetween(1, 2),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeWorkflows(a, t)
	in.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := in.request(a, args)
		if err != nil {
			return err
		}
		return withExitCode(a.invoke(cmd.Context(), t, req, in))
	}
	return cmd
}

// startWorkflow submits a workflow. The draft dialect has no workflow.start: a workflow is a tool there.
func startWorkflow(ctx context.Context, c *client.Client, req client.InvokeParams) (*client.Job, error) {
	if c.Session().Dialect != arcp.DialectRFC {
		return c.Invoke(ctx, req)
	}
	payload, err := arcp.Marshal(arcp.WorkflowStartPayload{Workflow: req.Tool, Arguments: req.Arguments.(arcp.Raw), SubmitOptions: req.Options})
	if err != nil {
		return nil, err
	}
	return c.Submit(ctx, arcp.Envelope{Type: arcp.WorkflowStart, IdempotencyKey: req.IdempotencyKey, Payload: payload})
}

func newWorkflowShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show JOB", Short: "Show the steps of a workflow and their states", Args: jobArgs(1, 1)}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeJobs(a, t)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		raw, err := getJob(ctx, c, arcp.JobID(args[0]))
		if err != nil {
			return err
		}
		var j arcp.JobView
		if err := arcp.Unmarshal(raw, &j); err != nil {
			return fmt.Errorf("read the job: %w", err)
		}
		view, err := readWorkflow(ctx, c, &j)
		if err != nil {
			return err
		}
		return a.printView(view.JobID, view, func() error { return view.print(a) })
	})
	return cmd
}

// workflowView has the steps of a workflow. It is the JSON of `arcp workflow show`.
type workflowView struct {
	JobID  arcp.JobID    `json:"job_id"`
	Agent  string        `json:"agent"`
	Status arcp.JobState `json:"status"`
	Steps  []*stepView   `json:"steps"`
}

type stepView struct {
	workflow.StepInfo
	stateView
	Items []*stateView `json:"items,omitempty"`
}

// stateView is the state of a step or of an item.
type stateView struct {
	State   workflow.State `json:"state"`
	Attempt int            `json:"attempt,omitzero"`
	Child   arcp.JobID     `json:"child_job_id,omitzero"`
	Code    arcp.Code      `json:"code,omitzero"`
}

// The states of steps without an event that says so.
const (
	statePending workflow.State = "pending" // it may still start
	stateNotRun  workflow.State = "not_run" // the workflow has ended before
	stateStopped workflow.State = "stopped" // it ran when the workflow ended
)

// readWorkflow reads the steps of a workflow from the past events of its job.
func readWorkflow(ctx context.Context, c *client.Client, j *arcp.JobView) (*workflowView, error) {
	view := &workflowView{JobID: j.JobID, Agent: j.Agent, Status: j.Status}
	job, err := c.SubscribeJob(ctx, client.SubscribeJobParams{JobID: j.JobID, History: true})
	if err != nil {
		return nil, err
	}
	for env, err := range job.Events(ctx) {
		if err != nil {
			return nil, err
		}
		if env.Type == arcp.EventEmit {
			view.apply(payload[arcp.EventEmitPayload](&env))
		}
		if !j.Status.Terminal() && eventNumber(&env) >= j.LastEventSeq {
			break
		}
	}
	if view.Steps == nil {
		return nil, failf("job %s is not a workflow that has started; `arcp jobs show %s` shows it", j.JobID, j.JobID)
	}
	if j.Status.Terminal() {
		view.end()
	}
	return view, nil
}

// apply applies an event of the job.
func (v *workflowView) apply(p arcp.EventEmitPayload) {
	switch p.Name {
	case workflow.EventSteps:
		var e workflow.StepsEvent
		if arcp.Unmarshal(p.Data, &e) != nil || v.Steps != nil {
			return
		}
		for _, s := range e.Steps {
			v.Steps = append(v.Steps, &stepView{StepInfo: s, stateView: stateView{State: statePending}})
		}
	case workflow.EventStep:
		var e workflow.StepEvent
		if arcp.Unmarshal(p.Data, &e) != nil {
			return
		}
		for _, s := range v.Steps {
			if s.Name == e.Step {
				s.apply(&e)
			}
		}
	}
}

func (s *stepView) apply(e *workflow.StepEvent) {
	state := &s.stateView
	if e.Item != nil {
		if *e.Item < 0 || *e.Item >= workflow.MaxItems {
			return
		}
		for len(s.Items) <= *e.Item {
			s.Items = append(s.Items, &stateView{State: statePending})
		}
		state = s.Items[*e.Item]
	}
	*state = stateView{e.State, e.Attempt, e.Child, e.Code}
}

// end replaces the states of steps that have not ended, after the end of the workflow.
func (v *workflowView) end() {
	for _, s := range v.Steps {
		for _, state := range append(s.Items, &s.stateView) {
			switch state.State {
			case statePending:
				state.State = stateNotRun
			case workflow.Running, workflow.Retrying, workflow.Compensating:
				state.State = stateStopped
			}
		}
	}
}

// stepRow is a row of `arcp workflow show`.
type stepRow struct {
	name, tool string
	*stateView
}

func (v *workflowView) print(a *app) error {
	var rows []stepRow
	for _, s := range v.Steps {
		rows = append(rows, stepRow{s.Name, s.Tool, &s.stateView})
		for i, item := range s.Items {
			rows = append(rows, stepRow{fmt.Sprintf("  %s[%d]", s.Name, i), "", item})
		}
	}
	if _, err := fmt.Fprintf(a.stdout, "%s  %s  %s\n", v.JobID, v.Agent, v.Status); err != nil {
		return err
	}
	return table(a.stdout, []column[stepRow]{
		{"STEP", func(r *stepRow) any { return r.name }},
		{"STATE", func(r *stepRow) any { return r.State }},
		{"TOOL", func(r *stepRow) any { return orDash(r.tool) }},
		{"JOB", func(r *stepRow) any { return orDash(string(r.Child)) }},
		{"ERROR", func(r *stepRow) any { return orDash(string(r.Code)) }},
	}, rows)
}

// describeStep returns the event of a step as one line.
func describeStep(data arcp.Raw) string {
	var e workflow.StepEvent
	_ = arcp.Unmarshal(data, &e) // the zero value of undecodable members is displayed
	name := e.Step
	if e.Item != nil {
		name += fmt.Sprintf("[%d]", *e.Item)
	}
	if e.State != workflow.Running && e.State != workflow.Compensating {
		e.Child = ""
	}
	attempt := ""
	if e.Attempt > 1 {
		attempt = fmt.Sprintf("attempt %d", e.Attempt)
	}
	return label("step", name, e.State, attempt, e.Code, e.Child)
}
