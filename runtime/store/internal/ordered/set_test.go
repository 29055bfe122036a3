package ordered

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A set equals a sorted slice, also while its pieces are split and emptied.
func TestSetEqualsASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set Set
		var want []string
		for range rapid.IntRange(1, 20).Draw(t, "rounds") {
			first, n := rapid.IntRange(0, 4000).Draw(t, "first"), rapid.IntRange(1, 3*pieceLen).Draw(t, "n")
			add := rapid.Bool().Draw(t, "add")
			for i := first; i < first+n; i++ {
				x := fmt.Sprintf("%05d", i)
				k, found := slices.BinarySearch(want, x)
				switch {
				case add && !found:
					set.Add(x)
					want = slices.Insert(want, k, x)
				case !add && found:
					set.Remove(x)
					want = slices.Delete(want, k, k+1)
				}
			}
			from := fmt.Sprintf("%05d", rapid.IntRange(0, 6000).Draw(t, "from"))
			k, _ := slices.BinarySearch(want, from)
			if got := slices.Collect(set.From(from)); !slices.Equal(got, want[k:]) {
				t.Fatalf("from %s: %d strings, want %d: %q", from, len(got), len(want)-k, got)
			}
			before := slices.Clone(want[:k])
			slices.Reverse(before)
			if got := slices.Collect(set.Before(from)); !slices.Equal(got, before) {
				t.Fatalf("before %s: %d strings, want %d: %q", from, len(got), k, got)
			}
		}
	})
}
