// Package space detects that the disk is nearly full, or that the store nears its bound, so that
// data can be deleted and work refused.
package space

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// interval is the interval of the checks. Much less than the minimum of the disk can be written
	// in that time.
	interval = time.Second

	// commitInterval is the interval of the checks of the store while there are commits. A store in
	// memory grows by some 10 MB in that time.
	commitInterval = 100 * time.Millisecond

	// deletionTime is the time in which a full store has room again if there are finished jobs to delete.
	deletionTime = 10 * time.Second
)

// Watch checks the disk and the store on its own goroutine. Any goroutine may call its methods.
type Watch struct {
	opts     Options
	diskFull atomic.Bool
	noSpace  atomic.Bool // the disk has less than half of its minimum
	dataFull atomic.Bool
	free     atomic.Uint64 // of the disk at the last check
	fullAt   time.Time     // when dataFull became true; zero: it is false, or still being full was logged
	commitc  chan struct{} // buffered 1: there was a commit since the last check
	quit     chan struct{}
	once     sync.Once
	done     sync.WaitGroup
}

// Options of a Watch.
type Options struct {
	Free    func() (uint64, error) // returns the free bytes of the disk of the store; nil: the disk is not watched
	MinFree int64                  // bytes; not positive: the disk is not watched
	OnFull  func(full bool)        // if set, called for each change of DiskFull

	Size       func() int64 // returns the bytes of the store, without the space that it has yet to reclaim
	MaxData    int64        // bytes of the store; not positive: the store is not watched
	OnNearFull func()       // called at each check above HighWater; it must not block

	Logger zerolog.Logger
}

// HighWater returns nine tenths of the bound of a store. Above it the oldest data is deleted.
func HighWater(maxData int64) int64 { return maxData - maxData/10 }

// New returns a Watch that has not started. It checks the disk once.
func New(o Options) *Watch {
	w := &Watch{opts: o, commitc: make(chan struct{}, 1), quit: make(chan struct{})}
	w.checkDisk(func() {})
	return w
}

func (w *Watch) watchesDisk() bool  { return w.opts.Free != nil && w.opts.MinFree > 0 }
func (w *Watch) watchesStore() bool { return w.opts.MaxData > 0 }

// DiskFull reports whether the disk is nearly full. Sessions and calls of built-in tools need little space, and can
// make room: they are refused when DiskExhausted.
func (w *Watch) DiskFull() bool { return w.diskFull.Load() }

// DiskExhausted reports whether the disk has less than half of its minimum.
func (w *Watch) DiskExhausted() bool { return w.noSpace.Load() }

// DataFull reports whether the store has reached its bound.
func (w *Watch) DataFull() bool { return w.dataFull.Load() }

// Free returns the free bytes of the disk at the last check, at most interval ago. ok is false if the disk is
// not watched.
func (w *Watch) Free() (bytes uint64, ok bool) { return w.free.Load(), w.watchesDisk() }

// Start checks the store and starts the goroutine. freed is called when space is available again.
func (w *Watch) Start(freed func()) {
	w.checkStore(freed)
	if w.watchesDisk() || w.watchesStore() {
		w.done.Go(func() { w.run(freed) })
	}
}

// Stop ends the goroutine and waits for it. It may be called twice.
func (w *Watch) Stop() {
	w.once.Do(func() { close(w.quit) })
	w.done.Wait()
}

// Committed makes the watch check the store within commitInterval. It does not block.
func (w *Watch) Committed() {
	select {
	case w.commitc <- struct{}{}:
	default:
	}
}

func (w *Watch) run(freed func()) {
	t := time.NewTicker(interval)
	defer t.Stop()
	commits := w.commitc // nil: the pause after a check
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-t.C:
			w.checkDisk(freed)
			w.checkStore(freed)
		case <-commits:
			w.checkStore(freed)
			commits = nil
			pause.Reset(commitInterval)
		case <-pause.C:
			commits = w.commitc
		case <-w.quit:
			return
		}
	}
}

// checkDisk compares the free space with the minimum, because Pebble ends the process when it cannot
// write. DiskFull becomes false an eighth above the minimum, so that it does not alternate.
func (w *Watch) checkDisk(freed func()) {
	if !w.watchesDisk() {
		return
	}
	free, err := w.opts.Free()
	if err != nil {
		w.opts.Logger.Error().Err(err).Msg("free space of the data directory")
		return
	}
	w.free.Store(free)
	minFree := uint64(w.opts.MinFree)
	w.noSpace.Store(free < minFree/2)
	switch was := w.diskFull.Load(); {
	case !was && free < minFree:
		w.diskFull.Store(true)
		w.opts.Logger.Error().Uint64("free_bytes", free).Uint64("min_free_bytes", minFree).
			Msg("the disk is nearly full: no jobs are accepted and tools wait, and below half of the minimum no sessions; make room, or lower --min-free")
	case was && free >= minFree+minFree/8:
		w.diskFull.Store(false)
		freed()
		w.opts.Logger.Info().Uint64("free_bytes", free).Msg("there is room on the disk again")
	default:
		return
	}
	if w.opts.OnFull != nil {
		w.opts.OnFull(w.diskFull.Load())
	}
}

// checkStore compares the size of the store with its bound. DataFull becomes false a twentieth below
// the bound, so that it does not alternate.
func (w *Watch) checkStore(freed func()) {
	if !w.watchesStore() {
		return
	}
	size, limit := w.opts.Size(), w.opts.MaxData
	switch was := w.dataFull.Load(); {
	case !was && size >= limit:
		w.dataFull.Store(true)
		w.fullAt = time.Now()
		w.opts.Logger.Warn().Int64("bytes", size).Int64("max_bytes", limit).
			Msg("the store has reached its bound: no jobs are accepted and tools wait until the oldest finished jobs are deleted")
	case was && size <= limit-limit/20:
		w.dataFull.Store(false)
		w.fullAt = time.Time{}
		freed()
		w.opts.Logger.Info().Int64("bytes", size).Msg("the store has room again")
	case was && !w.fullAt.IsZero() && time.Since(w.fullAt) >= deletionTime:
		w.fullAt = time.Time{}
		w.opts.Logger.Error().Int64("bytes", size).Int64("max_bytes", limit).
			Msg("the store is full of data that is still needed: end or cancel jobs, or raise --max-data")
	}
	if size > HighWater(limit) {
		w.opts.OnNearFull()
	}
}
