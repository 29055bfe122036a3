package engine

// maxIdle bounds the goroutines that wait for the next job: as many as start
// and end within a moment on a busy server.
const maxIdle = 256

// pool runs functions on goroutines that are used again, because a fresh one
// has to grow its stack each time: most of the cost of a short job.
type pool struct {
	work chan func()
	idle chan struct{} // one token an idle goroutine
	quit chan struct{}
}

func newPool() *pool {
	return &pool{work: make(chan func()), idle: make(chan struct{}, maxIdle), quit: make(chan struct{})}
}

// close ends the idle goroutines; nothing may be run any more.
func (p *pool) close() { close(p.quit) }

// run has f run at once, by an idle goroutine if there is one.
func (p *pool) run(f func()) {
	select {
	case p.work <- f:
	default:
		go p.loop(f)
	}
}

func (p *pool) loop(f func()) {
	for {
		f()
		f = nil // an idle goroutine does not keep the job it ran
		select {
		case p.idle <- struct{}{}:
		default:
			return
		}
		select {
		case f = <-p.work:
			<-p.idle
		case <-p.quit:
			return
		}
	}
}
