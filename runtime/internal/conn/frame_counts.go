package conn

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
)

// frameCounts counts sent envelopes by type. It updates the metrics only when the type changes:
// each event of a flood costs two additions.
type frameCounts struct {
	m     *metrics.Metrics
	t     arcp.Type
	n     int
	bytes int
}

func (a *frameCounts) add(t arcp.Type, bytes int) {
	if t != a.t {
		a.flush()
		a.t = t
	}
	a.n++
	a.bytes += bytes
}

func (a *frameCounts) flush() {
	if a.n > 0 {
		a.m.Out(a.t, a.n, a.bytes)
		a.n, a.bytes = 0, 0
	}
}
