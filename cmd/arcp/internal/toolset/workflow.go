package toolset

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// LoadWorkflows reads the setting workflows, and compiles the workflows.
func LoadWorkflows(v *settings.Values) ([]workflow.Config, error) {
	configs, err := parseWorkflows(v.Block("workflows"), filepath.Dir(v.File))
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", v.File, err)
	}
	return configs, nil
}

func parseWorkflows(raw any, dir string) ([]workflow.Config, error) {
	if raw == nil || raw == "" {
		return nil, nil
	}
	items, ok := raw.([]any)
	switch {
	case !ok:
		return nil, errors.New("workflows: want a list of mappings: - name: …")
	case len(items) > maxEntries:
		return nil, fmt.Errorf("workflows: %d entries: at most %d are supported", len(items), maxEntries)
	}
	configs := make([]workflow.Config, len(items))
	first := make(map[string]string)
	for i, item := range items {
		where := fmt.Sprintf("workflows[%d]", i)
		if name, ok := nameIn(item).(string); ok && name != "" {
			where += fmt.Sprintf(" (%.64s)", name)
		}
		tools, err := parseWorkflow(item, dir, &configs[i])
		if err != nil {
			return nil, fmt.Errorf("%s%w", where, err)
		}
		for _, t := range tools {
			if other, ok := first[t.Ref()]; ok {
				return nil, fmt.Errorf("%s: %s has the same tool %s: choose another", where, other, t.Ref())
			}
			first[t.Ref()] = where
		}
	}
	return configs, nil
}

// parseWorkflow reads a workflow, and returns its tools.
func parseWorkflow(item any, dir string, c *workflow.Config) ([]*tool.Tool, error) {
	err := keys{
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
	}.read(item, "name", "steps")
	if err == nil {
		err = checkName(c.Name)
	}
	if err != nil {
		return nil, err
	}
	tools, err := workflow.New(*c)
	if err != nil {
		return nil, fmt.Errorf(": %s", strings.Join(strings.Fields(err.Error()), " ")) // an error of a schema has several lines
	}
	return tools, nil
}

// workflowSteps reads steps by name. The names are used unchanged.
func workflowSteps(v any, steps *map[string]workflow.Step) error {
	m, ok := v.(map[string]any)
	if !ok {
		return errors.New(": want a mapping of names to steps")
	}
	*steps = make(map[string]workflow.Step, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		s, err := workflowStep(m[name])
		if err != nil {
			return fmt.Errorf(".%.64s%w", name, err)
		}
		(*steps)[name] = s
	}
	return nil
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
			return errors.New(": it has something that JSON has not: keys that are no texts, or numbers that are none")
		}
		*dst = v
		return nil
	}
}
