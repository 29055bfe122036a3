package conn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/pool"
)

// tasks are the other goroutines of a connection. They read the store or wait for an authenticator,
// so that the loop does not wait for them. Serve returns after they have ended.
type tasks struct {
	pool           *pool.Pool
	inbox          *inbox
	group          sync.WaitGroup
	running        atomic.Int32
	inOrderRunning bool               // backgroundInOrder has not completed: no frame is handled
	connected      context.Context    // ends when the client is gone, at the latest with the connection
	disconnect     context.CancelFunc // ends connected
}

// background runs f on another goroutine.
func (t *tasks) background(f func()) {
	t.running.Add(1)
	t.group.Add(1)
	t.pool.Run(func() {
		defer t.group.Done()
		f()
		t.running.Add(-1)
	})
}

// backgroundThenLoop runs f on another goroutine, and then runs on the loop the function that f has
// returned. That function does not run if the loop has ended.
func (t *tasks) backgroundThenLoop(f func(ctx context.Context) (onLoop func(now time.Time))) {
	t.background(func() { t.inbox.runOnLoop(f(context.Background())) })
}

// backgroundInOrder is backgroundThenLoop, and no frame is handled until both functions have
// returned: commands take effect in the order in which they were sent.
func (t *tasks) backgroundInOrder(f func(ctx context.Context) (onLoop func(now time.Time))) {
	t.inOrderRunning = true
	t.backgroundThenLoop(func(ctx context.Context) func(time.Time) {
		onLoop := f(ctx)
		return func(now time.Time) {
			t.inOrderRunning = false
			onLoop(now)
		}
	})
}

// runOnLoopOrPool runs f on the loop, or on a goroutine of the pool if the loop has ended. Any
// goroutine may call it; it does not block.
func (t *tasks) runOnLoopOrPool(f func()) {
	if !t.inbox.runOnLoop(func(time.Time) { f() }) {
		t.pool.Run(f)
	}
}
