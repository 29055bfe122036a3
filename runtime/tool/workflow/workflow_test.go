package workflow_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// config returns a workflow named flow.
func config(steps map[string]workflow.Step, result any) workflow.Config {
	return workflow.Config{Capability: tool.Capability{Name: "flow"}, Steps: steps, Result: result}
}

func call(name string, arguments any) workflow.Call {
	return workflow.Call{Tool: name, Arguments: arguments}
}

// The error of a workflow that cannot run names the step and the defect.
func TestErrorsNameTheStep(t *testing.T) {
	x := call("x", nil)
	many := map[string]workflow.Step{}
	for i := range workflow.MaxSteps + 1 {
		many["s"+strings.Repeat("a", i%60)+strings.Repeat("b", i/60)] = workflow.Step{Call: x}
	}
	for _, c := range []struct {
		want  string
		steps map[string]workflow.Step
	}{
		{"0 steps; want 1 to 100", nil},
		{"101 steps; want 1 to 100", many},
		{`step "A": the name must match`, map[string]workflow.Step{"A": {Call: x}}},
		{`step "a-b": the name must match`, map[string]workflow.Step{"a-b": {Call: x}}},
		{`step a: needs: there is no step "b"`, map[string]workflow.Step{"a": {Call: x, Needs: []string{"b"}}}},
		{"steps a: they need each other", map[string]workflow.Step{"a": {Call: x, Needs: []string{"a"}}}},
		{"steps b, c: they need each other", map[string]workflow.Step{"a": {Call: x, Needs: []string{"b"}},
			"b": {Call: x, Needs: []string{"c"}}, "c": {Call: x, Needs: []string{"b"}}}},
		{"step a: want either tool or approval", map[string]workflow.Step{"a": {}}},
		{"step a: want either tool or approval", map[string]workflow.Step{"a": {Call: x, Approval: tool.ApprovalManual}}},
		{"step a: approval: it has no timeout, lease or retry", map[string]workflow.Step{"a": {Approval: tool.ApprovalManual, Timeout: time.Second}}},
		{"step a: approval: none approves nothing", map[string]workflow.Step{"a": {Approval: tool.ApprovalNone}}},
		{"step a: tool flow.a@1.0.0: approval: a quorum of 17", map[string]workflow.Step{"a": {Approval: tool.Approval{Mode: tool.ModeManual, Quorum: 17}}}},
		{"step a: tool: ", map[string]workflow.Step{"a": {Call: call("NO!", nil)}}},
		{"step a: parallel: there is no each", map[string]workflow.Step{"a": {Call: x, Parallel: 2}}},
		{"step a: parallel: want 1 to 16", map[string]workflow.Step{"a": {Call: x, Each: "[]", Parallel: 17}}},
		{"step a: timeout: it is negative", map[string]workflow.Step{"a": {Call: x, Timeout: -1}}},
		{"step a: retry: max_attempts must be from 1 to 10", map[string]workflow.Step{"a": {Call: x, Retry: tool.Retry{MaxAttempts: 11}}}},
		{"step a: on_failure: tool is missing", map[string]workflow.Step{"a": {Call: x, OnFailure: new(workflow.Call)}}},
		{"step a: on_failure: arguments: ", map[string]workflow.Step{"a": {Call: x, OnFailure: &workflow.Call{Tool: "y", Arguments: "=attempt"}}}},
		{"step a: when: character 9: the expression ends too early: want a value", map[string]workflow.Step{"a": {Call: x, When: "input &&"}}},
		{"step a: when: the expression gives int, not bool", map[string]workflow.Step{"a": {Call: x, When: "1"}}},
		{"step a: when: the expression has 5000 bytes", map[string]workflow.Step{"a": {Call: x, When: strings.Repeat(" ", 5000)}}},
		{"step a: when: character 1: undeclared reference to 'item'", map[string]workflow.Step{"a": {Call: x, When: "item == 1"}}},
		{"step a: each: character 2: the expression ends too early", map[string]workflow.Step{"a": {Call: x, Each: "["}}},
		{`step a: arguments: n: [1]: "=item": character 1: undeclared`, map[string]workflow.Step{"a": {Call: call("x", map[string]any{"n": []any{1, "=item"}})}}},
		{`step a: arguments: n: a value that JSON has not`, map[string]workflow.Step{"a": {Call: call("x", map[string]any{"n": func() {}})}}},
		{`step a: lease: "=value": character 1: undeclared`, map[string]workflow.Step{"a": {Call: workflow.Call{Tool: "x", Lease: "=value"}}}},
		{"step a: arguments: \"=steps.b.value\": steps.b: not a step that comes before: add it to needs",
			map[string]workflow.Step{"a": {Call: call("x", "=steps.b.value")}, "b": {Call: x}}},
		{"step a: when: steps.a: not a step that comes before", map[string]workflow.Step{"a": {Call: x, When: "has(steps.a.value)"}}},
	} {
		if _, err := workflow.New(config(c.steps, nil)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v\nwant %q", err, c.want)
		}
	}
	if _, err := workflow.New(config(map[string]workflow.Step{"a": {Call: x}}, "=steps.b")); err == nil || !strings.HasPrefix(err.Error(), "result: ") {
		t.Errorf("a result of an unknown step: %v", err)
	}
	if _, err := workflow.New(workflow.Config{Capability: tool.Capability{Name: "NO!"}, Steps: map[string]workflow.Step{"a": {Call: x}}}); err == nil {
		t.Error("an invalid name of a workflow is accepted")
	}
}

func TestToolsOfAWorkflow(t *testing.T) {
	tools, err := workflow.New(workflow.Config{Capability: tool.Capability{Name: "flow", Version: "2.0.0", MinTrust: "trusted"},
		Steps: map[string]workflow.Step{"a": {Call: call("x", nil)}, "ok": {Approval: tool.ApprovalManual}}})
	if err != nil {
		t.Fatal(err)
	}
	flow, ok := tools[0], tools[1]
	if len(tools) != 2 || flow.Ref() != "flow@2.0.0" || flow.Recovery != tool.RecoveryCheckpoint || flow.Limits.Timeout > 0 || flow.Limits.Concurrency > 0 {
		t.Errorf("%+v", flow.Capability)
	}
	if ok.Ref() != "flow.ok@2.0.0" || ok.Approval != tool.ApprovalManual || ok.MinTrust != "trusted" || ok.Recovery != tool.RecoveryRerun {
		t.Errorf("%+v", ok.Capability)
	}
	var published []*tool.Tool
	s := workflow.NewSource([]workflow.Config{config(map[string]workflow.Step{"a": {Call: call("x", nil)}}, nil)})
	defer s.Close()
	err = s.Start(t.Context(), func(all []*tool.Tool) error { published = all; return nil })
	s2 := workflow.NewSource([]workflow.Config{config(map[string]workflow.Step{"b": {Call: call("x", nil), OnFailure: &workflow.Call{Tool: "z"}},
		"a": {Call: call("y@2.0.0", nil)}, "c": {Approval: tool.ApprovalManual}}, nil)})
	missing := s2.Missing(func(ref string) bool { return ref == "x" })
	if want := []string{"step a of flow: y@2.0.0", "step b of flow: z"}; !slices.Equal(missing, want) {
		t.Errorf("missing tools %q, want %q", missing, want)
	}
	if err != nil || len(published) != 1 || published[0].Name != "flow" || s.Prefix() != "" || s.Name() == "" {
		t.Errorf("the source publishes %v: %v", published, err)
	}
}
