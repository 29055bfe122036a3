// Package pool runs functions on goroutines that are used again. A fresh
// goroutine has to grow its stack, which is most of the cost of something short.
package pool

// maxIdle bounds the goroutines that wait for something to run: as many as start
// and end within a moment on a busy server.
const maxIdle = 256

// Pool runs functions. Its methods may be called by many goroutines.
type Pool struct {
	work chan func()
	idle chan struct{} // one token an idle goroutine
	quit chan struct{}
}

// New returns a pool without goroutines.
func New() *Pool {
	return &Pool{work: make(chan func()), idle: make(chan struct{}, maxIdle), quit: make(chan struct{})}
}

// Close ends the idle goroutines, and each of the others when what it runs has
// ended. It does not wait for them. It is called once.
func (p *Pool) Close() { close(p.quit) }

// Run has f run at once, on an idle goroutine if there is one. It does not wait
// for f, also after Close.
func (p *Pool) Run(f func()) {
	select {
	case p.work <- f:
	default:
		go p.loop(f)
	}
}

func (p *Pool) loop(f func()) {
	for f != nil {
		f()
		f = nil // an idle goroutine does not keep what it ran
		f = p.next()
	}
}

// next waits for something to run; nil: the goroutine is not needed any more. What
// runs for long keeps little of this on its stack.
//
//go:noinline
func (p *Pool) next() (f func()) {
	select {
	case <-p.quit:
		return nil
	case p.idle <- struct{}{}:
	default:
		return nil
	}
	select {
	case f = <-p.work:
		<-p.idle
	case <-p.quit:
	}
	return f
}
