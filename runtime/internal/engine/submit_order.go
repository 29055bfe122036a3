package engine

import (
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/runtime/store"
)

// submitOrder preserves the order of the submits of a session, and of the answers to them. The log
// preserves the order of writes, but three kinds of submit need more:
//
//   - A submit that may repeat another one, by its idempotency key or its id. A second write may
//     answer it.
//   - A call of a built-in tool. It runs before its write is appended, and the next call must see its
//     changes.
//   - An early job. Its tool runs before its claim is appended.
//
// The first two block the later submits of their session until they are decided, an early job until its
// claim has its position in the log.
//
// A session has an entry, maybe empty, while a submit blocks.
type submitOrder struct {
	pool    *pool.Pool
	mu      sync.Mutex
	waiting map[arcp.SessionID][]submitStep // what waits
}

// submitStep is a submit, or a part of one.
type submitStep interface {
	// step performs it in its turn and reports whether it blocks the later ones. If so,
	// submitOrder.unblock is called for the session later.
	step() (blocks bool)
}

// stepFunc is a submitStep.
type stepFunc func() (blocks bool)

func (f stepFunc) step() bool { return f() }

// wait queues a step if the submits of a session have to wait.
func (o *submitOrder) wait(id arcp.SessionID, step submitStep) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	held, busy := o.waiting[id]
	if busy {
		o.waiting[id] = append(held, step)
	}
	return busy
}

// enqueue performs a step at once, or after the steps that wait. blocks says whether the step may block
// the later ones.
func (o *submitOrder) enqueue(id arcp.SessionID, blocks bool, step submitStep) {
	o.mu.Lock()
	held, busy := o.waiting[id]
	if busy {
		o.waiting[id] = append(held, step)
	} else if blocks {
		o.waiting[id] = nil
	}
	o.mu.Unlock()
	if !busy {
		step.step()
	}
}

// removeIdle removes the entry of a session if no step waits, and reports whether it did.
func (o *submitOrder) removeIdle(id arcp.SessionID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting[id]) > 0 {
		return false
	}
	delete(o.waiting, id)
	return true
}

// drain performs the waiting steps of a session, up to the next one that blocks.
func (o *submitOrder) drain(id arcp.SessionID) {
	for {
		step, ok := o.dequeue(id)
		if !ok || step.step() {
			return
		}
	}
}

func (o *submitOrder) dequeue(id arcp.SessionID) (step submitStep, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := o.waiting[id]
	if len(held) == 0 {
		delete(o.waiting, id)
		return nil, false
	}
	step, o.waiting[id] = held[0], held[1:]
	return step, true
}

// unblock performs the submits behind one that has blocked them. It may be called on the committer's
// goroutine, on which no submit runs.
func (o *submitOrder) unblock(id arcp.SessionID) {
	if !o.removeIdle(id) {
		o.pool.Run(func() { o.drain(id) })
	}
}

// perform performs a step of a submit at once or in its turn. It reports whether the submit blocks
// the later ones; a step in the queue reports that in its turn.
func (o *submitOrder) perform(s *Submit, blocks bool, step submitStep) bool {
	if s.inTurn {
		return step.step()
	}
	o.enqueue(s.Session, blocks, step)
	return false
}

// append appends the write of a submit in its turn. It reports whether the submit blocks the session's
// later submits. Four functions run, in this order:
//
//  1. step appends the write: at once, or in its turn on a goroutine of the pool.
//  2. placed follows on the same goroutine, when the write has its position in the log.
//  3. done runs on the committer's goroutine when the write is durable or refused, even before placed
//     returns. Its argument is whether there is a job. If there is none, the submit is answered first.
//  4. OnDecided runs on the committer's goroutine, after the later submits are unblocked.
//
// appendProvisioned has the same order. A call of a built-in tool has only step and OnDecided, an early
// job only OnDecided.
func (s *Submit) append(r *run, w *store.Write, done func(created bool), placed func()) bool {
	blocks := r.mayRepeat(s)
	return r.e.order.perform(s, blocks, stepFunc(func() bool {
		r.e.cfg.Log.Append(w, func(res *store.Result) {
			done(s.claimCommitted(r, res))
			if blocks {
				r.e.order.unblock(s.Session)
			}
			s.notifyDecided()
		})
		placed()
		return blocks
	}))
}

// Refuse answers a submit with an error, in the order of the submits. The engine keeps s.
func (e *Engine) Refuse(s *Submit, t arcp.Type, err *arcp.Error) {
	answer := refusalFrame(s, t, err)
	e.order.perform(s, false, stepFunc(func() bool {
		e.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: s.Session}}, NoSync: true}, func(*store.Result) {
			s.Answers.AnswerAfterEvents(answer)
			s.notifyDecided()
		})
		return false
	}))
}

// notifyDecided calls OnDecided.
func (s *Submit) notifyDecided() {
	if s.OnDecided != nil {
		s.OnDecided()
	}
}
