package runtime

import (
	goruntime "runtime"
	"sync"
	"testing"
)

// Once the client acknowledges, what is written counts no more, not even what the
// writer is about to tell of.
func TestReachedCountsOnlyAcknowledgements(t *testing.T) {
	for range 2000 {
		var r reached
		r.start(0, false, 0)
		var writer sync.WaitGroup
		writer.Go(func() {
			for seq := range uint64(20) {
				r.wrote(seq)
			}
		})
		goruntime.Gosched()
		r.acknowledged(3)
		if n := r.position(); n != 3 {
			t.Fatalf("position = %d, want what was acknowledged", n)
		}
		writer.Wait()
		if n := r.position(); n != 3 {
			t.Fatalf("position = %d after it was written, want what was acknowledged", n)
		}
	}
}

// What is kept for replay is of what was written: what was not, stays, however
// much of it there is.
func TestKeptIsOfWhatWasWritten(t *testing.T) {
	for _, bound := range []struct{ events, bytes uint64 }{{100, 1 << 40}, {1 << 40, 100 * 300}} {
		var k kept
		const stalled = 5000
		trimmed := uint64(0)
		for seq := uint64(1); seq <= 20_000; seq++ {
			written := min(seq-1, stalled)
			trim, _ := k.next(seq, 300, written, bound.events, bound.bytes)
			if trim > written {
				t.Fatalf("%+v: trimmed up to %d, and %d was never written", bound, trim, written+1)
			}
			trimmed = max(trimmed, trim)
		}
		if trimmed < stalled-2*keptStep {
			t.Errorf("%+v: trimmed up to %d of %d that were written", bound, trimmed, stalled)
		}
	}
}
