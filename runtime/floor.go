package runtime

import (
	"sync"
	"time"
)

// spaceInterval is how often free space is looked at. What may be written in the
// meantime is far less than the floor.
const spaceInterval = time.Second

// spaceWatch looks after the free space of the disk, on a goroutine of its own:
// a deletion under way is no reason to write on.
type spaceWatch struct {
	on   bool
	quit chan struct{}
	once sync.Once
	done sync.WaitGroup
}

// newSpaceWatch looks at the free space once, before anything is accepted.
func newSpaceWatch(r *Runtime) *spaceWatch {
	w := &spaceWatch{on: r.cfg.FreeSpace != nil && r.cfg.MinFree > 0, quit: make(chan struct{})}
	if w.on {
		r.checkSpace()
	}
	return w
}

func (w *spaceWatch) start(check func()) {
	if w.on {
		w.done.Go(func() { w.run(check) })
	}
}

func (w *spaceWatch) run(check func()) {
	t := time.NewTicker(spaceInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			check()
		case <-w.quit:
			return
		}
	}
}

func (w *spaceWatch) stop() {
	w.once.Do(func() { close(w.quit) })
	w.done.Wait()
}

// checkSpace refuses work before the disk is full: Pebble ends the process when
// it cannot write. There is a margin between the floor and where work is
// accepted again, so that it does not go back and forth.
func (r *Runtime) checkSpace() {
	free, err := r.cfg.FreeSpace()
	if err != nil {
		r.cfg.Log.Error().Err(err).Msg("free space of the data directory")
		return
	}
	floor := uint64(r.cfg.MinFree)
	switch was := r.full.Load(); {
	case !was && free < floor:
		r.full.Store(true)
		r.cfg.Log.Error().Uint64("free_bytes", free).Uint64("min_free_bytes", floor).
			Msg("the disk is nearly full: no jobs and sessions are accepted and tools wait; make room, or lower --min-free")
	case was && free >= floor+floor/8:
		r.full.Store(false)
		r.engine.SpaceFreed()
		r.cfg.Log.Info().Uint64("free_bytes", free).Msg("there is room on the disk again")
	default:
		return
	}
	if r.cfg.OnFull != nil {
		r.cfg.OnFull(r.full.Load())
	}
}
