package conn

import (
	"sync"
	"time"
)

// mailbox carries functions to the loop, in their order. The zero value is open.
type mailbox struct {
	mu     sync.Mutex
	list   []func(now time.Time)
	closed bool
}

// put reports false if the mailbox is closed.
func (b *mailbox) put(f func(now time.Time)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.list = append(b.list, f)
	}
	return !b.closed
}

// take returns what was put since the last call.
func (b *mailbox) take() []func(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = nil
	return list
}

// close refuses further functions. Those that were put can still be taken.
func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}
