//go:build !race

package draft_test

import "testing"

// The race detector empties pools at random.
func TestAppendEventDoesNotAllocate(t *testing.T) {
	s := libraries[0].connect(t).accept().s
	for _, e := range steady {
		ev := newEvent(job, e.t, e.payload)
		dst := make([]byte, 0, 1024)
		if n := testing.AllocsPerRun(100, func() {
			var err error
			if dst, err = s.AppendEvent(dst[:0], 1, "", ev); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", e.name, n)
		}
	}
}
