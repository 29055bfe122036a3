package conn

import (
	"fmt"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of the tools in the answer that opens a session (SPEC.md §7.5). tools.list lists the others.
const (
	maxInventory      = 256
	maxInventoryBytes = 64 << 10
)

// inventoryBound bounds lists of tools. It caches the last bounded list, because most sessions have
// the same catalog. Any goroutine may use it.
type inventoryBound struct {
	isBuiltin func(name string) bool

	mu      sync.Mutex
	whole   []arcp.Agent
	bounded []arcp.Agent
}

// bound returns the tools that fit, in their order. Built-in tools give way to others. A list that
// fits is returned itself.
func (ib *inventoryBound) bound(agents []arcp.Agent) []arcp.Agent {
	if len(agents) <= maxInventory && inventoryBytes(agents) <= maxInventoryBytes {
		return agents
	}
	ib.mu.Lock()
	defer ib.mu.Unlock()
	if !sameSlice(ib.whole, agents) {
		ib.whole, ib.bounded = agents, ib.choose(agents)
	}
	return ib.bounded
}

// choose returns the tools that fit.
func (ib *inventoryBound) choose(agents []arcp.Agent) []arcp.Agent {
	included := make([]bool, len(agents))
	n, size := 0, 0
	for _, builtin := range []bool{false, true} {
		for i := range agents {
			if ib.isBuiltin(agents[i].Name) != builtin {
				continue
			}
			bytes := inventoryBytes(agents[i : i+1])
			if n >= maxInventory || size+bytes > maxInventoryBytes {
				break
			}
			included[i], n, size = true, n+1, size+bytes
		}
	}
	list := make([]arcp.Agent, 0, n)
	for i := range agents {
		if included[i] {
			list = append(list, agents[i])
		}
	}
	return list
}

// inventoryBytes returns the bytes of the encoded tools. Their names and versions need no escapes.
func inventoryBytes(agents []arcp.Agent) (n int) {
	for i := range agents {
		n += len(`{"name":"","versions":[],"default":""},`) + len(agents[i].Name) + len(agents[i].Default)
		for _, version := range agents[i].Versions {
			n += len(`"",`) + len(version)
		}
		n -= min(len(agents[i].Versions), 1) // the last version has no comma
	}
	return n
}

// inventoryExtension returns the extensions of an answer with some of the tools.
func inventoryExtension(total, included int) arcp.Raw {
	return fmt.Appendf(nil, `{"arcpx.arcp.inventory.v1":{"total":%d,"included":%d}}`, total, included)
}
