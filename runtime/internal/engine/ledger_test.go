package engine

import (
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func testLedger() *ledger {
	l := new(ledger)
	for n, request := range []string{"a", "b", "a", "a"} {
		l.children = append(l.children, &child{ledgerEntry: ledgerEntry{N: uint64(n + 1), Job: arcp.JobID(request), Request: request}})
	}
	return l
}

// An attempt finds the children of one request in the order of the calls, each of them once, and
// other requests in any order.
func TestLedgerMatch(t *testing.T) {
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
		if k := l.match(c.request, c.attempt); k != nil {
			got = k.N
		}
		if got != c.want {
			t.Errorf("attempt %d calls %s: child %d, want %d", c.attempt, c.request, got, c.want)
		}
	}
}

// An attempt that continues from a checkpoint knows the children recorded in it, and calls
// only the others.
func TestLedgerKnown(t *testing.T) {
	l := testLedger()
	if bits := l.known(1); len(bits) != 0 {
		t.Errorf("an attempt that was told of no child knows %b", bits)
	}
	l.children[0].toldTo, l.children[2].toldTo, l.children[3].toldTo = 1, 1, 2
	bits := l.known(1)
	l.restoreKnown(bits, 3)
	for n, known := range []bool{true, false, true, false} {
		if k := l.children[n]; (k.toldTo == 3) != known || (k.calledBy == 3) != known {
			t.Errorf("child %d is known: %v, want %v", k.N, k.toldTo == 3, known)
		}
	}
	if k := l.match("a", 3); k == nil || k.N != 4 {
		t.Errorf("the attempt calls %+v, want child 4", k)
	}
	if again := l.known(3); string(again) != string(bits) {
		t.Errorf("known children %b, want %b", again, bits)
	}
}

// Each change is reported once, and a record is written once whatever the number of its changes.
func TestLedgerChanges(t *testing.T) {
	l := testLedger()
	first, second, dropped := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	k := l.children[0]
	l.change(k, first)
	l.change(k, second)
	if !l.changing(k) || l.changing(l.children[1]) {
		t.Error("the changes are not those of the first child")
	}
	l.take()
	if l.changing(k) || !l.first(0) || l.first(1) {
		t.Error("the changes of one child are two records")
	}
	l.change(l.children[1], dropped)
	l.change(l.children[1], nil)
	l.committed()
	if err := <-first; err != nil || !k.stored {
		t.Errorf("first change: %v, stored: %v", err, k.stored)
	}
	if err := <-second; err != nil {
		t.Errorf("second change: %v", err)
	}
	l.drop()
	if err := <-dropped; err != errEnded {
		t.Errorf("a change that was dropped: %v", err)
	}
}
