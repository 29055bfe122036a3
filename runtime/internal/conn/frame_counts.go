package conn

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
)

// frameCounts counts sent frames by type. It updates the metrics only when the type changes, and at
// the end of a turn.
type frameCounts struct {
	metrics *metrics.Metrics
	current arcp.Type
	count   int
	bytes   int
}

func (a *frameCounts) add(t arcp.Type, bytes int) {
	if t != a.current {
		a.flush()
		a.current = t
	}
	a.count++
	a.bytes += bytes
}

func (a *frameCounts) flush() {
	if a.count > 0 {
		a.metrics.CountSent(a.current, a.count, a.bytes)
		a.count, a.bytes = 0, 0
	}
}
