package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// toolJob is an attempt as its tool sees it.
type toolJob struct{ s *supervisor }

var (
	_ tool.Job           = toolJob{}
	_ tool.PanicReporter = toolJob{}
)

func (j toolJob) ID() arcp.JobID  { return j.s.row.ID }
func (j toolJob) Attempt() uint32 { return j.s.attempt }
func (j toolJob) TraceID() string { return j.s.row.TraceID }

func (j toolJob) Log(level, message string, attributes any) error {
	if !slices.Contains(arcp.LogLevels, level) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "log: level must be one of %s", strings.Join(arcp.LogLevels, ", "))
	}
	p := arcp.LogPayload{Level: level, Message: message}
	if attributes != nil {
		raw, err := encode(attributes)
		if err != nil {
			return err
		}
		p.Attributes = raw
	}
	return j.s.emit(arcp.Log, p, nil)
}

func (j toolJob) Progress(p arcp.JobProgressPayload) error {
	if !(p.Current >= 0) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "progress: current must be 0 or more")
	}
	if p.Percent == nil && p.Total != nil && *p.Total > 0 {
		p.Percent = new(100 * p.Current / *p.Total)
	}
	return j.s.emit(arcp.JobProgress, p, nil)
}

func (j toolJob) Emit(name string, data any) error {
	p := arcp.EventEmitPayload{Name: name}
	if name == "" {
		return arcp.Errorf(arcp.CodeInvalidArgument, "event.emit: name is required")
	}
	if data != nil {
		raw, err := encode(data)
		if err != nil {
			return err
		}
		p.Data = raw
	}
	return j.s.emit(arcp.EventEmit, p, nil)
}

func (j toolJob) ManualHeartbeat() { j.s.signal(&j.s.manual) }
func (j toolJob) Heartbeat()       { j.s.signal(&j.s.beat) }

// ToolPanicked logs a panic; the stack goes nowhere else.
func (j toolJob) ToolPanicked(p *tool.PanicError) {
	j.s.e.cfg.Logger.Error().Str("job_id", string(j.s.row.ID)).Str("tool", j.s.row.Agent).
		Str("stack", string(p.Stack)).Msg(j.s.e.scrubText(p.Error()))
}

func encode(v any) (arcp.Raw, error) {
	if raw, given := v.(arcp.Raw); given {
		if !raw.IsValid() {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "event is not valid JSON")
		}
		return raw, tooDeep(raw) // it is copied before the call returns
	}
	raw, err := arcp.Marshal(v)
	if err != nil {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "event cannot be encoded as JSON: %s", err)
	}
	return raw, tooDeep(raw)
}

// tooDeep refuses what no client would read in an event.
func tooDeep(raw arcp.Raw) error {
	if arcp.DeeperThan(raw, tool.MaxDepth) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "event: nested deeper than %d levels", tool.MaxDepth)
	}
	return nil
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
