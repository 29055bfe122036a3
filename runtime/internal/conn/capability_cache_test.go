package conn

import (
	"strconv"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// TestCapabilityCacheComparesInventories checks that capabilities are encoded again for another
// inventory, and that the number of keys is bounded.
func TestCapabilityCacheComparesInventories(t *testing.T) {
	var c capabilityCache
	encoded := 0
	get := func(key string, agents []arcp.Agent) string {
		return string(c.Get([]byte(key), agents, func() arcp.Raw {
			encoded++
			return arcp.Raw(strconv.Itoa(len(agents)))
		}))
	}
	one, two := []arcp.Agent{{Name: "a"}}, []arcp.Agent{{Name: "a"}, {Name: "b"}}
	for i, step := range []struct {
		agents  []arcp.Agent
		encoded int
	}{{one, 1}, {one, 1}, {two, 2}, {two, 2}, {[]arcp.Agent{{Name: "b"}, {Name: "c"}}, 3}, {nil, 4}, {[]arcp.Agent{}, 5}, {one, 6}} {
		if got := get("key", step.agents); got != strconv.Itoa(len(step.agents)) || encoded != step.encoded {
			t.Errorf("step %d: %s, encoded %d times, want %d", i, got, encoded, step.encoded)
		}
	}
	large := c.Get([]byte("large"), one, func() arcp.Raw { return make(arcp.Raw, maxCachedEncoding+1) })
	if len(large) <= maxCachedEncoding || c.byKey["large"].encoded != nil {
		t.Errorf("%d bytes are kept", len(c.byKey["large"].encoded))
	}
	for i := range 10 * maxCachedCapabilities {
		get(strconv.Itoa(i), one)
		if len(c.byKey) > maxCachedCapabilities {
			t.Fatalf("%d keys are kept", len(c.byKey))
		}
	}
}
