package tool

import "sync"

// Gate holds back the jobs of tools whose server has not been reached since the start of the runtime: they wait
// in the queues of their tools. A gate is closed at first, and stays open once it is opened. Many goroutines may
// use it. A nil Gate is open.
type Gate struct {
	mu    sync.Mutex
	open  bool
	calls []func() // of OnOpen
}

// IsOpen reports whether the gate is open.
func (g *Gate) IsOpen() bool {
	if g == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// Open opens the gate.
func (g *Gate) Open() {
	g.mu.Lock()
	calls := g.calls
	g.open, g.calls = true, nil
	g.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// OnOpen has Open call f, without a lock. It reports false, and does nothing, if the gate is open.
func (g *Gate) OnOpen(f func()) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		g.calls = append(g.calls, f)
	}
	return !g.open
}
