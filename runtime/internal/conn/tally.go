package conn

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
)

// tally counts sent envelopes and tells the collectors only when the type
// changes: a flood of events costs two additions each.
type tally struct {
	m     *metrics.Metrics
	t     arcp.Type
	n     int
	bytes int
}

func (a *tally) add(t arcp.Type, bytes int) {
	if t != a.t {
		a.flush()
		a.t = t
	}
	a.n++
	a.bytes += bytes
}

func (a *tally) flush() {
	if a.n > 0 {
		a.m.Out(a.t, a.n, a.bytes)
		a.n, a.bytes = 0, 0
	}
}
