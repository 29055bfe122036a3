package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestConformanceList(t *testing.T) {
	all := strings.Fields(cli(t, "conformance", "list", "-o", "name").stdout)
	if len(all) < 500 {
		t.Errorf("conformance list prints %d checks, want all of both dialects", len(all))
	}
	draft := strings.Fields(cli(t, "conformance", "list", "--dialect", "draft", "-o", "name").stdout)
	for _, id := range draft {
		if !strings.HasPrefix(id, "draft.") {
			t.Errorf("--dialect draft lists %s", id)
		}
	}
	var list []checkView
	o := cli(t, "conformance", "list", "--group", "cancel", "--level", "must", "--section", "RFC §10.4", "--dialect", "rfc", "-o", "json")
	if err := json.Unmarshal([]byte(o.stdout), &list); err != nil {
		t.Fatalf("%v: %s", err, o.stderr)
	}
	if len(list) == 0 {
		t.Error("no check of the group cancel is listed")
	}
	for _, c := range list {
		if c.Group != "cancel" || c.Level != "must" || c.Section != "RFC §10.4" || c.Title == "" {
			t.Errorf("%+v was not selected", c)
		}
	}
	wantOutcome(t, "text", cli(t, "conformance", "list", "--group", "cancel"), exitOK, "cancel.running", "")
	wantOutcome(t, "nothing", cli(t, "conformance", "list", "--section", "RFC §999", "-o", "json"), exitOK, "[]", "")
	wantOutcome(t, "bad dialect", cli(t, "conformance", "list", "--dialect", "auto"), exitUsage, "", `--dialect: "auto" is not one of rfc, draft`)
	wantOutcome(t, "bad level", cli(t, "conformance", "list", "--level", "runtime"), exitUsage, "", `--level: "runtime" is not one of must, should, may, house, all`)
	wantOutcome(t, "bad group", cli(t, "conformance", "list", "--group", "x"), exitUsage, "", `--group: "x" is not one of`)
}

func TestConformanceShow(t *testing.T) {
	o := cli(t, "conformance", "show", "cancel.running")
	for _, want := range []string{"section  RFC §10.4", "needs    tool:demo.sleep", "== running: ", "def c sleeping options", "# scripts/cancel.txt, line "} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("conformance show prints\n%s, want %q in it", o.stdout, want)
		}
	}
	wantOutcome(t, "Go", cli(t, "conformance", "show", "takeover.race"), exitOK, "The check is in Go: the function takeoverRace", "")
	wantOutcome(t, "JSON", cli(t, "conformance", "show", "cancel.running", "-o", "json"), exitOK, `"script":"== running: `, "")
	wantOutcome(t, "unknown", cli(t, "conformance", "show", "cancel.x"), exitUsage, "", "`arcp conformance list` lists the checks")
}
