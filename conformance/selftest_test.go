package conformance

import (
	"testing"

	"github.com/arcpd/arcpd/conformance/proxy"
)

func TestChecksCanFail(t *testing.T) {
	if err := SelfTest(t.Context(), fakeTarget(t)); err != nil {
		t.Error(err)
	}
}

func TestFaultsNameChecks(t *testing.T) {
	known, names := map[string]bool{}, map[string]bool{}
	for _, c := range Checks() {
		known[c.ID] = true
	}
	for _, f := range proxy.Faults() {
		if f.Says == "" || len(f.Shows) == 0 || names[f.Name] {
			t.Errorf("fault %q needs a name of its own, what it says, and checks", f.Name)
		}
		names[f.Name] = true
		for _, id := range f.Shows {
			if !known[id] {
				t.Errorf("fault %q is shown by %q, which is no check", f.Name, id)
			}
		}
	}
}
