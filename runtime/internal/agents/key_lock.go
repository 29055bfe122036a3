package agents

import (
	"context"
	"sync"
)

// keyLock is a set of locks by key. The zero value has no locks.
type keyLock struct {
	mu sync.Mutex
	m  map[string]*waitLock
}

type waitLock struct {
	c chan struct{} // buffered 1: full while locked
	n int           // holder and waiters; guarded by keyLock.mu
}

// lock waits until no other goroutine holds the lock of a key, or ctx ends. The holder may call
// unlock on any goroutine.
func (l *keyLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	t := l.m[key]
	if t == nil {
		if l.m == nil {
			l.m = make(map[string]*waitLock)
		}
		t = &waitLock{c: make(chan struct{}, 1)}
		l.m[key] = t
	}
	t.n++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.n--; t.n == 0 {
			delete(l.m, key)
		}
	}
	select {
	case t.c <- struct{}{}:
		return func() { <-t.c; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
