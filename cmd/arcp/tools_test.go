package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestToolsAreListedAndDescribed(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	golden(t, "tools-ls.txt", scrub(p.cli("tools", "ls", "--prefix", "demo.e").stdout))
	golden(t, "tools-show.txt", scrub(p.cli("tools", "show", "demo.emit").stdout))
	golden(t, "tools-show.json", scrub(p.cli("tools", "show", "demo.echo@0.9.0", "-o", "json").stdout))
	var all arcp.ToolPage
	o := p.cli("tools", "ls", "--all", "-o", "json")
	if err := json.Unmarshal([]byte(o.stdout), &all); err != nil || len(all.Items) < 30 || all.NextCursor != "" {
		t.Errorf("tools ls --all prints %d tools, %v, want at least 30 on one page", len(all.Items), err)
	}
	for i, item := range all.Items[1:] {
		if all.Items[i].Name >= item.Name {
			t.Errorf("%s precedes %s, want the tools sorted by name", all.Items[i].Name, item.Name)
		}
	}
	wantOutcome(t, "a page", p.cli("tools", "ls", "--limit", "2"), exitOK, "TOOL", "more rows follow: --limit 0 lists all")
	wantOutcome(t, "none", p.cli("tools", "ls", "--prefix", "nobody", "-o", "json"), exitOK, `{"items":[]`, "")
	wantOutcome(t, "there is none", p.cli("tools", "show", "demo.emti"), exitFailed, "", `did you mean "demo.emit"?`)
	wantOutcome(t, "no such version", p.cli("tools", "show", "demo.echo@7"), exitFailed, "", "AGENT_VERSION_NOT_AVAILABLE")
	if o := p.cli("tools", "ls"); !strings.Contains(o.stdout, "demo.echo") || strings.Contains(o.stdout, "jobs.get") || o.stderr != "" {
		t.Errorf("tools ls prints the tools of the runtime, or not all others: %v", o)
	}
	if o := p.cli("tools", "ls", "--source", "builtin", "-o", "name"); !strings.Contains(o.stdout, "jobs.get\n") || strings.Contains(o.stdout, "demo.") {
		t.Errorf("the names of the tools of the runtime are %v", o)
	}
	page, rest := p.cli("tools", "ls", "--limit", "2", "-o", "json"), arcp.ToolPage{}
	if err := json.Unmarshal([]byte(page.stdout), &rest); err != nil || len(rest.Items) != 2 {
		t.Fatalf("tools ls --limit 2 prints %v", page)
	}
	next := p.cli("tools", "ls", "--cursor", rest.NextCursor, "--limit", "0", "-o", "name")
	if first := p.cli("tools", "ls", "-o", "name"); first.stdout != rest.Items[0].Name+"\n"+rest.Items[1].Name+"\n"+next.stdout {
		t.Errorf("a page of two and the others are not all tools:\n%v\n%v", next, first)
	}
	wantOutcome(t, "an unknown source", p.cli("tools", "ls", "--source", "rust"), exitUsage, "", `--source: "rust" is not one of go, exec`)
	wantOutcome(t, "its other name", p.cli("tools", "describe", "demo.emit"), exitOK, "demo.emit@", "")
	wantOutcome(t, "no subcommand", p.cli("tools", "policy"), exitUsage, "", "the subcommands of arcp tools are ls, show")
	wantOutcome(t, "nothing to describe", p.cli("tools", "show"), exitUsage, "", "TOOL")
}

func TestApprovalPolicyIsReadable(t *testing.T) {
	for policy, want := range map[string]string{`"none"`: "none", `"manual"`: "manual", `{"auto":{"rule":"args.n < 1"}}`: "unless args.n < 1",
		`{"manual":{"quorum":2,"escalate_after_ms":90000}}`: "manual; 2 must approve; admins of other principals are asked after 1m30s",
		`{"auto":{"rule":"false","quorum":3}}`:              "unless false; 3 must approve"} {
		if got := policyLine([]byte(policy)); got != want {
			t.Errorf("%s is shown as %q, want %q", policy, got, want)
		}
	}
	if got := approvalWord([]byte(`{"manual":{"quorum":2}}`)); got != "manual" {
		t.Errorf("a policy with a quorum is shown in a list as %q, want manual", got)
	}
	if got := approvalWord([]byte(`{"auto":{"rule":"` + strings.Repeat("x", 999) + `"}}`)); got != "rule" {
		t.Errorf("a policy with a rule is shown in a list as %q, want rule", got)
	}
}
