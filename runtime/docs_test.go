package runtime_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/internal/specdoc"
	"github.com/arcpd/arcpd/runtime/internal/job"
)

var update = flag.Bool("update", false, "rewrite the generated parts of SPEC.md")

var diagram = regexp.MustCompile(`(?s)(<!-- diagram: job -->).*?(<!-- end diagram -->)`)

func TestSpecTables(t *testing.T) {
	doc, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := specdoc.Update(doc)
	if err != nil {
		t.Fatal(err)
	}
	want = updatePayloads(t, want)
	want = diagram.ReplaceAll(want, []byte("${1}\n```mermaid\n"+strings.TrimSpace(job.Diagram())+"\n```\n${2}"))
	if string(want) == string(doc) {
		return
	}
	if !*update {
		t.Fatal("the generated tables of SPEC.md do not say what the catalog says: run make spec")
	}
	if err := os.WriteFile("../SPEC.md", want, 0o644); err != nil {
		t.Fatal(err)
	}
}
