package conformance

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// TestChecksAreTheSame compares the ids, titles, sections, levels and needs of each group with
// testdata/checks.txt. A lost or weakened check changes the file. Run with -update after a change.
func TestChecksAreTheSame(t *testing.T) {
	const file = "testdata/checks.txt"
	var b strings.Builder
	for _, d := range []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft} {
		rows := map[string][]string{}
		for _, c := range Checks(d) {
			needs := slices.Compact(slices.Sorted(slices.Values(c.Needs)))
			rows[c.Group()] = append(rows[c.Group()], strings.Join([]string{c.ID, string(c.Level), c.Section, strings.Join(needs, " "), c.Title}, "\t"))
		}
		for _, name := range Groups(d) {
			prefix := ""
			if d == arcp.DialectDraft {
				prefix = draftPrefix
			}
			fmt.Fprintf(&b, "%s%s %d %.8x\n", prefix, name, len(rows[name]), sha256.Sum256([]byte(strings.Join(rows[name], "\n"))))
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the checks are\n%s, want %s:\n%s", b.String(), file, want)
	}
}

func allChecks() []Check { return append(Checks(arcp.DialectRFC), Checks(arcp.DialectDraft)...) }

// A check is either a script or a function, and each function belongs to a check.
func TestChecksHaveOnePlace(t *testing.T) {
	known := map[string]bool{}
	for _, c := range allChecks() {
		known[c.ID] = true
		if (c.run == nil) != c.frames {
			t.Errorf("%s has neither steps nor a function", c.ID)
		}
	}
	for id := range inGo {
		if !known[id] {
			t.Errorf("there is a function for %s, which is no check", id)
		}
	}
}
