package toolset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// LoadWorkflows reads the setting workflows, and compiles the workflows. The error has every mistake, with its position
// in the file.
func LoadWorkflows(v *settings.Values) ([]workflow.Config, error) {
	items, err := listOf(v, "workflows", "- name: …")
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Dir(v.File))
	if err != nil {
		return nil, fmt.Errorf("workflows: %w", err)
	}
	configs := make([]workflow.Config, len(items))
	where := make(map[string]string) // by index
	first := make(map[string]string) // where, by the reference of a tool
	var list settings.Mistakes
	for i, item := range items {
		index := strconv.Itoa(i)
		where[index] = fmt.Sprintf("workflows[%d]", i)
		if name, ok := nameIn(item).(string); ok && name != "" {
			where[index] += fmt.Sprintf(" (%.64s)", name)
		}
		tools, err := parseWorkflow(item, dir, &configs[i])
		list.Add(err, index)
		for _, t := range tools {
			if other, ok := first[t.Ref()]; ok {
				list = append(list, settings.MistakeAt(settings.Position{Path: []string{index}}, fmt.Sprintf("%s has the same tool %s: choose another", other, t.Ref())))
				break
			}
			first[t.Ref()] = where[index]
		}
	}
	return configs, v.Locate(list, "workflows", func(index string) string { return where[index] })
}

// parseWorkflow reads a workflow, and returns its tools.
func parseWorkflow(item any, dir string, c *workflow.Config) ([]*tool.Tool, error) {
	var list settings.Mistakes
	list.Add(keys{
		"name":          text(&c.Name),
		"version":       text(&c.Version),
		"description":   text(&c.Description),
		"input_schema":  schema(&c.InputSchema, dir),
		"output_schema": schema(&c.OutputSchema, dir),
		"side_effect":   oneOf(&c.SideEffect, tool.SideEffects),
		"limits":        func(v any) error { return callLimits(v, &c.Limits) },
		"approval":      approval(&c.Approval),
		"min_trust":     oneOf(&c.MinTrust, arcp.TrustLevels),
		"steps":         func(v any) error { return workflowSteps(v, &c.Steps) },
		"result":        document(&c.Result),
	}.read(item, "name", "steps"))
	if !hasMistake(list, "version") {
		c.Version = cmp.Or(c.Version, tool.DefaultVersion)
	}
	list.Add(checkTool(c.Capability, list))
	if len(list) > 0 {
		list.Add(checkSteps(c, list))
		return nil, list
	}
	tools, err := workflow.New(*c)
	return tools, stepErrors(err)
}

// checkSteps returns the errors of the steps of a workflow with mistakes. A step with a mistake counts as one that
// calls a tool.
func checkSteps(c *workflow.Config, found settings.Mistakes) error {
	if len(c.Steps) == 0 {
		return nil
	}
	probe := workflow.Config{Capability: tool.Capability{Name: unnamed}, Steps: maps.Clone(c.Steps), Result: c.Result}
	for _, m := range found {
		if path := m.Path(); len(path) > 1 && path[0] == "steps" {
			if len(path) > 2 && path[2] == "needs" { // what the other steps may refer to is unknown
				return nil
			}
			probe.Steps[path[1]] = workflow.Step{Call: workflow.Call{Tool: unnamed}, Needs: c.Steps[path[1]].Needs}
		}
	}
	_, err := workflow.New(probe)
	return stepErrors(err)
}

// stepErrors returns each error that err joins, at the path of its key.
func stepErrors(err error) error {
	var list settings.Mistakes
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		if e, ok := errors.AsType[*workflow.KeyError](err); ok {
			list.Add(e.Err, e.Path...)
		} else if err != nil {
			list.Add(err)
		}
	}
	return list.OrNil()
}

// workflowSteps reads steps by name. The names are used unchanged.
func workflowSteps(v any, steps *map[string]workflow.Step) error {
	m, ok := v.(map[string]any)
	if !ok {
		return errors.New("want a mapping of names to steps")
	}
	*steps = make(map[string]workflow.Step, len(m))
	var list settings.Mistakes
	for _, name := range slices.Sorted(maps.Keys(m)) {
		s, err := workflowStep(m[name])
		list.Add(err, name)
		(*steps)[name] = s
	}
	return list.OrNil()
}

func workflowStep(v any) (workflow.Step, error) {
	var s workflow.Step
	var timeout int64
	fields := callKeys(&s.Call)
	fields["approval"] = approval(&s.Approval)
	fields["needs"] = func(v any) (err error) { s.Needs, err = texts(v); return err }
	fields["when"] = text(&s.When)
	fields["each"] = text(&s.Each)
	fields["parallel"] = integerIn(&s.Parallel, 1, workflow.MaxCalls)
	fields["retry"] = func(v any) error { return retry(v, &s.Retry) }
	fields["timeout_ms"] = integerIn(&timeout, 1, millisecondsIn)
	fields["on_failure"] = func(v any) error {
		s.OnFailure = new(workflow.Call)
		return callKeys(s.OnFailure).read(v, "tool")
	}
	err := fields.read(v)
	s.Timeout = time.Duration(timeout) * time.Millisecond
	return s, err
}

func callKeys(c *workflow.Call) keys {
	return keys{"tool": text(&c.Tool), "arguments": document(&c.Arguments), "lease": document(&c.Lease)}
}

// document reads any JSON.
func document(dst *any) func(any) error {
	return func(v any) error {
		if _, err := arcp.Marshal(v); err != nil {
			return errors.New("it has something that JSON has not: keys that are no texts, or numbers that are none")
		}
		*dst = v
		return nil
	}
}
