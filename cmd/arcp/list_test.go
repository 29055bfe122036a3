package main

import (
	"strings"
	"testing"
)

// Flags are checked without a runtime, and names from others do not control the terminal.
func TestListsCheckFlagsAndEscapeNames(t *testing.T) {
	for _, command := range []string{"tools", "sessions", "jobs", "resources", "approvals", "input"} {
		wantRefusal(t, cli(t, command, "ls", "--limit", "-1", "--url", unixURL("/nowhere")), exitUsage, `--limit: "-1" is not a whole number of 0 or more`)
	}
	var b strings.Builder
	type row struct{ name string }
	columns := []column[row]{{"NAME", func(r *row) any { return r.name }}, {"BYTES", func(r *row) any { return len(r.name) }}}
	if err := table(&b, columns, []row{{"a\tb\nc"}, {"\x1b[2Jd"}}); err != nil || b.String() != "NAME   BYTES\na b c  5\n[2Jd   5\n" {
		t.Errorf("the table is\n%q, %v", b.String(), err)
	}
}
