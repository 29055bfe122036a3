package tool

import "testing"

// A gate calls each function once, when it opens. A nil gate is open.
func TestGateOpensOnce(t *testing.T) {
	var none *Gate
	if !none.IsOpen() || none.OnOpen(func() { t.Error("a nil gate has opened") }) {
		t.Error("a nil gate is closed, want it open")
	}
	g, calls := new(Gate), 0
	if g.IsOpen() || !g.OnOpen(func() { calls++ }) {
		t.Error("a new gate is open, want it closed")
	}
	g.Open()
	g.Open()
	if !g.IsOpen() || calls != 1 {
		t.Errorf("after Open the gate is open %v, with %d calls, want one", g.IsOpen(), calls)
	}
	if g.OnOpen(func() { calls++ }) || calls != 1 {
		t.Error("an open gate has called a function")
	}
}
