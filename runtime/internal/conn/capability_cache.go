package conn

import (
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of a capabilityCache.
const (
	maxCachedCapabilities = 64       // keys; the cache is cleared at the bound
	maxCachedEncoding     = 64 << 10 // bytes of an entry; a larger one is encoded for each client
)

// capabilityCache is a [machine.CapabilityCache]. Any goroutine may use it.
type capabilityCache struct {
	mu    sync.Mutex
	byKey map[string]cachedCapabilities
}

// cachedCapabilities are the encoded capabilities for a key and a list of agents.
type cachedCapabilities struct {
	agents  []arcp.Agent
	encoded arcp.Raw
}

// Get implements machine.CapabilityCache. Two lists of agents are equal if they share their memory.
func (c *capabilityCache) Get(key []byte, agents []arcp.Agent, encode func() arcp.Raw) arcp.Raw {
	c.mu.Lock()
	known, ok := c.byKey[string(key)]
	c.mu.Unlock()
	if ok && sameSlice(known.agents, agents) {
		return known.encoded
	}
	encoded := encode()
	if len(encoded) > maxCachedEncoding {
		return encoded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey == nil || len(c.byKey) >= maxCachedCapabilities {
		c.byKey = make(map[string]cachedCapabilities)
	}
	c.byKey[string(key)] = cachedCapabilities{agents, encoded}
	return encoded
}

// sameSlice reports whether two slices are the same memory, both empty, or both nil.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (a == nil) == (b == nil) && (len(a) == 0 || &a[0] == &b[0])
}
