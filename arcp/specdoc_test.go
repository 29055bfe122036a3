package arcp_test

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

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

func TestUpdateSpec(t *testing.T) {
	got, err := arcp.UpdateSpec([]byte(emptySpec))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "spec.golden", string(got))
	again, err := arcp.UpdateSpec(got)
	if err != nil || string(again) != string(got) {
		t.Errorf("a second update changes the document, or fails: %v", err)
	}
}

func TestUpdateSpecErrors(t *testing.T) {
	for name, c := range map[string]struct{ doc, want string }{
		"missing": {strings.ReplaceAll(emptySpec, "generated: codes", "other"), `the block "codes" is missing`},
		"unknown": {"<!-- generated: colours --><!-- end -->", `no table is called "colours"`},
		"twice":   {emptySpec + "<!-- generated: codes --><!-- end -->", `"codes", or it is there twice`},
		"no end":  {"<!-- generated: codes -->", "has no end"},
	} {
		if _, err := arcp.UpdateSpec([]byte(c.doc)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: UpdateSpec = %v, want %q in it", name, err, c.want)
		}
	}
}

func TestSpecTablesSaySomethingEverywhere(t *testing.T) {
	for name, table := range arcp.SpecTables() {
		if strings.Contains(table, "|  |") {
			t.Errorf("the table %s has an empty cell", name)
		}
	}
}
