package engine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// toolJob is a run as its tool sees it.
type toolJob struct{ r *run }

var (
	_ tool.Job           = toolJob{}
	_ tool.PanicReporter = toolJob{}
)

func (j toolJob) ID() arcp.JobID  { return j.r.row.ID }
func (j toolJob) Attempt() uint32 { return j.r.row.Attempt }
func (j toolJob) TraceID() string { return j.r.row.TraceID }

func (j toolJob) Log(level, message string, attributes any) error {
	p := arcp.LogPayload{Level: level, Message: message}
	if attributes != nil {
		raw, err := encode(attributes)
		if err != nil {
			return err
		}
		p.Attributes = raw
	}
	return j.r.emit(arcp.Log, p)
}

func (j toolJob) Progress(p arcp.JobProgressPayload) error {
	if !(p.Current >= 0) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "progress: current must be 0 or more")
	}
	if p.Percent == nil && p.Total != nil && *p.Total > 0 {
		p.Percent = new(100 * p.Current / *p.Total)
	}
	return j.r.emit(arcp.JobProgress, p)
}

func (j toolJob) Metric(m arcp.MetricPayload) error {
	if m.Name == "" || m.Unit == "" {
		return arcp.Errorf(arcp.CodeInvalidArgument, "metric: name and unit are required")
	}
	return j.r.emit(arcp.Metric, m)
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
	return j.r.emit(arcp.EventEmit, p)
}

func (j toolJob) ManualHeartbeat() { j.r.signal(&j.r.manual) }
func (j toolJob) Heartbeat()       { j.r.signal(&j.r.beat) }

// ToolPanicked logs a panic; the stack goes nowhere else.
func (j toolJob) ToolPanicked(p *tool.PanicError) {
	j.r.e.cfg.Logger.Error().Str("job_id", string(j.r.row.ID)).Str("tool", j.r.row.Agent).
		Str("stack", string(p.Stack)).Msg(p.Error())
}

func encode(v any) (arcp.Raw, error) {
	if raw, given := v.(arcp.Raw); given {
		if !raw.IsValid() {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "event is not valid JSON")
		}
		return raw, nil // it is copied before the call returns
	}
	raw, err := arcp.Marshal(v)
	if err != nil {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "event cannot be encoded as JSON: %s", err)
	}
	return raw, nil
}

// emit queues an event; it blocks while too much waits for the store.
func (r *run) emit(t arcp.Type, payload any) error {
	scratch := scratches.Get().(*[]byte)
	raw, err := arcp.AppendJSON((*scratch)[:0], payload)
	defer recycle(scratch, raw)
	switch {
	case err != nil:
		return arcp.Errorf(arcp.CodeInvalidArgument, "%s cannot be encoded as JSON: %s", t, err)
	case len(raw) > maxPayload:
		return arcp.Errorf(arcp.CodeResourceExhausted, "%s of %d bytes: an event may have at most %d", t, len(raw), maxPayload)
	}
	return r.enqueue(store.NewEvent(t, time.Now(), &r.common, r.row.Priority, raw))
}

func (r *run) enqueue(ev *store.Event) error {
	r.mu.Lock()
	for !r.ended && !r.stopped && (len(r.queue) >= maxQueuedEvents || r.bytes >= maxQueuedBytes) {
		r.space.Wait()
	}
	if r.ended || r.stopped {
		r.mu.Unlock()
		return errEnded
	}
	r.queue = append(r.queue, ev)
	r.bytes += len(ev.Body)
	first := len(r.queue) == 1
	r.mu.Unlock()
	if first {
		r.wake()
	}
	return nil
}
