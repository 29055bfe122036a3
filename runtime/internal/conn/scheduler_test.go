package conn

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/arcpd/arcpd/runtime/internal/pool"
)

// A turn begins after each wake, and there is never more than one turn at a time.
func TestTurnFollowsWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New()
		defer p.Close()
		var there, seen atomic.Int64
		var active atomic.Int32
		turns := newScheduler(p, func() bool {
			if active.Add(1) != 1 {
				t.Error("two turns at once")
			}
			seen.Store(there.Load())
			active.Add(-1)
			return true
		})
		for range 500 {
			var wakers sync.WaitGroup
			for range 8 {
				wakers.Go(func() {
					there.Add(1)
					turns.wake()
				})
			}
			wakers.Wait()
			synctest.Wait()
			if there.Load() != seen.Load() {
				t.Fatalf("%d of %d were seen, and no turn begins any more", seen.Load(), there.Load())
			}
		}
	})
}

// No turn follows the last one, and the wake function keeps nothing of the connection alive.
func TestTurnsEnd(t *testing.T) {
	p := pool.New()
	defer p.Close()
	var n atomic.Int32
	ended := make(chan struct{})
	wake, held := func() (func(), weak.Pointer[[64]int]) {
		big := new([64]int)
		turns := newScheduler(p, func() bool {
			big[0]++
			n.Add(1)
			close(ended)
			return false
		})
		return turns.wake, weak.Make(big)
	}()
	wake()
	<-ended
	for range 100 {
		wake()
	}
	for held.Value() != nil {
		goruntime.GC()
	}
	if n.Load() != 1 {
		t.Errorf("%d turns were taken, want one", n.Load())
	}
	goruntime.KeepAlive(wake)
}
