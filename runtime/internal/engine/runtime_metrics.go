package engine

import (
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/store"
)

// jobTimes are the times of a run; zero: it has not started. After a restart first is not known.
type jobTimes struct {
	first time.Time // start of the first attempt
	last  time.Time // start of the last attempt
}

// start records the start of an attempt.
func (jt *jobTimes) start(now time.Time, attempt uint32) {
	if attempt == 1 {
		jt.first = now
	}
	jt.last = now
}

// metricDims are the dimensions of a metric of the runtime. Source is the last member; see
// store.Event.RuntimeMetric.
type metricDims struct {
	Tool   string    `json:"tool"` // name@version
	Phase  string    `json:"phase,omitzero"`
	Code   arcp.Code `json:"code,omitzero"`
	Source string    `json:"source"`
}

// runtimeMetrics returns the metrics of the runtime for the end of a job (§5.18).
func (d *definition) runtimeMetrics(now time.Time, t jobTimes, o *job.Outcome) (events []*store.Event) {
	add := func(name, unit string, value float64, dims metricDims) {
		dims.Tool, dims.Source = d.row.Agent, "runtime"
		raw, err := arcp.Marshal(dims)
		if err != nil { // texts
			panic("engine: dims: " + err.Error())
		}
		events = append(events, d.event(arcp.Metric, now, d.row.Priority, arcp.MetricPayload{
			Name: name, Value: arcp.Number(strconv.FormatFloat(value, 'f', -1, 64)), Unit: unit, Dims: raw}))
	}
	latency := func(phase string, took time.Duration) {
		add("latency.ms", "ms", float64(took.Microseconds())/1000, metricDims{Phase: phase})
	}
	if !t.first.IsZero() {
		latency("queue", t.first.Sub(d.created))
	}
	if !t.last.IsZero() {
		latency("exec", now.Sub(t.last))
	}
	latency("total", now.Sub(d.row.CreatedAt))
	add("tool.invocations", "count", 1, metricDims{})
	if o.State == arcp.StateFailed {
		add("errors.total", "count", 1, metricDims{Code: o.Err.Code})
	}
	return events
}
