package main

import (
	"os"
	"regexp"
	"testing"
)

// Each flag in docs/conformance.md is a flag of `arcp conformance`, and each named check exists.
func TestConformanceDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"stdio": true, "port": true, "listen": true} // flags of servers in the examples
	for _, name := range []string{"run", "list", "show"} {
		cmd, _, err := newRoot(&app{}).Find([]string{"conformance", name})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(string(doc), -1) {
			known[m[1]] = known[m[1]] || cmd.Flags().Lookup(m[1]) != nil
		}
	}
	for name, ok := range known {
		if !ok {
			t.Errorf("docs/conformance.md has --%s, which is no flag of arcp conformance", name)
		}
	}
	ids := regexp.MustCompile(`conformance (?:show|run --check) ([a-z.-]+)`).FindAllStringSubmatch(string(doc), -1)
	for _, m := range ids {
		if o := cli(t, "conformance", "show", m[1]); o.code != exitOK {
			t.Errorf("docs/conformance.md names the check %s: %s", m[1], o.stderr)
		}
	}
	if len(known) < 15 || len(ids) < 2 {
		t.Errorf("only %d flags and %d checks were found", len(known), len(ids))
	}
}
