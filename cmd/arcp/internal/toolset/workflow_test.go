package toolset_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/cmd/arcp/internal/toolset"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// loadWorkflows reads a configuration file with this below workflows:, as a server does.
func loadWorkflows(t *testing.T, text string) ([]workflow.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "arcp.yaml")
	if err := os.WriteFile(path, []byte("workflows:\n"+text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	settings.AddFlags(flags, nil)
	v, err := settings.Load(settings.Input{Flags: flags, Search: []string{path}})
	if err != nil {
		return nil, err
	}
	return toolset.LoadWorkflows(v)
}

const order = `
  - name: order.ship
    version: 1.2.0
    description: ships an order
    input-schema: {type: object, required: [items]}
    output_schema: {type: object}
    side_effect: database
    min_trust: trusted
    approval: manual
    limits: {timeout_ms: 60000, concurrency: 2}
    steps:
      charge:
        tool: shop.charge@2.0.0
        arguments: {some-key: "=input.items", n: 1.5, deep: [{a: null}]}
        lease: {net.fetch: ["https://shop/**"]}
        retry: {max_attempts: 3, initial_ms: 500}
        timeout_ms: 1500
        on_failure: {tool: shop.refund, arguments: {id: "=value.id"}}
      confirm:
        needs: [charge]
        when: size(input.items) > 3
        approval: {manual: {quorum: 2}}
        arguments: "=steps.charge.value"
      ship:
        needs: [charge, confirm]
        when: "true"
        each: input.items
        parallel: 4
        tool: shop.ship
    result: "=steps.ship.value"
`

func TestWorkflow(t *testing.T) {
	configs, err := loadWorkflows(t, order)
	if err != nil || len(configs) != 1 {
		t.Fatalf("%d workflows, %v", len(configs), err)
	}
	c := configs[0]
	charge, confirm, ship := c.Steps["charge"], c.Steps["confirm"], c.Steps["ship"]
	switch {
	case c.Ref() != "order.ship@1.2.0", c.SideEffect != tool.SideEffectDatabase, c.MinTrust != "trusted", c.Approval != tool.ApprovalManual,
		c.Limits != tool.Limits{Timeout: time.Minute, Concurrency: 2}, string(c.OutputSchema) != `{"type":"object"}`, len(c.InputSchema) == 0:
		t.Errorf("capability %+v", c.Capability)
	case charge.Tool != "shop.charge@2.0.0", charge.Timeout != 1500*time.Millisecond, charge.Retry != tool.Retry{MaxAttempts: 3, InitialMS: 500},
		charge.OnFailure == nil || charge.OnFailure.Tool != "shop.refund", charge.Lease == nil:
		t.Errorf("charge %+v", charge)
	case confirm.Approval != tool.Approval{Mode: tool.ModeManual, Quorum: 2}, confirm.When != "size(input.items) > 3", confirm.Needs[0] != "charge":
		t.Errorf("confirm %+v", confirm)
	case ship.Each != "input.items", ship.Parallel != 4, len(ship.Needs) != 2, c.Result != "=steps.ship.value":
		t.Errorf("ship %+v", ship)
	}
	arguments, _ := charge.Arguments.(map[string]any)
	if _, ok := arguments["some-key"]; !ok { // the names of members are not changed
		t.Errorf("arguments %v", arguments)
	}
	if configs, err := loadWorkflows(t, ""); err != nil || len(configs) != 0 {
		t.Errorf("without workflows: %v %v", configs, err)
	}
}

// The error of a wrong workflow is one line with the position and the remedy.
func TestErrorsNameTheWorkflow(t *testing.T) {
	for entry, want := range map[string]string{
		`- x`:                                                                                 `workflows[0]: want a mapping`,
		`- {steps: {a: {tool: x}}}`:                                                           `workflows[0]: name is missing`,
		`- {name: w}`:                                                                         `workflows[0] (w): steps is missing`,
		`- {name: w, steps: [a]}`:                                                             `workflows[0] (w).steps: want a mapping of names to steps`,
		`- {name: w, step: {}}`:                                                               `workflows[0] (w): unknown key "step"; did you mean "steps"?`,
		`- {name: w, exec: [sh], steps: {}}`:                                                  `workflows[0] (w): unknown key "exec"`,
		`- {name: w, retry: {}, steps: {}}`:                                                   `workflows[0] (w): unknown key "retry"`,
		`- {name: demo.w, steps: {a: {tool: x}}}`:                                             `workflows[0] (demo.w).name: names that begin with "demo."`,
		`- {name: w, steps: {}}`:                                                              `workflows[0] (w): 0 steps; want 1 to 100`,
		`- {name: w, steps: {a: {tol: x}}}`:                                                   `workflows[0] (w).steps.a: unknown key "tol"; did you mean "tool"?`,
		`- {name: w, steps: {a: x}}`:                                                          `workflows[0] (w).steps.a: want a mapping`,
		`- {name: w, steps: {a: {tool: x, needs: b}}}`:                                        `workflows[0] (w).steps.a.needs: want a list of texts`,
		`- {name: w, steps: {a: {tool: x, needs: [b]}}}`:                                      `workflows[0] (w).steps.a.needs: there is no step "b"`,
		`- {name: w, steps: {a: {tool: x, when: true}}}`:                                      `workflows[0] (w).steps.a.when: want a text: put it in quotes`,
		`- {name: w, steps: {a: {tool: x, when: "a &&"}}}`:                                    `:2:42: workflows[0] (w).steps.a.when: character 5: the expression ends too early: want a value`,
		`- {name: w, steps: {a: {tool: x, each: "[]", parallel: 17}}}`:                        `workflows[0] (w).steps.a.parallel: want a whole number from 1 to 16`,
		`- {name: w, steps: {a: {tool: x, timeout_ms: 0}}}`:                                   `workflows[0] (w).steps.a.timeout_ms: want a whole number from 1 to`,
		`- {name: w, steps: {a: {tool: x, retry: {initial_ms: 1}}}}`:                          `workflows[0] (w).steps.a.retry: max_attempts is missing`,
		`- {name: w, steps: {a: {tool: x, on_failure: {}}}}`:                                  `workflows[0] (w).steps.a.on_failure: tool is missing`,
		`- {name: w, steps: {a: {tool: x, on_failure: {tool: y, each: x}}}}`:                  `workflows[0] (w).steps.a.on_failure: unknown key "each"`,
		`- {name: w, steps: {a: {approval: perhaps}}}`:                                        `workflows[0] (w).steps.a.approval: want none, manual`,
		`- {name: w, steps: {a: {tool: x, arguments: {n: .inf}}}}`:                            `workflows[0] (w).steps.a.arguments: it has something that JSON has not`,
		`- {name: w, limits: {memory: 1MiB}, steps: {a: {tool: x}}}`:                          `workflows[0] (w).limits`,
		`- {name: w, input_schema: {type: objekt}, steps: {a: {tool: x}}}`:                    `workflows[0] (w).input_schema: tool w@1.0.0: input schema:`,
		`- {name: w, steps: {a: {tool: x}}, result: "=steps.b"}`:                              `workflows[0] (w).result: "=steps.b": steps.b: not a step`,
		"- {name: w, steps: {a: {tool: x}}}\n  - {name: w, steps: {a: {tool: x}}}":            `workflows[1] (w): workflows[0] (w) has the same tool w@1.0.0`,
		"- {name: w, steps: {a: {approval: manual}}}\n  - {name: w.a, steps: {a: {tool: x}}}": `workflows[1] (w.a): workflows[0] (w) has the same tool w.a@1.0.0`,
	} {
		_, err := loadWorkflows(t, "  "+entry)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n got %v\nwant it to have %q", entry, err, want)
		}
	}
}

