package chaos

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// workflowSteps are the tools of the steps of the workflow. The compensation of charge is the effect
// refund, by the tool Rerun.
var workflowSteps = map[string]Kind{"charge": Once, "count": Count, "pack": Rerun, "ship": Once}

const refund = "refund"

// Effect is an effect of a step outside of the server: a line of Config.Effects.
type Effect struct {
	Job    arcp.JobID // the call
	Marker string     // of the workflow
	Step   string     // a step, or refund
}

// workflowTask returns a random task that runs the workflow.
func workflowTask(rnd *rand.Rand, mark string) Task {
	n := 1 + rnd.IntN(10)
	return Task{Kind: Workflow, Marker: mark, N: n, Start: rnd.IntN(2) == 0, Arguments: fmt.Sprintf(`{"mark":%q,"to":%d}`, mark, n)}
}

// readEffects reads the effects of all workflows.
func readEffects(path string) (list []Effect, err error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) { // without effects there is no file
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var p struct {
			Marker string `json:"mark"`
			Step   string `json:"step"`
		}
		job, arguments, _ := strings.Cut(string(line), " ")
		if err := arcp.Unmarshal(arcp.Raw(strings.TrimSpace(arguments)), &p); err != nil {
			return nil, fmt.Errorf("%s: line %q: %w", path, line, err)
		}
		list = append(list, Effect{arcp.JobID(job), p.Marker, p.Step})
	}
	return list, nil
}

// stepped records the state of a step.
func (ex *expectation) stepped(data arcp.Raw) string {
	var p struct {
		Step  string `json:"step"`
		State string `json:"state"`
	}
	if err := arcp.Unmarshal(data, &p); err != nil || workflowSteps[p.Step] == "" {
		return fmt.Sprintf("the step %s (%v)", data, err)
	}
	if ex.steps == nil {
		ex.steps = make(map[string]string)
	}
	ex.steps[p.Step] = p.State
	return ""
}

// flowed checks the result of a workflow.
func (ex *expectation) flowed(value arcp.Raw) string {
	if !strings.Contains(string(value), ex.task.Marker) {
		return fmt.Sprintf("the workflow of %s completed with %s", ex.task.Marker, value)
	}
	for _, step := range slices.Sorted(maps.Keys(workflowSteps)) {
		if state := ex.steps[step]; state != "completed" {
			return fmt.Sprintf("the workflow completed, and its step %s is %q", step, state)
		}
	}
	return ""
}

// effects checks the effects of each workflow (docs/workflows.md). A call is never repeated, so all
// effects of a step are those of one job. A call of Once has its effect at most once.
func (c *comparison) effects(streams []*Stream, list []Effect) {
	workflows := make(map[string]*jobRecord) // by marker
	for _, s := range streams {
		for _, submit := range s.Submits {
			if submit.Kind == Workflow && submit.Job != "" {
				workflows[submit.Marker] = c.job(submit.Job)
			}
		}
	}
	calls := make(map[Effect][]arcp.JobID) // by marker and step
	for _, e := range list {
		step := Effect{Marker: e.Marker, Step: e.Step}
		calls[step] = append(calls[step], e.Job)
		if workflows[e.Marker] == nil {
			c.find(RuleEffect, "the effects", "%s of %s has an effect, which no submit wanted", e.Step, e.Marker)
		}
	}
	for marker, w := range workflows {
		for step, kind := range workflowSteps {
			if kind != Count {
				c.effect(w, marker, step, kind, calls[Effect{Marker: marker, Step: step}])
			}
		}
		c.effect(w, marker, refund, Rerun, calls[Effect{Marker: marker, Step: refund}])
	}
}

// effect checks the effects of one step, each with its job.
func (c *comparison) effect(w *jobRecord, marker, step string, kind Kind, calls []arcp.JobID) {
	if len(calls) > 1 && (kind == Once || len(slices.Compact(slices.Sorted(slices.Values(calls)))) > 1) {
		c.find(RuleEffect, w.principal, "the step %s of %s has the effects of %v", step, marker, calls)
	}
	if w.source == nil || w.end == nil {
		return
	}
	state := w.source.expected.steps["ship"]
	failed := state == "failed" // charge had completed: it is refunded, unless a cancel comes before
	completed := w.end.Type == arcp.JobCompleted || w.end.Type == arcp.WorkflowComplete
	switch {
	case step == refund && len(calls) > 0 && !failed,
		step == refund && len(calls) == 0 && failed && !endsCancelled(w.end.Type),
		step != refund && completed && len(calls) == 0:
		c.find(RuleEffect, w.principal, "the step %s of %s has %d effects; the workflow ended with %s, ship is %s",
			step, marker, len(calls), w.end.Type, cmp.Or(state, "not reached"))
	}
}
