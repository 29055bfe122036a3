package conn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/pool"
)

// tasks are the other goroutines of a connection. They read the store or wait for an
// authenticator, which the loop never does. Serve returns after they have ended.
type tasks struct {
	pool       *pool.Pool
	inbox      *inbox
	group      sync.WaitGroup
	running    atomic.Int32
	reading    bool               // read has not completed: no frame is handled
	cancelAuth context.CancelFunc // cancels the running authentication; nil: none
}

// loop returns the view of the loop for the cursors of the connection.
func (t *tasks) loop() eventlog.Loop { return eventlog.Loop{Wake: t.inbox.wake, Go: t.async} }

// async runs f on another goroutine.
func (t *tasks) async(f func()) {
	t.running.Add(1)
	t.group.Add(1)
	t.pool.Run(func() {
		defer t.group.Done()
		f()
		t.running.Add(-1)
	})
}

// read runs f on another goroutine, and then runs on the loop the function that f has returned. No
// frame is handled meanwhile, so that commands take effect in the order in which they were sent.
func (t *tasks) read(f func(ctx context.Context) (then func(now time.Time))) {
	t.reading = true
	t.async(func() {
		then := f(context.Background())
		t.inbox.runOnLoop(func(now time.Time) {
			t.reading = false
			then(now)
		})
	})
}

// runAsync runs f outside of the caller's path, for example to write a log record. It does not
// block.
func (t *tasks) runAsync(f func()) {
	if !t.inbox.runOnLoop(func(time.Time) { f() }) {
		t.pool.Run(f)
	}
}

// beginAuthentication returns the context of an authentication. It ends with the connection, so
// that the connection does not wait for the issuer of a token.
func (t *tasks) beginAuthentication() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancelAuth = cancel
	return ctx
}

// cancelAuthentication ends the context of beginAuthentication. It reports false if the context
// has ended before.
func (t *tasks) cancelAuthentication() bool {
	if t.cancelAuth == nil {
		return false
	}
	t.cancelAuth()
	t.cancelAuth = nil
	return true
}
