package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// compileGraph checks and compiles the steps of a workflow. The error joins the first error of each step.
func compileGraph(c *Config) (*graph, error) {
	if n := len(c.Steps); n == 0 || n > MaxSteps {
		return nil, fmt.Errorf("%d steps; want 1 to %d", n, MaxSteps)
	}
	names, err := order(c.Steps)
	if err != nil {
		return nil, err
	}
	g := &graph{name: c.Name}
	var failures []error
	byName := make(map[string]*step)
	for _, name := range names {
		def := c.Steps[name]
		s, err := compileStep(name, &def, byName)
		if err != nil {
			failures = append(failures, keyError("steps", keyError(name, err)))
		}
		if def.Tool == "" {
			s.call.tool = approvalName(c.Name, name) + "@" + cmp.Or(c.Version, tool.DefaultVersion)
		}
		byName[name] = s
		g.steps = append(g.steps, s)
	}
	if g.result, err = compileTemplate(c.Result, scope{steps: byName}); err != nil {
		failures = append(failures, keyError("result", err))
	}
	if len(failures) > 0 {
		return nil, errors.Join(failures...)
	}
	return g, nil
}

// order returns the names of the steps, each behind those that it needs.
func order(steps map[string]Step) ([]string, error) {
	var names []string
	pending := slices.Sorted(maps.Keys(steps))
	for _, name := range pending {
		if !stepName.MatchString(name) {
			return nil, fmt.Errorf("step %.40q: the name must match %s", name, stepName)
		}
		for _, need := range steps[name].Needs {
			if _, ok := steps[need]; !ok {
				return nil, keyError("steps", keyError(name, keyError("needs", fmt.Errorf("there is no step %.40q", need))))
			}
		}
	}
	waits := func(name string) bool {
		return slices.ContainsFunc(steps[name].Needs, func(need string) bool { return !slices.Contains(names, need) })
	}
	for len(pending) > 0 {
		i := slices.IndexFunc(pending, func(name string) bool { return !waits(name) })
		if i < 0 {
			return nil, fmt.Errorf("steps %s: they need each other", strings.Join(cycle(steps, pending), ", "))
		}
		names = append(names, pending[i])
		pending = slices.Delete(pending, i, i+1)
	}
	return names, nil
}

// cycle returns the steps of a cycle among steps that each need one of them.
func cycle(steps map[string]Step, pending []string) []string {
	var path []string
	for name := pending[0]; ; {
		if i := slices.Index(path, name); i >= 0 {
			return path[i:]
		}
		path = append(path, name)
		needs := steps[name].Needs
		name = needs[slices.IndexFunc(needs, func(need string) bool { return slices.Contains(pending, need) })]
	}
}

// compileStep checks and compiles a step. byName has the steps that it may need. With an error the step has its
// ancestors, for the steps that need it.
func compileStep(name string, def *Step, byName map[string]*step) (*step, error) {
	s := &step{name: name, parallel: cmp.Or(def.Parallel, MaxCalls), timeout: def.Timeout, ancestors: make(map[string]*step)}
	for _, need := range def.Needs {
		n := byName[need]
		s.needs = append(s.needs, n)
		s.ancestors[need] = n
		maps.Copy(s.ancestors, n.ancestors)
	}
	err := def.check()
	if err != nil {
		return s, err
	}
	if s.retry, err = def.Retry.Complete(); err != nil {
		return s, err
	}
	return s, s.compile(def)
}

// compile compiles the expressions of a step.
func (s *step) compile(def *Step) (err error) {
	sc := scope{steps: s.ancestors}
	if s.when, err = compileOptional(def.When, sc, true); err != nil {
		return keyError("when", err)
	}
	if s.each, err = compileOptional(def.Each, sc, false); err != nil {
		return keyError("each", err)
	}
	sc.item, sc.attempt = s.each != nil, true
	if s.call, err = compileCall(&def.Call, sc); err != nil {
		return err
	}
	if def.OnFailure == nil {
		return nil
	}
	sc.attempt, sc.value = false, true
	undo, err := compileCall(def.OnFailure, sc)
	if err != nil {
		return keyError("on_failure", err)
	}
	s.onFailure = &undo
	return nil
}

// check returns an error for an inconsistent step.
func (s *Step) check() error {
	approval := s.Approval != tool.Approval{}
	switch {
	case (s.Tool != "") == approval:
		return errors.New("want either tool or approval")
	case approval && (s.Timeout != 0 || s.Lease != nil || s.Retry != tool.Retry{}):
		return errors.New("approval: it has no timeout, lease or retry")
	case s.Each == "" && s.Parallel != 0:
		return errors.New("parallel: there is no each")
	case s.Parallel < 0 || s.Parallel > MaxCalls:
		return fmt.Errorf("parallel: want 1 to %d", MaxCalls)
	case s.Timeout < 0:
		return errors.New("timeout: it is negative")
	case s.OnFailure != nil && s.OnFailure.Tool == "":
		return errors.New("on_failure: tool is missing")
	}
	return nil
}

func compileOptional(text string, sc scope, condition bool) (*expression, error) {
	if text == "" {
		return nil, nil
	}
	return compileExpression(text, sc, condition)
}

func compileCall(c *Call, sc scope) (compiled call, err error) {
	compiled.tool = c.Tool
	if c.Tool != "" {
		if _, err := arcp.ParseAgentRef(c.Tool); err != nil {
			return compiled, keyError("tool", err)
		}
	}
	arguments := c.Arguments
	if arguments == nil {
		arguments = map[string]any{}
	}
	if compiled.arguments, err = compileTemplate(arguments, sc); err != nil {
		return compiled, keyError("arguments", err)
	}
	if compiled.lease, err = compileTemplate(c.Lease, sc); err != nil {
		return compiled, keyError("lease", err)
	}
	return compiled, nil
}
