package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const shipWorkflow = `
demo: true
token: [alice=secret]
workflows:
  - name: order.ship
    steps:
      charge:
        tool: demo.echo
        arguments: {order: "=input.order"}
        on_failure: {tool: demo.echo, arguments: {refund: "=value.order"}}
      ship: {needs: [charge], each: input.items, parallel: 1, tool: demo.echo, arguments: {sku: "=item"}}
      wait: {needs: [ship, check], when: has(input.wait), tool: demo.sleep, arguments: {ms: "=input.wait"}}
      check: {needs: [ship], when: has(input.fail), tool: demo.fail, arguments: {code: ABORTED, message: out of stock}}
      never: {needs: [mail], when: "false", tool: no.such.tool}
      mail: {needs: [check, wait], when: "true", tool: demo.echo}
    result: {order: "=steps.charge.value.order", skus: "=steps.ship.value.map(v, v.sku)", mailed: "=steps.mail.state"}
  - {name: order.review, steps: {decide: {approval: manual, arguments: "=input"}}}
`

func TestWorkflowCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "arcp.yaml"), shipWorkflow)
	p := serve(t, "--config", config, "--data", filepath.Join(dir, "data"))
	until(t, "a missing tool is logged", func() bool {
		return strings.Contains(p.errs.String(), `"call":"step never of order.ship: no.such.tool"`)
	})
	o := cli(t, "__complete", "workflow", "run", "--url", p.url, "--token", "secret", "order.")
	wantOutcome(t, "only workflows are completed, and not the tool of an approval", o, exitOK, "order.review\norder.ship\n:4\n", "")
	const lease = `{"tool.call":["demo.*"]}`
	o = p.cli("workflow", "run", "order.ship", `{"order":"o1","items":["a","b"]}`, "--lease", lease)
	wantOutcome(t, "it completes", o, exitOK, `{"mailed":"completed","order":"o1","skus":["a","b"]}`, "")
	golden(t, "workflow-run.txt", scrub(o.stderr))
	o = p.cli("workflow", "run", "order.ship", `{"order":"o1","items":[]}`, "--lease", lease, "-o", "json")
	wantOutcome(t, "it ends with workflow.complete", o, exitOK, `"order":"o1"`, `"type":"workflow.complete"`)
	wantOutcome(t, "no lease", p.cli("workflow", "run", "order.ship", `{"order":"o1","items":[]}`), exitDenied, "",
		`step charge: the lease does not cover tool.call of "demo.echo"`)

	o = p.cli("workflow", "run", "order.ship", `{"order":"o1","items":["a"],"fail":1}`, "--lease", lease, "--detach")
	failed := strings.TrimSpace(o.stdout)
	wantOutcome(t, "it fails", p.cli("jobs", "wait", failed), exitFailed, "", "ABORTED: step check: ")
	golden(t, "workflow-show.txt", scrub(p.cli("workflow", "show", failed).stdout))
	wantOutcome(t, "JSON", p.cli("workflow", "show", failed, "-o", "json"), exitOK, `{"name":"charge","tool":"demo.echo","state":"compensated","child_job_id":"job_`, "")
	wantOutcome(t, "no workflow", p.cli("workflow", "show", p.detach("demo.echo", "{}")), exitFailed, "", "is not a workflow that has started")
	wantOutcome(t, "no job", p.cli("workflow", "show", "job_none"), exitFailed, "", "NOT_FOUND")

	o = p.cli("workflow", "run", "order.ship", `{"order":"o1","items":["a"],"wait":3600000}`, "--lease", lease, "--detach")
	id := strings.TrimSpace(o.stdout)
	shows := func(text string) func() bool {
		return func() bool { return strings.Contains(p.cli("workflow", "show", id, "-o", "json").stdout, text) }
	}
	until(t, "a step waits", shows(`"name":"wait","tool":"demo.sleep","needs":["ship","check"],"state":"running"`))
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	p = serve(t, "--config", config, "--data", filepath.Join(dir, "data"))
	until(t, "it waits after a crash", shows(`"name":"wait","tool":"demo.sleep","needs":["ship","check"],"state":"running"`))
	if n := strings.Count(p.cli("jobs", "ls", "--all", "--agent", "demo.sleep").stdout, "demo.sleep"); n != 1 {
		t.Errorf("the step has %d jobs, want 1", n)
	}
	wantOutcome(t, "cancel", p.cli("jobs", "cancel", id), exitOK, "", "")
	until(t, "it has ended", shows(`"status":"cancelled"`))
	for _, text := range []string{`"state":"stopped"`, `"state":"not_run"`} {
		if !shows(text)() {
			t.Errorf("a cancelled workflow shows no %s: %s", text, p.cli("workflow", "show", id).stdout)
		}
	}
}
