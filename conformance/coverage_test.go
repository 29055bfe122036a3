package conformance

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each MUST has a check or the reason why it has none, and each named check exists. Run with -update
// to write docs/conformance-coverage.md.
func TestRequirements(t *testing.T) {
	seen := map[string]bool{}
	id := regexp.MustCompile(`^[RD]\d{3}$`)
	for _, r := range Requirements() {
		if seen[r.ID] || !id.MatchString(r.ID) || r.Text == "" || !strings.Contains(r.Section, "§") ||
			!slices.Contains([]string{"MUST", "MUST NOT", "SHOULD", "MAY"}, r.Level) {
			t.Errorf("%+v: a requirement has an id of its own, a section, a level and a text", r)
		}
		seen[r.ID] = true
		if draft := r.ID[0] == 'D'; draft != (documentOf(r.Section) == draftDocument) {
			t.Errorf("%s is in the document %s", r.ID, documentOf(r.Section))
		}
		if len(r.Checks) > 0 && r.Exempt != "" {
			t.Errorf("%s has checks and a reason why it has none", r.ID)
		}
		if r.Mandatory() && len(r.Checks) == 0 && r.Exempt == "" {
			t.Errorf("%s (%s, %s) has neither checks nor a reason: %s", r.ID, r.Level, r.Section, r.Text)
		}
		for _, name := range r.Checks {
			if c, ok := FindCheck(name); !ok {
				t.Errorf("%s names the check %s, which does not exist", r.ID, name)
			} else if strings.HasPrefix(c.ID, draftPrefix) != (r.ID[0] == 'D') {
				t.Errorf("%s names the check %s of the other dialect", r.ID, name)
			}
		}
	}
	if len(seen) < 300 {
		t.Errorf("there are %d requirements", len(seen))
	}
	coverageDocument(t)
}

func coverageDocument(t *testing.T) {
	t.Helper()
	const file = "../docs/conformance-coverage.md"
	var b bytes.Buffer
	if err := WriteCoverage(&b, Requirements()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(want, b.Bytes()) {
		t.Errorf("%s differs from requirements.yaml: go test ./conformance -run TestRequirements -update writes it (%v)", file, err)
	}
}
