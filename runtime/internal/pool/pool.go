// Package pool runs functions on reused goroutines. A new goroutine has to grow its stack, which is
// most of the cost of a short function.
package pool

import "sync"

// maxIdle bounds the idle goroutines.
const maxIdle = 256

// Pool runs functions. Any goroutine may call its methods.
type Pool struct {
	mu     sync.Mutex
	idle   []worker // the last one is used first, because its stack is most likely cached
	closed bool
}

// worker passes the next function to an idle goroutine. The channel is buffered.
type worker chan func()

// New returns a pool without goroutines.
func New() *Pool { return new(Pool) }

// Close ends the idle goroutines, and each busy one after its function. It does not wait for them.
// It is called once.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, w := range p.idle {
		close(w)
	}
	p.idle = nil
}

// Run runs f at once, on an idle goroutine if there is one, and does not wait for f. It may be
// called after Close.
func (p *Pool) Run(f func()) {
	p.mu.Lock()
	last := len(p.idle) - 1
	if last < 0 {
		p.mu.Unlock()
		go p.loop(f)
		return
	}
	w := p.idle[last]
	p.idle = p.idle[:last]
	p.mu.Unlock()
	w <- f
}

// loop runs f and then the functions that it receives, until the pool has no room for it.
func (p *Pool) loop(f func()) {
	var w worker
	for f != nil {
		f()
		f = nil // f can be freed while the goroutine is idle
		if w == nil {
			w = make(worker, 1)
		}
		if p.addIdle(w) {
			f = <-w
		}
	}
}

// addIdle adds a goroutine to the idle ones, and reports whether there is room.
func (p *Pool) addIdle(w worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == maxIdle {
		return false
	}
	p.idle = append(p.idle, w)
	return true
}
