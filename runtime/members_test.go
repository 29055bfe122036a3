package runtime

import (
	"testing"
	"time"
)

// A session that came back and left again since the janitor looked has its whole
// window before it.
func TestExpiredCameBack(t *testing.T) {
	m := newMembers(func(int, int) {})
	start := time.Now()
	e := &member{id: "sess_1", principal: "alice"}
	m.enter(e, sessionLimits{})
	leave := func(at time.Time) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.leaveLocked(e, at)
	}
	leave(start)
	later := start.Add(time.Hour)
	seen := m.expired(later, later, 10)
	if len(seen) != 1 {
		t.Fatalf("%d sessions have expired, want 1", len(seen))
	}
	if !func() bool { _, ok := m.take(e.id, &conn{}, 1); return ok }() {
		t.Fatal("the session is not taken over")
	}
	leave(later)
	if m.removeAway(e.id, seen[0].since) {
		t.Error("a session that left a moment ago was removed")
	}
	if !m.removeAway(e.id, later) {
		t.Error("a session without a connection is not removed")
	}
}

// What is owed falls as the store gives back, and with time.
func TestOwed(t *testing.T) {
	var o owed
	now := time.Now()
	want := func(why string, bytes int64) {
		t.Helper()
		if o.bytes != bytes {
			t.Errorf("%s: %d bytes are owed, want %d", why, o.bytes, bytes)
		}
	}
	o.look(now, 1000)
	o.add(now, 400)
	o.look(now, 1200)
	want("the store has grown", 400)
	o.look(now, 1100)
	want("the store has given something back", 300)
	o.look(now.Add(owedHalf), 1100)
	want("nothing has come for a while", 150)
	o.look(now.Add(owedHalf), 100)
	want("more was given back than expected", 0)
	o.add(now.Add(time.Hour), 10)
	o.look(now.Add(time.Hour), 100)
	want("something new", 10)
}
