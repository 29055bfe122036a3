package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/conformance"
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

// The mapping file in docs/conformance.md can be used as it is printed.
func TestConformanceDocumentMapping(t *testing.T) {
	doc, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```yaml\n# mapping.yaml\n")
	content, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/conformance.md has no mapping.yaml")
	}
	env := func(name string) string { return map[string]string{"THEIR_TOKEN": "secret"}[name] }
	m, err := conformance.ReadMapping(write(t, filepath.Join(t.TempDir(), "mapping.yaml"), content), env)
	if err != nil {
		t.Fatal(err)
	}
	if m.Token != "secret" || len(m.Start) == 0 || len(m.Known) == 0 {
		t.Errorf("the file is read as %+v", m)
	}
}
