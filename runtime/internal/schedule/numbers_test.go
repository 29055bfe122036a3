package schedule

import "testing"

func TestNumbers(t *testing.T) {
	for of := 2; of <= 366; of++ {
		for n := 1; n <= of; n++ {
			for _, number := range []int{n, n - of - 1} {
				s := newNumbers([]int{number})
				if !s.has(n, of) || s.has(n%of+1, of) {
					t.Fatalf("%d is not number %d of %d, or also the next one", number, n, of)
				}
			}
		}
	}
}
