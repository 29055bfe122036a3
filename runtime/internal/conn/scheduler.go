package conn

import (
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/pool"
)

// scheduler runs the turns of a connection's loop, one after the other, on a goroutine of
// the pool while there is something to do. It carries no data: the inbox, the cursors and the
// outbox wake it. An idle connection is little more than the stack of its reader.
type scheduler struct {
	pool  *pool.Pool
	state atomic.Int32
	turn  func() bool // false: it was the last
	tick  *time.Timer // for the next turn that is due; nil: none. The loop's own
	body  func()      // t.run. While state is not turnsIdle, turn and body belong to that goroutine
}

const (
	turnsIdle    = iota
	turnsRunning // a turn is being taken
	turnsAgain   // another turn follows; after the last turn, for good
)

func newScheduler(p *pool.Pool, turn func() bool) *scheduler {
	t := &scheduler{pool: p, turn: turn}
	t.body = t.run
	return t
}

// wake makes a turn begin after now. Any goroutine may call it. The method value keeps
// nothing of the connection alive once the connection has ended.
func (t *scheduler) wake() {
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

func (t *scheduler) run() {
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
