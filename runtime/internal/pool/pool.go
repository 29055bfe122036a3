// Package pool runs functions on goroutines that are used again. A fresh
// goroutine has to grow its stack, which is most of the cost of something short.
package pool

import "sync"

// maxIdle bounds the goroutines that wait for something to run: as many as start
// and end within a moment on a busy server.
const maxIdle = 256

// Pool runs functions. Its methods may be called by many goroutines.
type Pool struct {
	mu     sync.Mutex
	idle   []worker // the last is used first: its stack is in the processor's caches
	closed bool
}

// worker is what a goroutine waits for while it is idle. It has room for one.
type worker chan func()

// New returns a pool without goroutines.
func New() *Pool { return new(Pool) }

// Close ends the idle goroutines, and each of the others when what it runs has
// ended. It does not wait for them. It is called once.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, w := range p.idle {
		close(w)
	}
	p.idle = nil
}

// Run has f run at once, on an idle goroutine if there is one. It does not wait
// for f, also after Close.
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

func (p *Pool) loop(f func()) {
	var w worker
	for f != nil {
		f()
		f = nil // an idle goroutine does not keep what it ran
		if w == nil {
			w = make(worker, 1)
		}
		if p.rest(w) {
			f = <-w
		}
	}
}

// rest reports whether the goroutine is kept.
func (p *Pool) rest(w worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == maxIdle {
		return false
	}
	p.idle = append(p.idle, w)
	return true
}
