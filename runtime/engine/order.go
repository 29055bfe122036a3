package engine

import (
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// order keeps the answers to a session's submits in the order of the submits.
// The log does so by itself but for one case: a submit that turns out to repeat
// another one, with its idempotency key or its id, is answered by a second
// write. What comes behind one that may therefore waits until that is settled.
type order struct {
	mu   sync.Mutex
	held map[arcp.SessionID][]step // an entry, maybe empty, while a submit that may be a repetition is not settled
}

// step appends a submit to the log.
type step struct {
	doubtful bool
	do       func()
}

// take has a submit appended, now or in its turn.
func (o *order) take(id arcp.SessionID, s step) {
	o.mu.Lock()
	held, busy := o.held[id]
	if busy {
		o.held[id] = append(held, s)
	} else if s.doubtful {
		o.held[id] = nil
	}
	o.mu.Unlock()
	if !busy {
		s.do()
	}
}

// settled goes on behind a submit that may have been a repetition, up to the
// next one.
func (o *order) settled(id arcp.SessionID) {
	for {
		s, ok := o.next(id)
		if !ok {
			return
		}
		if s.do(); s.doubtful {
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
		return step{}, false
	}
	s, o.held[id] = held[0], held[1:]
	return s, true
}

// enter appends the write of a submit in its order. done is told, on the
// committer's goroutine, whether there is a job; if not, the answer has been
// given. placed is called when the write is in the log.
func (e *Engine) enter(submit *Submit, r *run, w *store.Write, done func(made bool), placed func()) {
	s, doubtful := *submit, r.row.IdempotencyKey != "" || submit.Recheck
	e.order.take(s.Session, step{doubtful, func() {
		e.cfg.Log.Append(w, func(res *store.Result) {
			done(e.claimed(&s, r, res))
			if doubtful {
				e.order.settled(s.Session)
			}
			s.settle()
		})
		placed()
	}})
}

// Refuse answers a submit in its place in the order with an error.
func (e *Engine) Refuse(submit *Submit, t arcp.Type, err *arcp.Error) {
	s, answer := *submit, refusalFrame(submit, t, err)
	e.order.take(s.Session, step{do: func() {
		e.cfg.Log.Append(&store.Write{Mark: s.Session, NoSync: true}, func(*store.Result) {
			s.Answers.Post(answer)
			s.settle()
		})
	}})
}

func (s *Submit) settle() {
	if s.Settled != nil {
		s.Settled()
	}
}
