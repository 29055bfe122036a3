package conn

import (
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/pool"
)

// scheduler runs the turns of a connection's loop, one after the other. It uses a goroutine of the
// pool while there is something to do. The inbox, the cursors and the outbox wake it.
type scheduler struct {
	pool  *pool.Pool
	state atomic.Int32
	turn  func() bool // returns false after the last turn
	tick  *time.Timer // wakes the next turn that is due; nil: none. Only the loop accesses it
	body  func()      // t.run, allocated once. Only the goroutine that runs turns accesses turn and body
}

const (
	turnsIdle    = iota // no goroutine runs turns
	turnsRunning        // a turn is running
	turnsAgain          // another turn follows; after the last turn, the final state
)

func newScheduler(p *pool.Pool, turn func() bool) *scheduler {
	t := &scheduler{pool: p, turn: turn}
	t.body = t.run
	return t
}

// wake makes the loop run a turn that begins after the call. Any goroutine may call it. The
// method value does not reference the connection after its last turn.
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

// run runs turns until there is nothing to do.
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
