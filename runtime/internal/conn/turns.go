package conn

import (
	"sync/atomic"

	"github.com/arcpd/arcpd/runtime/internal/pool"
)

// turns are what a connection does, one after the other. They are run by a
// goroutine of the pool while there is something to do, and by none else: an
// idle connection is little more than the stack of its reader.
type turns struct {
	pool  *pool.Pool
	state atomic.Int32
	turn  func() bool // false: it was the last
	body  func()      // t.run; both belong to whom state has running
}

const (
	turnsIdle    = iota
	turnsRunning // a turn looks at what there is
	turnsAgain   // it may have looked already; after the last turn, for good
)

func newTurns(p *pool.Pool, turn func() bool) *turns {
	t := &turns{pool: p, turn: turn}
	t.body = t.run
	return t
}

// wake has a turn begin after now, by any goroutine. Who holds the method holds
// nothing of the connection once it has ended.
func (t *turns) wake() {
	for {
		switch t.state.Load() {
		case turnsIdle:
			if t.state.CompareAndSwap(turnsIdle, turnsRunning) {
				t.pool.Run(t.body)
				return
			}
		case turnsRunning:
			if t.state.CompareAndSwap(turnsRunning, turnsAgain) {
				return
			}
		default:
			return
		}
	}
}

func (t *turns) run() {
	for {
		t.state.Store(turnsRunning)
		if !t.turn() {
			t.state.Store(turnsAgain)
			t.turn, t.body = nil, nil
			return
		}
		if t.state.CompareAndSwap(turnsRunning, turnsIdle) {
			return
		}
	}
}
