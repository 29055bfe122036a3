package conn

import (
	"sync/atomic"
)

// maxUnanswered bounds the unanswered commands of a connection, and its unsent answers.
const maxUnanswered = 1024

// unanswered counts the commands that the store or the engine has not answered, and the writes that
// are not durable. While there are maxUnanswered, no frame is handled. Only the loop calls add; any
// goroutine may call done.
type unanswered struct {
	n      atomic.Int64
	wake   func() // wakes the loop
	onDone func() // done, as one value for all submits
}

func (u *unanswered) add() { u.n.Add(1) }

func (u *unanswered) full() bool { return u.n.Load() >= maxUnanswered }

func (u *unanswered) any() bool { return u.n.Load() > 0 }

// done counts one command or write as completed.
func (u *unanswered) done() {
	if u.n.Add(-1) == maxUnanswered-1 {
		u.wake()
	}
}

// answerSender sends the answer to a command through the cursor, and counts the command as answered.
type answerSender struct{ c *conn }

func (as answerSender) AnswerAfterEvents(answer any) bool {
	defer as.c.unanswered.done()
	return as.c.events.cursor.AnswerAfterEvents(answer)
}

func (as answerSender) AnswerBeforeEvents(answer any) bool {
	defer as.c.unanswered.done()
	return as.c.events.cursor.AnswerBeforeEvents(answer)
}
