package metrics

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
)

// maxTools bounds the values of the label tool. Later names are counted as "other".
const maxTools = 200

// Values of the label tool that are not the name of a tool.
const (
	Builtin    = "builtin" // all built-in tools
	otherTools = "other"   // tools beyond maxTools
)

// Buckets of the durations of a tool, in seconds. The phase exec has none: arcp_tool_duration_seconds has the
// distribution of the calls.
var (
	callBuckets  = []float64{0.001, 0.01, 0.1, 1, 10, 60, 600}
	totalBuckets = []float64{0.1, 1, 10, 60, 600}
	queueBuckets = []float64{1, 10, 60, 600}
	noBuckets    = []float64{math.Inf(1)}
)

// Tool has the collectors of one tool. They are looked up once for each job.
type Tool struct {
	Submitted          prometheus.Counter
	Completed, Failed  prometheus.Counter
	Cancelled          prometheus.Counter
	Abandoned          prometheus.Counter
	Queue, Exec, Total prometheus.Observer

	calls map[string]prometheus.Counter // calls by status; not changed
	exec  prometheus.Observer           // duration of the calls
}

// Results of a call of a tool, the label status.
const (
	CallOK      = "ok"
	CallError   = "error"
	CallTimeout = "timeout"
	CallDenied  = "denied"
)

// CountCall counts a call of the tool.
func (t *Tool) CountCall(status string, d time.Duration) {
	t.calls[status].Inc()
	t.exec.Observe(d.Seconds())
}

// CountRefusedCall counts a call that was refused before it started. It has no duration.
func (t *Tool) CountRefusedCall(status string) { t.calls[status].Inc() }

// Finished returns the counter of jobs that ended in a terminal state.
func (t *Tool) Finished(s arcp.JobState) prometheus.Counter {
	switch s {
	case arcp.StateCompleted:
		return t.Completed
	case arcp.StateCancelled:
		return t.Cancelled
	}
	return t.Failed
}

// toolTable has the collectors with the label tool.
type toolTable struct {
	submitted, finished, abandoned, calls *prometheus.CounterVec
	queue, exec, total, duration          *prometheus.HistogramVec

	mu     sync.RWMutex
	byName map[string]*Tool
	other  *Tool // tools beyond maxTools; nil: none yet
}

func newToolTable(f factory) *toolTable {
	const jobs = "Time of jobs waiting, executing and in total."
	t := &toolTable{
		submitted: f.counter("jobs_submitted_total", "Jobs that were accepted.", "tool"),
		finished:  f.counter("jobs_finished_total", "Jobs that ended.", "tool", "outcome"),
		abandoned: f.counter("tools_abandoned_total", "Tool calls that went on after the end of their job and were left behind.", "tool"),
		calls:     f.counter("tool_calls_total", "Calls of tools by how they ended.", "tool", "status"),
		queue:     f.phase("queue", jobs, queueBuckets),
		exec:      f.phase("exec", jobs, noBuckets),
		total:     f.phase("total", jobs, totalBuckets),
		duration:  f.histogramVec("tool_duration_seconds", "Time of a call of a tool.", callBuckets, nil, "tool"),
		byName:    make(map[string]*Tool),
	}
	t.get(Builtin)
	return t
}

// phase returns the histogram of a phase of jobs. The histograms of the phases differ in their buckets.
func (f factory) phase(name, help string, buckets []float64) *prometheus.HistogramVec {
	return f.histogramVec("job_duration_seconds", help, buckets, prometheus.Labels{"phase": name}, "tool")
}

// Tool returns the collectors of a tool; after maxTools tools, the common ones of "other".
func (m *Metrics) Tool(name string) *Tool { return m.tools.get(name) }

func (tt *toolTable) get(name string) *Tool {
	tt.mu.RLock()
	t := tt.byName[name]
	tt.mu.RUnlock()
	if t != nil {
		return t
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if t = tt.byName[name]; t != nil {
		return t
	}
	if len(tt.byName) >= maxTools {
		if tt.other == nil {
			tt.other = tt.add(otherTools)
		}
		return tt.other
	}
	t = tt.add(name)
	tt.byName[name] = t
	return t
}

func (tt *toolTable) add(name string) *Tool {
	calls := make(map[string]prometheus.Counter)
	for _, status := range []string{CallOK, CallError, CallTimeout, CallDenied} {
		calls[status] = tt.calls.WithLabelValues(name, status)
	}
	return &Tool{
		calls:     calls,
		exec:      tt.duration.WithLabelValues(name),
		Abandoned: tt.abandoned.WithLabelValues(name),
		Submitted: tt.submitted.WithLabelValues(name),
		Completed: tt.finished.WithLabelValues(name, string(arcp.StateCompleted)),
		Failed:    tt.finished.WithLabelValues(name, string(arcp.StateFailed)),
		Cancelled: tt.finished.WithLabelValues(name, string(arcp.StateCancelled)),
		Queue:     tt.queue.WithLabelValues(name),
		Exec:      tt.exec.WithLabelValues(name),
		Total:     tt.total.WithLabelValues(name),
	}
}

// NameOf returns the name in a reference name@version.
func NameOf(ref string) string {
	name, _, _ := strings.Cut(ref, "@")
	return name
}
