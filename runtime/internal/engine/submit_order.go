package engine

import (
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// submitOrder keeps the submits of a session, and the answers to them, in the order in which the
// session sent them. The log keeps the order by itself, with two exceptions. A submit that repeats
// another one, by its idempotency key or its id, is answered by a second write. A call of a built-in
// tool runs before its write is appended, and the next call sees its changes. The submits behind
// such a submit wait until it is decided.
//
// A session has an entry, maybe empty, while one of its submits is not decided.
type submitOrder struct {
	mu   sync.Mutex
	held map[arcp.SessionID][]submitStep // the submits that wait
}

// submitStep performs a submit in its turn and reports whether the next one may follow at once. If
// not, Engine.submitDecided is called for the session later.
type submitStep func() (next bool)

// wait queues a step if the submits of a session have to wait.
func (o *submitOrder) wait(id arcp.SessionID, step submitStep) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	held, busy := o.held[id]
	if busy {
		o.held[id] = append(held, step)
	}
	return busy
}

// enqueue performs a step now or in its turn. holds says that the steps behind it wait until it is
// decided.
func (o *submitOrder) enqueue(id arcp.SessionID, holds bool, step submitStep) {
	o.mu.Lock()
	held, busy := o.held[id]
	if busy {
		o.held[id] = append(held, step)
	} else if holds {
		o.held[id] = nil
	}
	o.mu.Unlock()
	if !busy {
		step()
	}
}

// idle removes the entry of a session if no step waits, and reports whether it did.
func (o *submitOrder) idle(id arcp.SessionID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.held[id]) > 0 {
		return false
	}
	delete(o.held, id)
	return true
}

// drain performs the steps of a session that wait, up to the next one that holds.
func (o *submitOrder) drain(id arcp.SessionID) {
	for {
		step, ok := o.next(id)
		if !ok || !step() {
			return
		}
	}
}

func (o *submitOrder) next(id arcp.SessionID) (step submitStep, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := o.held[id]
	if len(held) == 0 {
		delete(o.held, id)
		return nil, false
	}
	step, o.held[id] = held[0], held[1:]
	return step, true
}

// submitDecided performs the submits behind one that is decided. It may be called on the
// committer's goroutine, on which no submit runs.
func (e submitter) submitDecided(id arcp.SessionID) {
	if !e.order.idle(id) {
		e.pool.Run(func() { e.order.drain(id) })
	}
}

// inOrder performs a step of a submit now or in its turn. It reports whether the next submit may
// follow at once.
func (e submitter) inOrder(s *Submit, holds bool, do submitStep) (next bool) {
	if s.inTurn {
		return do()
	}
	e.order.enqueue(s.Session, holds, do)
	return true
}

// appendSubmit appends the write of a submit in its order. done is called on the committer's
// goroutine and told whether there is a job; if not, the submit is answered. placed is called when
// the write has its position in the log. appendSubmit reports whether the next submit may follow at
// once.
func (e submitter) appendSubmit(submit *Submit, r *run, w *store.Write, done func(made bool), placed func()) (next bool) {
	s, doubtful := *submit, r.mayRepeat(submit)
	return e.inOrder(submit, doubtful, func() bool {
		e.cfg.Log.Append(w, func(res *store.Result) {
			done(e.claimed(&s, r, res))
			if doubtful {
				e.submitDecided(s.Session)
			}
			s.decided()
		})
		placed()
		return !doubtful
	})
}

// Refuse answers a submit with an error, in its place in the order.
func (e *Engine) Refuse(submit *Submit, t arcp.Type, err *arcp.Error) {
	s, answer := *submit, refusalFrame(submit, t, err)
	submitter{e}.inOrder(submit, false, func() bool {
		e.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: s.Session}}, NoSync: true}, func(*store.Result) {
			s.Answers.AnswerAfterEvents(answer)
			s.decided()
		})
		return true
	})
}

// decided tells the connection that the submit is decided.
func (s *Submit) decided() {
	if s.Decided != nil {
		s.Decided()
	}
}
