package conn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// TestInventoryBound checks that a list that fits is not copied, and that a longer one loses built-in
// tools first.
func TestInventoryBound(t *testing.T) {
	ib := &inventoryBound{isBuiltin: func(name string) bool { return strings.HasPrefix(name, "tools.") }}
	names := func(prefix string, n, size int) (list []arcp.Agent) {
		for i := range n {
			list = append(list, arcp.Agent{Name: fmt.Sprintf("%s%0*d", prefix, size-len(prefix), i), Versions: []string{"1.0.0"}, Default: "1.0.0"})
		}
		return list
	}
	few := names("a.", maxInventory, 10)
	if got := ib.bound(few); !sameSlice(got, few) {
		t.Errorf("%d tools of %d, want the list itself", len(got), len(few))
	}
	for _, test := range []struct {
		why            string
		agents         []arcp.Agent
		want, builtins int
	}{
		{"too many tools", append(names("a.", 200, 10), names("tools.", 100, 10)...), maxInventory, maxInventory - 200},
		{"too many tools that are not built in", append(names("tools.", 10, 10), names("z.", 300, 10)...), maxInventory, 0},
		{"too many bytes", append(names("tools.", 10, 1000), names("z.", 200, 1000)...), 62, 0},
	} {
		got := ib.bound(test.agents)
		builtins := 0
		for _, a := range got {
			if ib.isBuiltin(a.Name) {
				builtins++
			}
		}
		if len(got) != test.want || builtins != test.builtins {
			t.Errorf("%s: %d tools of which %d are built in, want %d and %d", test.why, len(got), builtins, test.want, test.builtins)
		}
		if !slices.IsSortedFunc(got, func(a, b arcp.Agent) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: the order has changed", test.why)
		}
		if again := ib.bound(test.agents); !sameSlice(got, again) {
			t.Errorf("%s: the list is made again", test.why)
		}
		raw, err := arcp.Marshal(got)
		if err != nil || len(raw) > maxInventoryBytes+1 || len(raw) != inventoryBytes(got)+1 {
			t.Errorf("%s: %d bytes, estimated %d, %v", test.why, len(raw), inventoryBytes(got), err)
		}
	}
}
