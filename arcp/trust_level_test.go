package arcp

import "testing"

func TestTrustLevelsAscend(t *testing.T) {
	for i, level := range TrustLevels {
		if got := level.Rank(); got != i+1 {
			t.Errorf("%s has the rank %d, want %d", level, got, i+1)
		}
	}
	if none, unknown := TrustLevel("").Rank(), TrustLevel("Trusted").Rank(); none != 0 || unknown != -1 {
		t.Errorf("no level has the rank %d, an unknown one %d; want 0 and -1", none, unknown)
	}
}
