package machine

import (
	"fmt"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func id(n int) arcp.MessageID { return arcp.MessageID(fmt.Sprintf("msg_%d", n)) }

// The window holds exactly the last 8,192 ids.
func TestDedupWindow(t *testing.T) {
	var d dedup
	for n := range dedupWindow {
		if !d.add(id(n)) {
			t.Fatalf("%s is new, and dropped", id(n))
		}
	}
	for n := range dedupWindow {
		if d.add(id(n)) {
			t.Fatalf("%s was executed twice within the window", id(n))
		}
	}
	d.add(id(dedupWindow)) // pushes the oldest out, and only that
	if d.add(id(1)) {
		t.Errorf("%s is among the last %d and was executed twice", id(1), dedupWindow)
	}
	if !d.add(id(0)) {
		t.Errorf("%s is older than the window, and dropped", id(0))
	}
}

// Any number of ids occupies one window.
func TestDedupMemory(t *testing.T) {
	var d dedup
	for n := range 20 * dedupWindow {
		if !d.add(id(n)) {
			t.Fatalf("%s is new, and dropped", id(n))
		}
	}
	if len(d.set) != dedupWindow || len(d.ring) != dedupWindow || cap(d.ring) > 2*dedupWindow {
		t.Errorf("set of %d, ring of %d in %d, want windows of %d", len(d.set), len(d.ring), cap(d.ring), dedupWindow)
	}
	var idle dedup
	if idle.set != nil || idle.ring != nil {
		t.Error("a session that sends nothing pays for the window")
	}
}
