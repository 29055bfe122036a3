package specdoc_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/internal/specdoc"
)

var update = flag.Bool("update", false, "rewrite the golden file")

const emptySpec = `# Spec

<!-- generated: messages -->
old
<!-- end -->
between
<!-- generated: codes --><!-- end -->
<!-- generated: capabilities -->
<!-- end -->
<!-- generated: job-states -->
<!-- end -->
after
`

func TestUpdate(t *testing.T) {
	got, err := specdoc.Update([]byte(emptySpec))
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/spec.golden"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(got) != string(want) {
		t.Errorf("%s differs, or cannot be read: %v; run the test with -update if this is meant. Now it is\n%s", golden, err, got)
	}
	again, err := specdoc.Update(got)
	if err != nil || string(again) != string(got) {
		t.Errorf("a second update changes the document, or fails: %v", err)
	}
}

func TestUpdateErrors(t *testing.T) {
	for name, c := range map[string]struct{ doc, want string }{
		"missing": {strings.ReplaceAll(emptySpec, "generated: codes", "other"), `the block "codes" is missing`},
		"unknown": {"<!-- generated: colours --><!-- end -->", `no table is called "colours"`},
		"twice":   {emptySpec + "<!-- generated: codes --><!-- end -->", `"codes", or it is there twice`},
		"no end":  {"<!-- generated: codes -->", "has no end"},
	} {
		if _, err := specdoc.Update([]byte(c.doc)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Update = %v, want %q in it", name, err, c.want)
		}
	}
}

func TestTablesSaySomethingEverywhere(t *testing.T) {
	for name, table := range specdoc.Tables() {
		if strings.Contains(table, "|  |") {
			t.Errorf("the table %s has an empty cell", name)
		}
	}
}
