package conn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/pool"
)

// tasks are the goroutines of a connection beside its own three. They read the store or wait
// for others, which the loop never does. The connection does not end before they have.
type tasks struct {
	pool    *pool.Pool
	inbox   *inbox
	group   sync.WaitGroup
	running atomic.Int32
	reading bool               // a read has not completed; no frame is handled
	judging context.CancelFunc // ends the judgement of a credential; nil: none
}

// loop returns the loop of the connection as its cursors see it.
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

// read runs f on another goroutine, and then the function that f returned on the loop. No
// frame is handled until then: commands take effect in the order in which they were sent.
func (t *tasks) read(f func(ctx context.Context) (then func(now time.Time))) {
	t.reading = true
	t.async(func() {
		then := f(context.Background())
		t.inbox.complete(func(now time.Time) {
			t.reading = false
			then(now)
		})
	})
}

// runAsync runs f outside of the caller's path, for example to write a log record.
func (t *tasks) runAsync(f func()) {
	if !t.inbox.complete(func(time.Time) { f() }) {
		t.pool.Run(f)
	}
}

// beginJudgement returns a context for the judgement of a credential. It ends with the
// connection, which does not wait for an issuer that does not answer.
func (t *tasks) beginJudgement() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.judging = cancel
	return ctx
}

// endJudgement ends the context of beginJudgement. It reports false if it has ended before.
func (t *tasks) endJudgement() bool {
	if t.judging == nil {
		return false
	}
	t.judging()
	t.judging = nil
	return true
}
