package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
)

// RegisterStore registers gauges of the bytes of the store and of their bound; 0: no bound. It panics
// if a name is registered already.
func RegisterStore(r prometheus.Registerer, bytes func() int64, maxBytes int64) {
	f := factory{r}
	f.gaugeFunc("store_bytes", "Bytes of the store, on disk or in memory.", func() float64 { return float64(bytes()) })
	f.gauge("store_max_bytes", "Bound of the bytes of the store; 0 is no bound.").WithLabelValues().Set(float64(maxBytes))
}

// RegisterArtifacts registers gauges of the number of artifacts, and of their bytes as they count
// against the bounds. It returns the function that counts operations on artifacts. It panics if a
// name is registered already.
func RegisterArtifacts(r prometheus.Registerer, usage func() (artifacts int, bytes int64)) (operation func(name, result string)) {
	f := factory{r}
	f.gaugeFunc("artifacts", "Artifacts that are stored.", func() float64 {
		n, _ := usage()
		return float64(n)
	})
	f.gaugeFunc("artifact_bytes", "Bytes of the stored artifacts.", func() float64 {
		_, bytes := usage()
		return float64(bytes)
	})
	operations := f.counter("artifact_operations_total", "Operations on artifacts by how they ended.", "operation", "result")
	combine([][]string{{"put", "fetch", "release", "expire"}, {"ok", "refused", "failed"}}, func(values []string) { operations.WithLabelValues(values...) })
	return func(name, result string) { operations.WithLabelValues(name, result).Inc() }
}

// RegisterArtifactLinks registers a counter of links to artifacts by their results, and returns the function that
// counts one. It panics if the name is registered already.
func RegisterArtifactLinks(r prometheus.Registerer, results []string) (count func(result string)) {
	links := factory{r}.counter("artifact_links_total", "Links to artifacts by what became of them.", "result")
	for _, result := range results {
		links.WithLabelValues(result)
	}
	return func(result string) { links.WithLabelValues(result).Inc() }
}

// Snapshot has the values that are read at each scrape.
type Snapshot struct {
	Queues         []Queue        // of the tools with a limit of jobs; several may have one name
	Workers        map[string]int // connected sessions that execute a tool, by its name
	OldestApproval time.Time      // zero: no question is pending
	Unacked        int64          // events kept for sessions because they are not acknowledged
}

// Queue has the jobs that wait for a slot of a tool.
type Queue struct {
	Tool   string
	Jobs   int
	Oldest time.Time // when the oldest was accepted; zero: no job waits
}

// RegisterSnapshot registers the gauges that are read at each scrape. read may be called by any goroutine. free returns
// the free bytes of the disk of the store; nil: they are not known. It panics if a name is registered already.
func RegisterSnapshot(r prometheus.Registerer, read func() Snapshot, free func() uint64) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	r.MustRegister(&snapshotCollector{
		read:           read,
		queued:         desc("jobs_queued", "Jobs that wait for a slot of their tool or for a worker.", "tool"),
		oldestQueued:   desc("jobs_queued_oldest_seconds", "Age of the oldest job that waits for a slot of its tool or for a worker; 0: none waits.", "tool"),
		workers:        desc("tool_workers", "Connected sessions that execute a tool.", "tool"),
		oldestApproval: desc("approvals_oldest_seconds", "Age of the oldest question that is not answered; 0: there is none."),
		unacked:        desc("unacked_events", "Events that are kept for sessions because they are not acknowledged."),
	})
	if free != nil {
		factory{r}.gaugeFunc("store_free_bytes", "Free bytes of the disk of the store.", func() float64 { return float64(free()) })
	}
}

// snapshotCollector collects the values of a Snapshot.
type snapshotCollector struct {
	read                                                   func() Snapshot
	queued, oldestQueued, workers, oldestApproval, unacked *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *snapshotCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.queued, c.oldestQueued, c.workers, c.oldestApproval, c.unacked} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *snapshotCollector) Collect(metrics chan<- prometheus.Metric) {
	s, now := c.read(), time.Now()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for name, q := range queuesByTool(s.Queues) {
		gauge(c.queued, float64(q.Jobs), name)
		gauge(c.oldestQueued, age(now, q.Oldest), name)
	}
	for name, n := range workersByTool(s.Workers) {
		gauge(c.workers, float64(n), name)
	}
	gauge(c.oldestApproval, age(now, s.OldestApproval))
	gauge(c.unacked, float64(s.Unacked))
}

// age returns the seconds since a time, and 0 for the zero time.
func age(now, since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since).Seconds())
}

// queuesByTool adds up the queues of each name. Names beyond maxTools, in alphabetical order, are "other".
func queuesByTool(queues []Queue) map[string]Queue {
	names := make(map[string]bool)
	for _, q := range queues {
		names[q.Tool] = true
	}
	label, sums := labels(names), make(map[string]Queue)
	for _, q := range queues {
		sum := sums[label(q.Tool)]
		sum.Jobs += q.Jobs
		if !q.Oldest.IsZero() && (sum.Oldest.IsZero() || q.Oldest.Before(sum.Oldest)) {
			sum.Oldest = q.Oldest
		}
		sums[label(q.Tool)] = sum
	}
	return sums
}

// workersByTool is queuesByTool for numbers of workers.
func workersByTool(workers map[string]int) map[string]int {
	names := make(map[string]bool)
	for name := range workers {
		names[name] = true
	}
	label, sums := labels(names), make(map[string]int)
	for name, n := range workers {
		sums[label(name)] += n
	}
	return sums
}

// labels returns the function that maps the names of tools to at most maxTools values of the label tool and "other".
func labels(names map[string]bool) func(name string) string {
	if len(names) <= maxTools {
		return func(name string) string { return name }
	}
	sorted := slices.Sorted(maps.Keys(names))
	last := sorted[maxTools-1]
	return func(name string) string {
		if name <= last {
			return name
		}
		return otherTools
	}
}

// RegisterWaiting registers a gauge of the jobs that wait, by reason. count is called for each scrape.
// It panics if the name is registered already.
func RegisterWaiting(r prometheus.Registerer, count func() map[string]int) {
	r.MustRegister(waiting(count))
}

// waiting is the collector of the jobs that wait.
type waiting func() map[string]int

var waitingDesc = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "jobs_waiting"), "Jobs that wait, by reason.", []string{"reason"}, nil)

func (waiting) Describe(ch chan<- *prometheus.Desc) { ch <- waitingDesc }

func (w waiting) Collect(ch chan<- prometheus.Metric) {
	n := w()
	for _, reason := range arcp.WaitReasons {
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(n[reason]), reason)
	}
}
