package engine

import (
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// order keeps the submits of a session, and the answers to them, in the order in
// which the session sent them. The log does so by itself, with two exceptions. A
// submit that turns out to repeat another one, by its idempotency key or its id, is
// answered by a second write. A call of a built-in tool runs before its write is
// appended, and the next call sees what it changed. The submits behind such a one
// wait until it is settled.
type order struct {
	mu   sync.Mutex
	held map[arcp.SessionID][]step // the submits that wait; an entry, maybe empty, while one is not settled
}

// step performs a submit in its turn and reports whether the next one may follow at
// once. If not, Engine.settled is called for the session later.
type step func() (next bool)

// wait queues a step if the submits of a session have to wait now.
func (o *order) wait(id arcp.SessionID, s step) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	held, busy := o.held[id]
	if busy {
		o.held[id] = append(held, s)
	}
	return busy
}

// take performs a step now or in its turn. holds says that the ones behind it wait
// until it is settled.
func (o *order) take(id arcp.SessionID, holds bool, s step) {
	o.mu.Lock()
	held, busy := o.held[id]
	if busy {
		o.held[id] = append(held, s)
	} else if holds {
		o.held[id] = nil
	}
	o.mu.Unlock()
	if !busy {
		s()
	}
}

// idle ends the hold on a session if nothing waits, and reports whether it did.
func (o *order) idle(id arcp.SessionID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.held[id]) > 0 {
		return false
	}
	delete(o.held, id)
	return true
}

// drain performs the steps of a session that wait, up to one that holds.
func (o *order) drain(id arcp.SessionID) {
	for {
		s, ok := o.next(id)
		if !ok || !s() {
			return
		}
	}
}

func (o *order) next(id arcp.SessionID) (s step, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := o.held[id]
	if len(held) == 0 {
		delete(o.held, id)
		return nil, false
	}
	s, o.held[id] = held[0], held[1:]
	return s, true
}

// settled goes on behind a submit that held up the others of its session. It may be
// called on the committer's goroutine, on which no submit runs.
func (e *Engine) settled(id arcp.SessionID) {
	if !e.order.idle(id) {
		e.pool.Run(func() { e.order.drain(id) })
	}
}

// inOrder performs a step of a submit now or in its turn. It reports whether the next
// submit may follow at once.
func (e *Engine) inOrder(s *Submit, holds bool, do step) (next bool) {
	if s.inTurn {
		return do()
	}
	e.order.take(s.Session, holds, do)
	return true
}

// enter appends the write of a submit in its order. done is told, on the
// committer's goroutine, whether there is a job; if not, the answer has been
// given. placed is called when the write is in the log. It reports whether the next
// submit may follow at once.
func (e *Engine) enter(submit *Submit, r *run, w *store.Write, done func(made bool), placed func()) (next bool) {
	s, doubtful := *submit, r.doubtful(submit)
	return e.inOrder(submit, doubtful, func() bool {
		e.cfg.Log.Append(w, func(res *store.Result) {
			done(e.claimed(&s, r, res))
			if doubtful {
				e.settled(s.Session)
			}
			s.settle()
		})
		placed()
		return !doubtful
	})
}

// doubtful reports whether a submit may turn out to repeat another one.
func (r *run) doubtful(s *Submit) bool { return r.row.IdempotencyKey != "" || s.Recheck }

// Refuse answers a submit in its place in the order with an error.
func (e *Engine) Refuse(submit *Submit, t arcp.Type, err *arcp.Error) {
	s, answer := *submit, refusalFrame(submit, t, err)
	e.inOrder(submit, false, func() bool {
		e.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: s.Session}}, NoSync: true}, func(*store.Result) {
			s.Answers.Post(answer)
			s.settle()
		})
		return true
	})
}

func (s *Submit) settle() {
	if s.Settled != nil {
		s.Settled()
	}
}
