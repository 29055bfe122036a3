package pool

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

func TestRunDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		block := make(chan struct{})
		var done sync.WaitGroup
		done.Add(2 * maxIdle)
		for range 2 * maxIdle {
			p.Run(func() { defer done.Done(); <-block })
		}
		close(block)
		done.Wait()
		synctest.Wait()
		if n := len(p.idle); n != maxIdle {
			t.Errorf("%d goroutines are kept, want %d", n, maxIdle)
		}
		p.Close() // the bubble fails if a goroutine is left
	})
}

func TestGoroutinesAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		for range 1000 {
			done := make(chan struct{})
			p.Run(func() { close(done) })
			<-done
			synctest.Wait()
		}
		if n := len(p.idle); n != 1 {
			t.Errorf("%d goroutines for one function at a time, want 1", n)
		}
		p.Close()
	})
}

func TestGoexitEndsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		p.Run(runtime.Goexit)
		synctest.Wait()
		ran := false
		p.Run(func() { ran = true })
		synctest.Wait()
		if !ran {
			t.Error("nothing runs after a function ended its goroutine")
		}
		p.Close()
	})
}

func TestRunAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		p.Close()
		ran := false
		p.Run(func() { ran = true })
		synctest.Wait()
		if !ran {
			t.Error("a function was dropped")
		}
	})
}

func BenchmarkRun(b *testing.B) {
	p := New()
	defer p.Close()
	done := make(chan struct{})
	for b.Loop() {
		p.Run(func() { done <- struct{}{} })
		<-done
	}
}
