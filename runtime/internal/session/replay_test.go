package session

import "testing"

// The window bounds written events only; any number of unwritten events stays.
func TestReplayWindowRetainsUnwrittenEvents(t *testing.T) {
	for _, bound := range []struct{ events, bytes uint64 }{{100, 1 << 40}, {1 << 40, 100 * 300}} {
		var w ReplayWindow
		const stalled = 5000
		trimmed := uint64(0)
		for seq := uint64(1); seq <= 20_000; seq++ {
			written := min(seq-1, stalled)
			trim, _ := w.Count(seq, 300, written, bound.events, bound.bytes)
			if trim > written {
				t.Fatalf("%+v: trimmed up to %d, and %d was never written", bound, trim, written+1)
			}
			trimmed = max(trimmed, trim)
		}
		if trimmed < stalled-2*replayStep {
			t.Errorf("%+v: trimmed up to %d of %d that were written", bound, trimmed, stalled)
		}
	}
}
