package engine

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// lane bounds how many jobs of one tool run at once; the others wait in the
// order in which they came. Guarded by Engine.mu.
type lane struct {
	running int
	waiting []*run
}

// reserve gives a job a slot of its tool or a place in the queue. Called with
// e.mu.
func (e *Engine) reserve(r *run) *arcp.Error {
	limit := r.tool.Limits.Concurrency
	if limit <= 0 {
		r.slot = true
		return nil
	}
	l := e.lanes[r.tool]
	if l == nil {
		l = &lane{}
		e.lanes[r.tool] = l
	}
	switch {
	case l.running < limit:
		l.running++
		r.slot = true
	case len(l.waiting) < tool.MaxQueue:
		r.row.State = arcp.StateQueued
		l.waiting = append(l.waiting, r)
	default:
		e.cfg.Metrics.RateLimited.WithLabelValues("tool_queue").Inc()
		return arcp.Errorf(arcp.CodeResourceExhausted, "%s: %d jobs are running and %d waiting", r.tool.Name,
			limit, len(l.waiting)).RetryAfter(retryAfter)
	}
	return nil
}

// vacate gives a job's slot to the next one that waits, or leaves the queue.
func (e *Engine) vacate(r *run) {
	e.mu.Lock()
	var next *run
	if l := e.lanes[r.tool]; l != nil {
		switch {
		case !r.slot:
			l.waiting = slices.DeleteFunc(l.waiting, func(w *run) bool { return w == r })
		case len(l.waiting) > 0:
			next, l.waiting = l.waiting[0], l.waiting[1:]
			next.slot = true
		default:
			l.running--
		}
		if l.running == 0 && len(l.waiting) == 0 {
			delete(e.lanes, r.tool)
		}
	}
	r.slot = false
	e.mu.Unlock()
	if next != nil {
		next.granted()
	}
}
