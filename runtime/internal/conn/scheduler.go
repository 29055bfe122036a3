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
	body  func()      // s.run, allocated once. Only the goroutine that runs turns accesses turn and body
}

const (
	turnIdle      = iota // no goroutine runs turns
	turnRunning          // a turn is running
	turnRequested        // another turn follows; after the last turn, the final state
)

func newScheduler(p *pool.Pool, turn func() bool) *scheduler {
	s := &scheduler{pool: p, turn: turn}
	s.body = s.run
	return s
}

// wake makes the loop run a turn that begins after the call. Any goroutine may call it. The
// method value does not reference the connection after its last turn.
func (s *scheduler) wake() {
	for {
		switch s.state.Load() {
		case turnIdle:
			if s.state.CompareAndSwap(turnIdle, turnRunning) {
				s.pool.Run(s.body)
				return
			}
		case turnRunning:
			if s.state.CompareAndSwap(turnRunning, turnRequested) {
				return
			}
		default:
			return
		}
	}
}

// run runs turns until no turn is due.
func (s *scheduler) run() {
	for {
		s.state.Store(turnRunning)
		if !s.turn() {
			s.state.Store(turnRequested)
			s.turn, s.body = nil, nil
			return
		}
		if s.state.CompareAndSwap(turnRunning, turnIdle) {
			return
		}
	}
}
