package space

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// A store is full from its bound on until it is a twentieth smaller. Commits, or else a second, make
// the watch notice.
func TestStoreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var size, near, freed atomic.Int64
		w := New(Options{Size: size.Load, MaxData: 1000, OnNearFull: func() { near.Add(1) }})
		w.Start(func() { freed.Add(1) })
		defer w.Stop()
		time.Sleep(time.Second / 2) // the next tick is half a second away
		want := func(why string, after time.Duration, bytes int64, full, large bool) {
			t.Helper()
			near.Store(0)
			size.Store(bytes)
			if after < time.Second {
				w.Committed()
			}
			time.Sleep(after)
			synctest.Wait()
			if w.DataFull() != full || near.Load() > 0 != large {
				t.Errorf("%s: full %v, near %d times; want %v, %v", why, w.DataFull(), near.Load(), full, large)
			}
		}
		want("nine tenths", commitInterval, 900, false, false)
		want("more", commitInterval, 901, false, true)
		want("the bound", commitInterval, 1000, true, true)
		want("less than a twentieth below it", commitInterval, 951, true, true)
		want("a twentieth below it", time.Second, 950, false, true)
		want("without a commit", time.Second, 2000, true, true)
		want("little", time.Second, 0, false, false)
		if n := freed.Load(); n != 2 {
			t.Errorf("freed was called %d times, want twice", n)
		}
	})
}

// A store that is full at the start is so from the start on.
func TestStoreFullAtTheStart(t *testing.T) {
	w := New(Options{Size: func() int64 { return 1000 }, MaxData: 1000, OnNearFull: func() {}})
	w.Start(func() {})
	defer w.Stop()
	if !w.DataFull() {
		t.Error("the store is not full")
	}
}

// A store that stays full is an error of the operator's, and one that has room soon is not.
func TestStoreStaysFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var size atomic.Int64
		var log bytes.Buffer
		w := New(Options{Size: size.Load, MaxData: 1000, OnNearFull: func() {}, Logger: zerolog.New(&log)})
		w.Start(func() {})
		errorsAfter := func(bytes int64, d time.Duration) int {
			size.Store(bytes)
			time.Sleep(d)
			synctest.Wait()
			return strings.Count(log.String(), `"level":"error"`)
		}
		if n := errorsAfter(1000, deletionTime-2*interval); n != 0 {
			t.Errorf("%d errors at the bound", n)
		}
		if n := errorsAfter(0, time.Minute); n != 0 {
			t.Errorf("%d errors after there was room", n)
		}
		if n := errorsAfter(1000, time.Hour); n != 1 {
			t.Errorf("%d errors for a store that stays full, want one", n)
		}
		w.Stop()
	})
}

// A disk is nearly full below its minimum, and exhausted below half of it.
func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Uint64
		free.Store(1000)
		w := New(Options{Free: func() (uint64, error) { return free.Load(), nil }, MinFree: 1000})
		w.Start(func() {})
		defer w.Stop()
		for _, c := range []struct {
			free            uint64
			full, exhausted bool
		}{{1000, false, false}, {999, true, false}, {500, true, false}, {499, true, true}, {500, true, false}, {1124, true, false}, {1125, false, false}} {
			free.Store(c.free)
			time.Sleep(interval)
			synctest.Wait()
			if w.DiskFull() != c.full || w.DiskExhausted() != c.exhausted {
				t.Errorf("with %d free: full %v, exhausted %v, want %v and %v", c.free, w.DiskFull(), w.DiskExhausted(), c.full, c.exhausted)
			}
		}
	})
}
