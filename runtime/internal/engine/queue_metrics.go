package engine

import (
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Queues returns the jobs that wait for a slot of their tool or for a worker. A tool with a limit is listed also if no
// job waits.
func Queues(e *Engine) (list []metrics.Queue) {
	for _, t := range e.cfg.Tools.Tools() {
		if t.Source != tool.SourceBuiltin && e.queues.limit(t) >= 0 {
			list = append(list, metrics.Queue{Tool: t.Name})
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, tq := range e.queues.byTool {
		if tq.waiting() == 0 {
			continue
		}
		name := metrics.NameOf(key.ref)
		if key.tool != nil {
			name = key.tool.Name
		}
		q := metrics.Queue{Tool: name, Jobs: tq.waiting()}
		for _, r := range tq.queue {
			if created := r.row.CreatedAt; r.slot == slotQueued && (q.Oldest.IsZero() || created.Before(q.Oldest)) {
				q.Oldest = created
			}
		}
		list = append(list, q)
	}
	return list
}
