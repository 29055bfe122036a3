package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestChecksAreTheSame compares the checks with testdata/checks.txt, so that none is
// lost or weakened unseen. Run with -update after adding one.
func TestChecksAreTheSame(t *testing.T) {
	const file = "testdata/checks.txt"
	var b strings.Builder
	for _, c := range Checks() {
		needs := slices.Compact(slices.Sorted(slices.Values(c.Needs)))
		b.WriteString(strings.Join([]string{c.ID, string(c.Level), c.Section, strings.Join(needs, " "), c.Title}, "\t") + "\n")
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
	lines := strings.Split(string(want), "\n")
	for i, got := range strings.Split(b.String(), "\n") {
		if i >= len(lines) || got != lines[i] {
			t.Fatalf("check %d is %q, and %s differs", i+1, got, file)
		}
	}
	if b.Len() != len(want) {
		t.Errorf("there are %d bytes of checks, want %d", b.Len(), len(want))
	}
}

// TestChecksHaveOnePlace: a check has steps or a function, and no function is left
// over.
func TestChecksHaveOnePlace(t *testing.T) {
	known := map[string]bool{}
	for _, c := range Checks() {
		known[c.ID] = true
		if c.Run == nil {
			t.Errorf("%s has neither steps nor a function", c.ID)
		}
	}
	for id := range inGo {
		if !known[id] {
			t.Errorf("there is a function for %s, which is no check", id)
		}
	}
}
