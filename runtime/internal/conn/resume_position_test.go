package conn

import (
	goruntime "runtime"
	"sync"
	"testing"
)

// Once the client acknowledges, written events do not move the position, not even those that are
// being written.
func TestPositionCountsOnlyAcknowledgements(t *testing.T) {
	for range 2000 {
		var r resumePosition
		r.start(0, false, 0)
		var writer sync.WaitGroup
		writer.Go(func() {
			for seq := range uint64(20) {
				r.wrote(seq)
			}
		})
		goruntime.Gosched()
		r.acknowledged(3)
		if n := r.load(); n != 3 {
			t.Fatalf("load() = %d, want the acknowledged event", n)
		}
		writer.Wait()
		if n := r.load(); n != 3 {
			t.Fatalf("load() = %d after it was written, want the acknowledged event", n)
		}
	}
}
