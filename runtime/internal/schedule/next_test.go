package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestPosition(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := random.IntN(12)
		var positions []int
		for range 1 + random.IntN(5) {
			positions = append(positions, 1+random.IntN(15), -1-random.IntN(15))
		}
		s := search{Rule: &Rule{positions: ascending(positions)}, Budget: NewBudget()}
		for i := range n + 1 {
			want := i
			for want < n && !slices.Contains(positions, want+1) && !slices.Contains(positions, want-n) {
				want++
			}
			if got := s.position(i, n); got != want {
				t.Fatalf("positions %v: the first of %d from %d on is %d, want %d", positions, n, i, got, want)
			}
		}
	}
}
