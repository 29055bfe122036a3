package toolset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
		c.Version = cmp.Or(c.Version, tool.DefaultVersion)
		err = checkName(c.Name)
	}
	if err != nil {
		return nil, err
	}
	tools, err := workflow.New(*c)
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " ")) // an error of a schema has several lines
	}
	return tools, nil
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
