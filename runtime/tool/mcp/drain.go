package mcp

import (
	"context"
	"sync"
)

// callCount counts the calls under way. Many goroutines may use it.
type callCount struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n becomes 0; nil: nothing waits for it
}

func (c *callCount) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *callCount) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Drain waits until no call is under way, or until ctx ends. It refuses no calls: the caller first replaces the
// published tools.
func (s *Source) Drain(ctx context.Context) {
	s.calls.mu.Lock()
	if s.calls.n == 0 {
		s.calls.mu.Unlock()
		return
	}
	if s.calls.idle == nil {
		s.calls.idle = make(chan struct{})
	}
	idle := s.calls.idle
	s.calls.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
