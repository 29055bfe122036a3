// Package diskspace detects that the disk is nearly full, so that work can be refused.
package diskspace

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// interval is the interval of the checks. Much less than the minimum can be written in that time.
const interval = time.Second

// Watch checks the free space of the disk on its own goroutine. Any goroutine may call its methods.
type Watch struct {
	opts Options
	full atomic.Bool
	quit chan struct{}
	once sync.Once
	done sync.WaitGroup
}

// Options of a Watch.
type Options struct {
	Free    func() (uint64, error) // returns the free bytes of the disk of the store; nil: the disk is not watched
	MinFree int64                  // bytes; not positive: the disk is not watched
	OnFull  func(full bool)        // if set, called for each change
	Logger  zerolog.Logger
}

// New returns a Watch that has not started. It checks the free space once.
func New(o Options) *Watch {
	w := &Watch{opts: o, quit: make(chan struct{})}
	if w.enabled() {
		w.check(func() {})
	}
	return w
}

func (w *Watch) enabled() bool { return w.opts.Free != nil && w.opts.MinFree > 0 }

// Full reports whether the disk is nearly full.
func (w *Watch) Full() bool { return w.full.Load() }

// Start starts the goroutine. freed is called when space is available again.
func (w *Watch) Start(freed func()) {
	if w.enabled() {
		w.done.Go(func() { w.run(freed) })
	}
}

// Stop ends the goroutine and waits for it. It may be called twice.
func (w *Watch) Stop() {
	w.once.Do(func() { close(w.quit) })
	w.done.Wait()
}

func (w *Watch) run(freed func()) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.check(freed)
		case <-w.quit:
			return
		}
	}
}

// check compares the free space with the minimum, because Pebble ends the process when it cannot
// write. Full becomes false an eighth above the minimum, so that it does not alternate.
func (w *Watch) check(freed func()) {
	free, err := w.opts.Free()
	if err != nil {
		w.opts.Logger.Error().Err(err).Msg("free space of the data directory")
		return
	}
	minFree := uint64(w.opts.MinFree)
	switch was := w.full.Load(); {
	case !was && free < minFree:
		w.full.Store(true)
		w.opts.Logger.Error().Uint64("free_bytes", free).Uint64("min_free_bytes", minFree).
			Msg("the disk is nearly full: no jobs and sessions are accepted and tools wait; make room, or lower --min-free")
	case was && free >= minFree+minFree/8:
		w.full.Store(false)
		freed()
		w.opts.Logger.Info().Uint64("free_bytes", free).Msg("there is room on the disk again")
	default:
		return
	}
	if w.opts.OnFull != nil {
		w.opts.OnFull(w.full.Load())
	}
}
