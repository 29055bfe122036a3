package family

import (
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func testLedger() *Ledger {
	l := new(Ledger)
	for n, request := range []string{"a", "b", "a", "a"} {
		l.children = append(l.children, &Child{Entry: Entry{N: uint64(n + 1), Job: arcp.JobID(request), Request: request}})
	}
	return l
}

// An attempt finds the children of one request in the order of the calls, each of them once, and
// other requests in any order.
func TestAttemptFindsChildrenInOrder(t *testing.T) {
	l := testLedger()
	for _, c := range []struct {
		request string
		attempt uint32
		want    uint64 // 0: none
	}{
		{"b", 1, 2}, {"a", 1, 1}, {"a", 1, 3}, {"a", 1, 4}, {"a", 1, 0}, {"b", 1, 0}, {"c", 1, 0},
		{"a", 2, 1}, {"b", 2, 2},
	} {
		var got uint64
		if k := l.Match(c.request, c.attempt); k != nil {
			got = k.N
		}
		if got != c.want {
			t.Errorf("attempt %d calls %s: child %d, want %d", c.attempt, c.request, got, c.want)
		}
	}
}

// An attempt that continues from a checkpoint knows the children recorded in it, and calls
// only the others.
func TestCheckpointRestoresKnownChildren(t *testing.T) {
	l := testLedger()
	if bits := l.Known(1); len(bits) != 0 {
		t.Errorf("an attempt that was told of no child knows %b", bits)
	}
	l.children[0].RecordOutcome(1)
	l.children[2].RecordOutcome(1)
	l.children[3].RecordOutcome(2)
	bits := l.Known(1)
	l.RestoreKnown(bits, 3)
	for n, known := range []bool{true, false, true, false} {
		if k := l.children[n]; (k.knownTo == 3) != known || (k.calledBy == 3) != known {
			t.Errorf("child %d is known: %v, want %v", k.N, k.knownTo == 3, known)
		}
	}
	if k := l.Match("a", 3); k == nil || k.N != 4 {
		t.Errorf("the attempt calls %+v, want child 4", k)
	}
	if again := l.Known(3); string(again) != string(bits) {
		t.Errorf("known children %b, want %b", again, bits)
	}
}

// An entry is stored once, whatever the number of its changes. A revision is counted only if it is
// known.
func TestEntryIsStoredOnce(t *testing.T) {
	l := testLedger()
	first, second := l.children[0], l.children[1]
	second.Stored, second.Rev = true, 7
	l.change(first)
	l.change(second)
	l.change(first)
	if n := len(l.Changed()); n != 2 || !l.Unsaved(first) || l.Unsaved(l.children[2]) {
		t.Errorf("%d entries are to be stored, want 2", n)
	}
	l.Committed()
	if !first.Stored || first.Rev != 0 || second.Rev != 8 || len(l.Changed()) != 0 {
		t.Errorf("after the write: %+v %+v, %d are to be stored", first, second, len(l.Changed()))
	}
}

func TestLoadedLedgerHasItsEntries(t *testing.T) {
	var l Ledger
	l.Load([]*Child{{Entry: Entry{N: 3, Job: "c"}}, {Entry: Entry{N: 1, Job: "a"}}, {Entry: Entry{N: 2, Job: "b"}}})
	for i, c := range l.Children() {
		if c.N != uint64(i+1) {
			t.Errorf("child %d is at %d", c.N, i)
		}
	}
	if c := l.Find("b"); c == nil || c.N != 2 || l.Find("d") != nil || l.Empty() {
		t.Errorf("found %+v", c)
	}
}

func TestFailedChildOfAnEarlierAttemptIsStale(t *testing.T) {
	for _, c := range []struct {
		failedBefore, failedNow int
		state                   arcp.JobState
		want                    bool
	}{
		{0, 1, arcp.StateFailed, true}, {0, 1, arcp.StateCancelled, true}, {0, 1, arcp.StateCompleted, false},
		{0, 1, arcp.StateRunning, false}, {1, 1, arcp.StateFailed, false},
	} {
		k := Child{Entry: Entry{Failed: c.failedBefore}}
		if got := k.Stale(c.failedNow, c.state); got != c.want {
			t.Errorf("%+v: Stale = %v, want %v", c, got, c.want)
		}
	}
}
