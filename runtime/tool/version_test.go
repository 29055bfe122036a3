package tool

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestVersionsAreOrdered(t *testing.T) {
	ascending := []string{
		"0.9.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1",
		"1.0.0", "1.0.0+build", "1.0.1", "v1.2", "1.2.0", "1.9", "1.10", "2", "10", "2026.01.02", "20260102", "latest",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			got := compareVersions(a, b)
			if i < j && got >= 0 || i > j && got <= 0 || i == j && got != 0 {
				t.Errorf("compareVersions(%q, %q) = %d, want them in the order of the list", a, b, got)
			}
		}
	}
}

func TestVersionOrderIsTotal(t *testing.T) {
	version := rapid.StringMatching(`v?[0-9a-c]{0,2}(\.[0-9a-c]{0,2}){0,3}(-[0-9a-c.]{0,3})?(\+[0-9]{0,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := version.Draw(t, "a"), version.Draw(t, "b"), version.Draw(t, "c")
		ab := compareVersions(a, b)
		if ab != -compareVersions(b, a) || (ab == 0) != (a == b) {
			t.Fatalf("%q and %q: %d and %d", a, b, ab, compareVersions(b, a))
		}
		vs := []string{a, b, c}
		slices.SortFunc(vs, compareVersions)
		if compareVersions(vs[0], vs[2]) > 0 {
			t.Fatalf("%q are in a circle", vs)
		}
	})
}
