package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// eventQueue has the events of an attempt that are not part of a write, in the order in which they
// were emitted. It is guarded by run.mu. After close nothing is added.
type eventQueue struct {
	space      sync.Cond // with run.mu; signals that there is room, that the queue is closed, or that the tool is to stop
	list       []*store.Event
	bytes      int                // of the bodies in list
	checkpoint *pendingCheckpoint // whose event is in list; nil: there is none
	fullSince  time.Time          // when the tool began to wait for disk space; zero: it does not
	stopCause  error              // the cause with which the tool has to stop; nil: it may continue
	closed     bool               // no event of the attempt is accepted any more
	streams    *streamSet         // nil: the attempt has opened no stream
	result     *toolResult        // in chunks; nil: the tool has begun none
	reusable   []*store.Event     // memory of an earlier list; owned by the supervisor
}

// push adds events, even if the queue has no room.
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

// drain removes and returns the events, and the checkpoint among them.
func (q *eventQueue) drain() ([]*store.Event, *pendingCheckpoint) {
	events, p := q.list, q.checkpoint
	q.list, q.bytes, q.checkpoint = q.reusable[:0], 0, nil
	q.space.Broadcast()
	return events, p
}

// reuse reserves the memory of a drained list for the next one.
func (q *eventQueue) reuse(events []*store.Event) {
	clear(events)
	q.reusable = events
}

// waitForRoom waits until space is signalled. full reports whether there is no disk space.
func (q *eventQueue) waitForRoom(full bool) {
	if q.fullSince.IsZero() && full {
		q.fullSince = time.Now()
		defer func() { q.fullSince = time.Time{} }()
	}
	q.space.Wait()
}

func (q *eventQueue) close() {
	q.closed = true
	q.space.Broadcast()
}

// stop records the cause with which the tool has to stop. The tool no longer waits for disk space.
func (q *eventQueue) stop(cause error) {
	q.stopCause = cause
	q.space.Broadcast()
}

// pausing reports whether the attempt pauses with the checkpoint in the queue.
func (q *eventQueue) pausing() bool { return q.checkpoint != nil && q.checkpoint.pause }

// ending reports whether no later event can be part of the attempt.
func (q *eventQueue) ending() bool { return q.closed || q.pausing() }

// hasRoom reports whether the queue has room for an event with a checkpoint; p may be nil.
func (q *eventQueue) hasRoom(p *pendingCheckpoint) bool {
	return len(q.list) < maxQueuedEvents && q.bytes < maxQueuedBytes && (p == nil || q.checkpoint == nil)
}

// toolCall is the call of the tool by an attempt. The supervisor sets the first members before the tool
// runs. The result is guarded by run.mu.
type toolCall struct {
	begun        bool        // the tool was called
	early        bool        // the supervisor's goroutine is about to run the tool
	decided      atomic.Bool // of an early tool: it has returned, or another goroutine has the supervisor
	failedBefore int         // attempts that had failed before this one
	info         tool.AttemptInfo

	// The result.
	end        signal // the tool has returned
	returned   bool   // the supervisor has not handled it
	value      arcp.Raw
	err        *arcp.Error
	logText    string // describes err without arguments, results and output; empty: there is no such text
	lostReason string // why the result is unknown; empty: it is known
}

// heartbeats are the heartbeats of the tool since the last turn.
type heartbeats struct {
	manual   bool // the tool sends the heartbeats from now on
	received bool // the tool sent a heartbeat
}

// noteLog has the notes of an attempt about its calls. run.mu guards count and added.
type noteLog struct {
	count   int        // of the attempt
	added   []callNote // for the next write
	writing []callNote // in the write in progress; owned by the supervisor
}

// add numbers a note and adds it. It drops the notes beyond maxNotes.
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

// failure describes a failed or lost attempt that is followed by another attempt.
type failure struct {
	at    time.Time // the delay begins here, before the event retry is written
	code  arcp.Code
	delay time.Duration
}
