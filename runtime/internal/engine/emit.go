package engine

import (
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// toolJob is the tool.Host of an attempt. The tool calls its methods on any goroutine.
type toolJob struct{ toolGoroutine }

// toolGoroutine has the methods of an attempt that run on a goroutine of the tool. While an early tool
// runs, that may be the goroutine of the supervisor s, which then does nothing else.
type toolGoroutine struct{ s *supervisor }

var _ tool.Attempt = toolJob{}

func (j toolJob) ID() arcp.JobID  { return j.s.row.ID }
func (j toolJob) Attempt() uint32 { return j.s.attempt }
func (j toolJob) TraceID() string { return j.s.row.TraceID }
func (j toolJob) SpanID() string  { return j.s.row.SpanID }

// Emit queues an event. A metric of a cost debits the budget in the same write.
func (j toolJob) Emit(t arcp.Type, payload any) error {
	if m, ok := payload.(arcp.MetricPayload); ok && lease.IsCost(m.Name) {
		return j.report(m)
	}
	if p, ok := payload.(arcp.EventEmitPayload); ok && p.Name == arcp.StreamThought {
		payload = j.leasedThought(p)
	}
	return j.emit(t, payload, nil)
}

func (j toolJob) ManualHeartbeat() { j.signal(&j.s.heartbeats.manual) }
func (j toolJob) Heartbeat()       { j.signal(&j.s.heartbeats.received) }

// Failed logs a panic with its stack, or records that the result of the attempt is unknown. It records the text that
// the log may have. Clients do not get the stack.
func (j toolJob) Failed(err error) {
	p, panicked := errors.AsType[*tool.PanicError](err)
	if panicked {
		logPanic(&j.s.e.cfg, j.s.run, p)
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if panicked {
		j.s.call.logText = panicText
	} else if l, ok := errors.AsType[*tool.LoggableError](err); ok {
		j.s.call.logText = l.LogText()
	} else {
		j.s.call.lostReason = err.Error()
	}
}

// emit queues an event, and the checkpoint of the event unless it is nil. It blocks while the queue has
// no room.
func (tg toolGoroutine) emit(t arcp.Type, payload any, checkpoint *pendingCheckpoint) error {
	ev, err := tg.encode(t, payload, &tg.s.common)
	if err != nil {
		return err
	}
	return tg.enqueue(ev, checkpoint, nil)
}

// encode encodes an event of the job, or of a stream, whose context c is.
func (tg toolGoroutine) encode(t arcp.Type, payload any, c *store.JobContext) (*store.Event, error) {
	buffer := buffers.Get().(*[]byte)
	raw, err := arcp.AppendJSON((*buffer)[:0], payload)
	defer putBuffer(buffer, raw)
	if err != nil {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s cannot be encoded as JSON: %s", t, err)
	}
	return tg.newEvent(t, raw, c)
}

// newEvent returns an event with an encoded payload, which it copies.
func (tg toolGoroutine) newEvent(t arcp.Type, raw []byte, c *store.JobContext) (*store.Event, error) {
	if len(raw) > maxPayload {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "%s of %d bytes: an event may have at most %d", t, len(raw), maxPayload)
	}
	return store.NewEvent(t, time.Now(), c, tg.s.row.Priority, tg.s.e.cfg.scrubber().bytes(raw)), nil
}

// enqueue queues an event. onRoom, if not nil, is called with run.mu when there is room: it may refuse
// the event, or return another one that follows.
func (tg toolGoroutine) enqueue(ev *store.Event, checkpoint *pendingCheckpoint, onRoom func() (*store.Event, *arcp.Error)) error {
	s := tg.s
	q := &s.events
	s.mu.Lock()
	for !q.closed && !s.lifecycle.aborted() && !(q.hasRoom(checkpoint) && !s.e.cfg.full()) && !tg.stoppedWhileFull() {
		q.waitForRoom(s.e.cfg.full())
	}
	switch {
	case q.closed || s.lifecycle.aborted():
		s.mu.Unlock()
		return errEnded
	case tg.stoppedWhileFull():
		defer s.mu.Unlock()
		return q.stopCause
	}
	first := len(q.list) == 0 || checkpoint != nil
	if onRoom != nil {
		next, err := onRoom()
		if err != nil {
			s.mu.Unlock()
			return err
		}
		q.push(ev)
		if next != nil {
			q.push(next)
		}
	} else {
		q.push(ev)
	}
	if checkpoint != nil {
		q.checkpoint = checkpoint
	}
	s.mu.Unlock()
	if first {
		s.wake()
	}
	return nil
}

// stoppedWhileFull reports whether the tool has to stop while there is no space for
// its event. Called with run.mu.
func (tg toolGoroutine) stoppedWhileFull() bool {
	return tg.s.events.stopCause != nil && tg.s.e.cfg.full()
}

// signal sets a flag of the heartbeats. Only the first call of a turn wakes the supervisor.
func (tg toolGoroutine) signal(flag *bool) {
	tg.s.mu.Lock()
	changed := !*flag && !tg.s.events.closed
	*flag = true
	tg.s.mu.Unlock()
	if changed {
		tg.s.wake()
	}
}
