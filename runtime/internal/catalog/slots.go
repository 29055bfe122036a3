package catalog

import "sync"

// Slots holds the number of jobs that may run at once for each tool of connected workers, by
// name@version. The zero value has no slots.
type Slots struct {
	mu sync.Mutex
	n  map[string]int // above 0
}

// Set sets the number of slots of a tool.
func (s *Slots) Set(ref string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= 0 {
		delete(s.n, ref)
		return
	}
	if s.n == nil {
		s.n = make(map[string]int)
	}
	s.n[ref] = n
}

// Of returns the number of slots of a tool; 0 if s is nil.
func (s *Slots) Of(ref string) int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n[ref]
}