// The example of the documentation is a configuration.
func TestWorkflowOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "```yaml\nworkflows:\n")
	example, _, ok := strings.Cut(example, "```")
	if configs, err := loadWorkflows(t, example); !ok || err != nil || len(configs) != 1 || len(configs[0].Steps) != 4 {
		t.Errorf("%d workflows, %v", len(configs), err)
	}
}

// Each step with an error is reported, also beside steps and keys that could not be read.
func TestEveryStepWithAnErrorIsReported(t *testing.T) {
	_, err := loadWorkflows(t, `  - name: w
    steps:
      a: {tool: x, when: "tru("}
      b: {needs: [a], tool: x, parallel: 3}
      c: {needs: [b], tool: x, arguments: {v: "=steps.a"}}
    result: "=steps.nowhere"
  - name: demo.v
    retries: 2
    steps:
      a: {tol: x}
      b: {needs: [a], tool: x, parallel: 3}
      c: {needs: [b], tool: x, timeout: 5}`)
	want := []string{
		"workflows[0] (w).steps.a.when: ", "workflows[0] (w).steps.b: parallel: there is no each", "workflows[0] (w).result: ",
		`workflows[1] (demo.v).name: names that begin with "demo." are the runtime's own`,
		`workflows[1] (demo.v): unknown key "retries"`, `workflows[1] (demo.v).steps.a: unknown key "tol"; did you mean "tool"?`,
		"workflows[1] (demo.v).steps.b: parallel: there is no each",
		`workflows[1] (demo.v).steps.c: unknown key "timeout"; did you mean "timeout_ms"?`,
	}
	list, _ := err.(settings.Mistakes)
	for _, w := range want {
		if n := strings.Count(err.Error(), w); n != 1 {
			t.Errorf("%d mistakes with %q, want 1", n, w)
		}
	}
	if len(list) != len(want) || t.Failed() {
		t.Errorf("%d mistakes, want %d:\n%v", len(list), len(want), err)
	}
}
