package engine

import (
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// toolJob is the tool.Host of an attempt.
type toolJob struct{ s *supervisor }

var _ tool.Attempt = toolJob{}

func (j toolJob) ID() arcp.JobID  { return j.s.row.ID }
func (j toolJob) Attempt() uint32 { return j.s.attempt }
func (j toolJob) TraceID() string { return j.s.row.TraceID }

// Emit queues an event. A metric of a cost debits the budget in the same write.
func (j toolJob) Emit(t arcp.Type, payload any) error {
	if m, ok := payload.(arcp.MetricPayload); ok && lease.Debits(m.Name) {
		return j.s.spend(m, (*lease.Budget).Report)
	}
	return j.s.emit(t, payload, nil)
}

func (j toolJob) ManualHeartbeat() { j.s.signal(&j.s.manual) }
func (j toolJob) Heartbeat()       { j.s.signal(&j.s.beat) }

// Failed logs a panic, whose stack goes nowhere else, and notes that the outcome of
// the attempt is unknown.
func (j toolJob) Failed(err error) {
	if p, ok := errors.AsType[*tool.PanicError](err); ok {
		j.s.e.cfg.Logger.Error().Str("job_id", string(j.s.row.ID)).Str("tool", j.s.row.Agent).
			Str("stack", string(p.Stack)).Msg(j.s.e.scrubText(p.Error()))
		return
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.s.gone = err.Error()
}

// emit queues an event, with the checkpoint it tells of, if it does; it blocks
// while too much waits for the store.
func (s *supervisor) emit(t arcp.Type, payload any, p *saving) error {
	ev, err := s.encode(t, payload)
	if err != nil {
		return err
	}
	return s.enqueue(ev, p, nil)
}

func (s *supervisor) encode(t arcp.Type, payload any) (*store.Event, error) {
	scratch := scratches.Get().(*[]byte)
	raw, err := arcp.AppendJSON((*scratch)[:0], payload)
	defer recycle(scratch, raw)
	switch {
	case err != nil:
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s cannot be encoded as JSON: %s", t, err)
	case len(raw) > maxPayload:
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "%s of %d bytes: an event may have at most %d", t, len(raw), maxPayload)
	}
	return store.NewEvent(t, time.Now(), &s.common, s.row.Priority, s.e.scrub(raw)), nil
}

// enqueue queues an event. with, if not nil, is what happens together with it: it
// may refuse it, or have another event follow.
func (s *supervisor) enqueue(ev *store.Event, p *saving, with func() (*store.Event, *arcp.Error)) error {
	s.mu.Lock()
	for !s.over && !s.stopped && !s.hasSpace(p) && !s.stoppedOnFullDisk() {
		s.space.Wait()
	}
	switch {
	case s.over || s.stopped:
		s.mu.Unlock()
		return errEnded
	case s.stoppedOnFullDisk():
		defer s.mu.Unlock()
		return s.stopping
	}
	if with != nil {
		next, err := with()
		if err != nil {
			s.mu.Unlock()
			return err
		}
		if next != nil {
			defer s.wake()
			s.push(ev)
			ev = next
		}
	}
	s.push(ev)
	if p != nil {
		s.point = p
	}
	first := len(s.queue) == 1 || p != nil
	s.mu.Unlock()
	if first {
		s.wake()
	}
	return nil
}

// hasSpace is called with s.mu: there is room for an event, one checkpoint at a
// time, and on the disk.
func (s *supervisor) hasSpace(p *saving) bool {
	return len(s.queue) < maxQueuedEvents && s.bytes < maxQueuedBytes && (p == nil || s.point == nil) && !s.e.full()
}

// stoppedOnFullDisk reports whether the tool was told to stop while the disk has no room
// for its event. Called with s.mu.
func (s *supervisor) stoppedOnFullDisk() bool { return s.stopping != nil && s.e.full() }

// signal raises one of the tool's flags. A tool that calls it in a tight loop
// costs nothing.
func (s *supervisor) signal(flag *bool) {
	s.mu.Lock()
	raised := !*flag && !s.over
	*flag = true
	s.mu.Unlock()
	if raised {
		s.wake()
	}
}
