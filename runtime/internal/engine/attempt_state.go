package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// eventQueue has the events of an attempt that are in no write yet, in their order. It is
// guarded by run.mu.
//
// bytes is the size of the bodies in list. checkpoint is set while the event of one
// checkpoint is in list. After close nothing is added.
type eventQueue struct {
	space      sync.Cond // of run.mu: list became shorter, the queue is closed, or the tool is to stop
	list       []*store.Event
	bytes      int
	checkpoint *pendingCheckpoint
	stopCause  error          // the tool was told to stop; nil: it was not
	closed     bool           // nothing more of the attempt is taken
	reusable   []*store.Event // owned by the supervisor: the memory of an earlier list
}

// push adds an event, also where there is no room for more.
func (q *eventQueue) push(events ...*store.Event) {
	q.list = append(q.list, events...)
	for _, ev := range events {
		q.bytes += len(ev.Body)
	}
}

// remove removes events that are still in the queue.
func (q *eventQueue) remove(events ...*store.Event) {
	q.list = slices.DeleteFunc(q.list, func(ev *store.Event) bool {
		found := slices.Contains(events, ev)
		if found {
			q.bytes -= len(ev.Body)
		}
		return found
	})
}

// drain takes the events, and the checkpoint among them.
func (q *eventQueue) drain() ([]*store.Event, *pendingCheckpoint) {
	events, p := q.list, q.checkpoint
	q.list, q.bytes, q.checkpoint = q.reusable[:0], 0, nil
	q.space.Broadcast()
	return events, p
}

// reuse keeps the memory of a list that was taken.
func (q *eventQueue) reuse(events []*store.Event) {
	clear(events)
	q.reusable = events
}

func (q *eventQueue) close() {
	q.closed = true
	q.space.Broadcast()
}

// stop records that the tool was told to stop. It does not wait for disk space any more.
func (q *eventQueue) stop(cause error) {
	q.stopCause = cause
	q.space.Broadcast()
}

// pausing reports whether the attempt pauses with the checkpoint in the queue.
func (q *eventQueue) pausing() bool { return q.checkpoint != nil && q.checkpoint.pause }

// ending reports whether nothing more can be part of the attempt.
func (q *eventQueue) ending() bool { return q.closed || q.pausing() }

// hasRoom reports whether the queue has room for an event, and for its checkpoint if p is
// not nil.
func (q *eventQueue) hasRoom(p *pendingCheckpoint) bool {
	return len(q.list) < maxQueuedEvents && q.bytes < maxQueuedBytes && (p == nil || q.checkpoint == nil)
}

// pendingWrite is the part of the next write, or of the write under way, that is no event of
// the tool. The supervisor owns it.
type pendingWrite struct {
	events     []*store.Event // of the machine; they precede the tool's
	newState   arcp.JobState  // the job's new state; empty: unchanged
	checkpoint *pendingCheckpoint
	questions  []questionEvent      // events of questions that are not in the log
	deliveries []store.DeliverEvent // of logged questions to more sessions
	rotations  []*rotation
	calls      []joinedCall // calls of built-in tools that end in the write
	commands   []command    // answered when the write is durable
}

// addCommands has a command answered when the next write is durable.
func (w *pendingWrite) addCommands(c ...command) { w.commands = append(w.commands, c...) }

// concludeCalls adds the writes of the calls, which happen together with w.
func (w *pendingWrite) concludeCalls(write *store.Write) {
	for _, j := range w.calls {
		write.With = append(write.With, j.call.conclusion(&job.Outcome{State: arcp.StateCompleted, Value: j.value()}))
	}
}

// dropCalls removes the calls from a write that cannot happen with them: their sessions
// have ended.
func (w *pendingWrite) dropCalls(write *store.Write) {
	for _, j := range w.calls {
		j.call.drop()
	}
	w.calls, write.With = nil, nil
}

// callsCommitted is called on the committer's goroutine.
func (w *pendingWrite) callsCommitted() {
	for _, j := range w.calls {
		j.call.concluded()
	}
	w.calls = nil
}

// toolCall is the call of the tool by an attempt. The supervisor writes it before the
// tool runs. The result is guarded by run.mu until returned is set.
type toolCall struct {
	returnedc    chan struct{} // closed when the tool has returned; nil: it was not called
	failedBefore int           // attempts that had failed before this one
	info         tool.AttemptInfo

	returned   bool // the result is there and not handled
	value      arcp.Raw
	err        *arcp.Error
	lostReason string // why the result is unknown; empty: it is known
}

// heartbeats are the tool's, since the last turn.
type heartbeats struct {
	manual   bool // the tool sends the heartbeats from now on
	received bool // it sent one
}

// noteLog has the notes of an attempt about its calls. added is guarded by run.mu.
type noteLog struct {
	count   int        // of the attempt
	added   []callNote // for the next write
	writing []callNote // in the write under way; owned by the supervisor
}

// add numbers a note and adds it, up to maxNotes.
func (l *noteLog) add(n callNote) {
	if l.count >= maxNotes {
		return
	}
	l.count++
	n.number = l.count
	l.added = append(l.added, n)
}

// beginWrite moves the notes to the write.
func (l *noteLog) beginWrite() { l.writing, l.added = append(l.writing, l.added...), nil }

// failure is a failed or lost attempt that another one follows.
type failure struct {
	code  arcp.Code
	delay time.Duration
}
