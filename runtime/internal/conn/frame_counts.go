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

func (fc *frameCounts) add(t arcp.Type, bytes int) {
	if t != fc.current {
		fc.flush()
		fc.current = t
	}
	fc.count++
	fc.bytes += bytes
}

func (fc *frameCounts) flush() {
	if fc.count > 0 {
		fc.metrics.CountSent(fc.current, fc.count, fc.bytes)
		fc.count, fc.bytes = 0, 0
	}
}
