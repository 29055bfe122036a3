package conn

import (
	"sync/atomic"
)

// maxPending bounds the unanswered commands of a connection, and its unsent answers.
const maxPending = 1024

// pending counts the commands that the store or the engine has not answered, and the writes that
// are not durable. While there are maxPending, no frame is handled. Only the loop calls add; any
// goroutine may call done.
type pending struct {
	n    atomic.Int64
	wake func() // wakes the loop
}

func (p *pending) add() { p.n.Add(1) }

func (p *pending) full() bool { return p.n.Load() >= maxPending }

func (p *pending) any() bool { return p.n.Load() > 0 }

// done counts one command or write as completed.
func (p *pending) done() {
	if p.n.Add(-1) == maxPending-1 {
		p.wake()
	}
}

// pendingReply sends the answer to a pending command through the cursor, and calls done.
type pendingReply struct{ c *conn }

func (r pendingReply) AnswerAfterEvents(answer any) bool {
	defer r.c.pending.done()
	return r.c.events.cursor.AnswerAfterEvents(answer)
}

func (r pendingReply) AnswerBeforeEvents(answer any) bool {
	defer r.c.pending.done()
	return r.c.events.cursor.AnswerBeforeEvents(answer)
}
