// Package workflow makes tools whose body is a graph of steps. Each step calls another tool as a
// child job of the workflow's job.
//
//   - Steps run in parallel as far as Step.Needs allows, at most MaxCalls calls at once.
//   - Each call has a key that consists of the names of its step, item and attempt. An attempt
//     after a crash finds the children of the earlier attempts, and calls nothing twice.
//   - The first step that fails fails the workflow. The calls that run then are awaited, and the
//     compensations of the completed calls run in the reverse order of completion.
//   - The compensations are saved in a checkpoint before the first of them runs. An attempt after a
//     crash continues with them.
//   - The error of a workflow is not retryable: another attempt of its job would not repeat the steps.
//   - A job that is cancelled or out of time runs no compensations, because it cannot call tools.
//
// The states of the steps are events of the job; see StepEvent.
package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of a workflow.
const (
	MaxSteps    = 100
	MaxItems    = 1000     // of Step.Each
	MaxChildren = 1000     // calls of a job with all attempts and compensations: the runtime's bound of children
	MaxCalls    = 16       // calls that run at once
	MaxValues   = 16 << 20 // bytes of the results of all calls of a job

	// MaxCompensation bounds an encoded compensation, in bytes, and MaxCompensations all
	// compensations of a job, because a checkpoint is bounded.
	MaxCompensation  = 8 << 10
	MaxCompensations = 256 << 10
)

// Config describes a workflow. In a template, a text that begins with = is a CEL expression, and its
// value replaces the text. The variables of the expressions are:
//
//   - input: the arguments of the workflow
//   - steps: by name, the value and the state of each step that the step depends on
//   - item: the item, in a step with Each
//   - attempt: the number of the attempt, in Arguments and Lease of a step
//   - value: the result of the call, in OnFailure
type Config struct {
	// Capability describes the tool. The default of Limits.Timeout and Limits.Concurrency is no
	// limit. New sets Recovery.
	tool.Capability

	Steps  map[string]Step // by name
	Result any             // template of the result; nil: null
}

// Step is a step of a workflow. Either Call.Tool or Approval is set.
type Step struct {
	Call

	// Approval is the policy of a step that waits for an approval. The step calls the tool
	// WORKFLOW.STEP, which has the policy and returns its arguments.
	Approval tool.Approval

	Needs     []string      // names of the steps that end before the step starts
	When      string        // expression: whether the step runs; "": every step of Needs has completed
	Each      string        // expression: a list, for each item of which the step calls its tool; "": one call
	Parallel  int           // calls of Each that run at once; 0: MaxCalls
	Retry     tool.Retry    // of calls that fail with a retryable error
	Timeout   time.Duration // run time of each call; 0: no limit
	OnFailure *Call         // compensation of each completed call; nil: none
}

// Call is a call of a tool.
type Call struct {
	Tool      string // name or name@version
	Arguments any    // template; nil: {}
	Lease     any    // template of the lease_request; nil: no authority
}

// graph is a compiled workflow.
type graph struct {
	name   string
	steps  []*step // needs before the steps that need them
	result template
}

// step is a compiled step.
type step struct {
	name      string
	call      call
	needs     []*step
	ancestors map[string]*step // that the expressions may use
	when      *expression
	each      *expression
	parallel  int
	retry     tool.Retry
	timeout   time.Duration
	onFailure *call
}

// call is a compiled call.
type call struct {
	tool             string
	arguments, lease template
}

// New returns the tool of a workflow, and the tools of its approvals. An error about the value of a key is a *KeyError;
// the error may join several.
func New(c Config) ([]*tool.Tool, error) {
	c.Recovery = tool.RecoveryCheckpoint
	c.Limits.Timeout = cmp.Or(c.Limits.Timeout, -1)
	c.Limits.Concurrency = cmp.Or(c.Limits.Concurrency, -1)
	g, err := compileGraph(&c)
	if err != nil {
		return nil, err
	}
	made, err := tool.NewRaw(c.Capability, g.run)
	if err != nil {
		return nil, err
	}
	tools := []*tool.Tool{made}
	for _, s := range g.steps {
		if policy := c.Steps[s.name].Approval; policy != (tool.Approval{}) {
			t, err := newApproval(&made.Capability, s, policy)
			if err != nil {
				return nil, keyError("steps", keyError(s.name, err))
			}
			tools = append(tools, t)
		}
	}
	return tools, nil
}

// newApproval returns the tool that waits for the approval of a step.
func newApproval(c *tool.Capability, s *step, policy tool.Approval) (*tool.Tool, error) {
	if policy.Mode == tool.ModeNone {
		return nil, errors.New("approval: none approves nothing: want manual or auto")
	}
	return tool.NewRaw(tool.Capability{
		Name:        approvalName(c.Name, s.name),
		Version:     c.Version,
		Description: fmt.Sprintf("Approves the step %s of the workflow %s. Returns its arguments.", s.name, c.Name),
		SideEffect:  tool.SideEffectNone,
		Recovery:    tool.RecoveryRerun,
		Limits:      tool.Limits{Timeout: -1, Concurrency: -1},
		Approval:    policy,
		MinTrust:    c.MinTrust,
		Audience:    c.Audience,
	}, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) { return args, nil })
}

func approvalName(workflow, step string) string { return workflow + "." + step }

var stepName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// Source publishes workflows as tools. It implements tool.Source.
type Source struct{ configs []Config }

// NewSource returns a source of workflows for which New returns no error.
func NewSource(configs []Config) *Source { return &Source{configs} }

// Name returns "workflow".
func (s *Source) Name() string { return "workflow" }

// Prefix returns "": workflows have the names of their configuration.
func (s *Source) Prefix() string { return "" }

// Start publishes the tools.
func (s *Source) Start(_ context.Context, publish func([]*tool.Tool) error) error {
	var all []*tool.Tool
	for _, c := range s.configs {
		tools, err := New(c)
		if err != nil {
			return err
		}
		all = append(all, tools...)
	}
	return publish(all)
}

// Missing returns the steps that call a tool for which exists returns false, as "step S of W: TOOL".
func (s *Source) Missing(exists func(ref string) bool) (missing []string) {
	for _, c := range s.configs {
		for _, name := range slices.Sorted(maps.Keys(c.Steps)) {
			step := c.Steps[name]
			calls := []Call{step.Call}
			if step.OnFailure != nil {
				calls = append(calls, *step.OnFailure)
			}
			for _, call := range calls {
				if call.Tool != "" && !exists(call.Tool) {
					missing = append(missing, fmt.Sprintf("step %s of %s: %s", name, c.Name, call.Tool))
				}
			}
		}
	}
	return missing
}

// Close does nothing, because a workflow is a function in this process.
func (s *Source) Close() {}
