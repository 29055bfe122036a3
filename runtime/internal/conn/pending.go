package conn

import (
	"sync/atomic"
)

// maxPending bounds the commands that are not answered, and the answers that are not sent.
const maxPending = 1024

// pending counts the commands whose answer the store or the engine still owes. While there are
// maxPending, no frame is handled. Only the loop adds; any goroutine may call done.
type pending struct {
	n    atomic.Int64
	wake func() // of the loop
}

func (p *pending) add() { p.n.Add(1) }

func (p *pending) full() bool { return p.n.Load() >= maxPending }

func (p *pending) any() bool { return p.n.Load() > 0 }

// done counts an answer.
func (p *pending) done() {
	if p.n.Add(-1) == maxPending-1 {
		p.wake()
	}
}

// pendingReply posts the one answer to a command to the cursor, and counts it.
type pendingReply struct{ c *conn }

func (r pendingReply) AnswerAfterEvents(answer any) bool {
	defer r.c.pending.done()
	return r.c.cursor.AnswerAfterEvents(answer)
}

func (r pendingReply) AnswerBeforeEvents(answer any) bool {
	defer r.c.pending.done()
	return r.c.cursor.AnswerBeforeEvents(answer)
}
