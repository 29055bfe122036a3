package housekeeping

import (
	"testing"
	"time"
)

// Owed bytes fall as the store shrinks, and with time.
func TestOwedBytesDecay(t *testing.T) {
	var o pendingReclaim
	now := time.Now()
	want := func(why string, bytes int64) {
		t.Helper()
		if o.bytes != bytes {
			t.Errorf("%s: %d bytes are owed, want %d", why, o.bytes, bytes)
		}
	}
	o.update(now, 1000)
	o.add(now, 400)
	o.update(now, 1200)
	want("the store has grown", 400)
	o.update(now, 1100)
	want("the store has given something back", 300)
	o.update(now.Add(reclaimHalfLife), 1100)
	want("nothing has come for a while", 150)
	o.update(now.Add(reclaimHalfLife), 100)
	want("more was given back than expected", 0)
	o.add(now.Add(time.Hour), 10)
	o.update(now.Add(time.Hour), 100)
	want("something new", 10)
}
