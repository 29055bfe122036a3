// Package metrics has the collectors of the runtime. SPEC.md §8.2 and docs/operations.md list their
// names and labels. Every label has a closed set of values: none has an id of a session, job,
// principal, trace or artifact.
package metrics

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
)

// maxTools bounds the values of the label tool. Later names are counted as "other".
const maxTools = 200

// Metrics has the collectors. Any goroutine may use its methods and members.
type Metrics struct {
	ConnectionsOpen   *prometheus.GaugeVec
	Handshakes        *prometheus.CounterVec
	HandshakeDuration prometheus.Histogram
	AuthFailures      *prometheus.CounterVec
	Sessions          *prometheus.GaugeVec
	Resumes           *prometheus.CounterVec
	ResumeReplayed    prometheus.Histogram
	AckLag            prometheus.Histogram
	SlowConsumers     *prometheus.CounterVec
	Evictions         *prometheus.CounterVec
	EnvelopeBytes     *prometheus.CounterVec
	JobsSubmitted     *prometheus.CounterVec
	JobsFinished      *prometheus.CounterVec
	Jobs              *prometheus.GaugeVec
	JobDuration       *prometheus.HistogramVec
	JobsRecovered     *prometheus.CounterVec
	EventsAppended    prometheus.Counter
	CommitSeconds     prometheus.Histogram
	BatchEvents       prometheus.Histogram
	ToolsAbandoned    *prometheus.CounterVec
	ToolCalls         *prometheus.CounterVec
	ToolDuration      *prometheus.HistogramVec
	Approvals         *prometheus.CounterVec
	ApprovalsPending  prometheus.Gauge
	ApprovalWait      prometheus.Histogram
	Denials           *prometheus.CounterVec
	Leases            *prometheus.GaugeVec
	LeasesExpired     prometheus.Counter
	BudgetExhausted   *prometheus.CounterVec
	RateLimited       *prometheus.CounterVec
	UpgradesRefused   *prometheus.CounterVec
	Errors            *prometheus.CounterVec
	ProtocolErrors    *prometheus.CounterVec

	Workers                prometheus.Gauge
	WorkerDispatches       *prometheus.CounterVec
	Resources              *prometheus.GaugeVec
	ResourceLeases         *prometheus.GaugeVec
	ResourceCleanup        *prometheus.CounterVec
	ResourceRegistryErrors prometheus.Counter

	Schedules      prometheus.Gauge
	SchedulesFired *prometheus.CounterVec

	Agents               *prometheus.GaugeVec
	CredentialsUnrevoked prometheus.Gauge
	CredentialOperations *prometheus.CounterVec

	received, sent map[arcp.Type]prometheus.Counter   // envelopes by type; not changed after New
	states         map[arcp.JobState]prometheus.Gauge // not changed after New
	otherEnvelopes [2]prometheus.Counter

	connected, detached prometheus.Gauge

	bytes [2]prometheus.Counter

	mu         sync.RWMutex
	tools      map[string]*Tool
	otherTools *Tool // tools beyond maxTools; nil: none yet

	currencies map[string]bool
}

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

// Results of a dispatch of a job to a worker, the label result.
const (
	DispatchOK        = "ok"        // the worker sent a result
	DispatchError     = "error"     // the worker sent an error
	DispatchRefused   = "refused"   // the worker refused it, or did not confirm it in time
	DispatchLost      = "lost"      // the worker disconnected
	DispatchWithdrawn = "withdrawn" // the attempt ended before: cancelled, timed out or paused
)

// What became of an occurrence of a schedule, the label result.
const (
	ScheduleFired          = "fired"
	ScheduleLate           = "late"            // fired more than a minute late
	ScheduleSkippedLate    = "skipped_late"    // a later one was due, too, or it was more than an hour late
	ScheduleSkippedOverlap = "skipped_overlap" // the previous job was running
	ScheduleFailed         = "failed"          // its job was refused
)

// CountCall counts a call of the tool.
func (t *Tool) CountCall(status string, d time.Duration) {
	t.calls[status].Inc()
	t.exec.Observe(d.Seconds())
}

// CountRefusedCall counts a call that was refused before it started. It has no duration.
func (t *Tool) CountRefusedCall(status string) { t.calls[status].Inc() }

// New returns collectors that are registered on r. It panics if a name is registered already.
func New(r prometheus.Registerer, version string) *Metrics {
	f := factory{r}
	m := &Metrics{
		ConnectionsOpen: f.gauge("connections_open", "Connections that are open.", "transport"),
		Handshakes:      f.counter("handshakes_total", "Handshakes that ended.", "scheme", "dialect", "result"),
		HandshakeDuration: f.histogram("handshake_duration_seconds",
			"From the first byte of a connection to the accepted session.", prometheus.DefBuckets),
		AuthFailures: f.counter("auth_failures_total", "Credentials that were refused.", "scheme", "reason"),
		Sessions:     f.gauge("sessions", "Sessions by whether they have a connection.", "state"),
		Resumes:      f.counter("resumes_total", "Attempts to attach to a session again, by how they ended.", "result"),
		ResumeReplayed: f.histogram("resume_replayed_events", "Events replayed to a session that was attached to again.",
			prometheus.ExponentialBuckets(1, 4, 11)),
		AckLag: f.histogram("ack_lag_events",
			"Events that were sent and not acknowledged when an acknowledgement came.", prometheus.ExponentialBuckets(1, 4, 10)),
		SlowConsumers:    f.counter("slow_consumers_total", "What was done about clients that are behind.", "action"),
		Evictions:        f.counter("session_evictions_total", "Sessions that the runtime ended.", "reason"),
		EnvelopeBytes:    f.counter("envelope_bytes_total", "Bytes of envelopes.", "direction"),
		JobsSubmitted:    f.counter("jobs_submitted_total", "Jobs that were accepted.", "tool"),
		JobsFinished:     f.counter("jobs_finished_total", "Jobs that ended.", "tool", "outcome"),
		Jobs:             f.gauge("jobs", "Jobs that have not ended.", "state"),
		JobDuration:      f.histogramVec("job_duration_seconds", "Time of jobs waiting, executing and in total.", jobBuckets, "tool", "phase"),
		JobsRecovered:    f.counter("jobs_recovered_total", "Jobs that did not end in an earlier process.", "disposition"),
		EventsAppended:   f.counter("events_appended_total", "Events that were committed.").WithLabelValues(),
		CommitSeconds:    f.histogram("eventlog_commit_seconds", "Time of a group commit.", commitBuckets),
		BatchEvents:      f.histogram("eventlog_batch_events", "Events in a group commit.", prometheus.ExponentialBuckets(1, 2, 12)),
		ToolsAbandoned:   f.counter("tools_abandoned_total", "Tool calls that went on after the end of their job and were left behind.", "tool"),
		ToolCalls:        f.counter("tool_calls_total", "Calls of tools by how they ended.", "tool", "status"),
		ToolDuration:     f.histogramVec("tool_duration_seconds", "Time of a call of a tool.", jobBuckets, "tool"),
		Approvals:        f.counter("approvals_total", "What has become of questions to people.", "kind", "outcome"),
		ApprovalsPending: f.gauge("approvals_pending", "Questions to people that are not answered.").WithLabelValues(),
		ApprovalWait:     f.histogram("approval_wait_seconds", "From a question to its answer.", prometheus.ExponentialBuckets(0.1, 4, 12)),
		Denials:          f.counter("capability_denials_total", "Operations that a job's lease did not allow.", "namespace", "reason"),
		Leases:           f.gauge("leases", "Leases that are in force.", "kind"),
		LeasesExpired:    f.counter("lease_expirations_total", "Leases whose end was noticed.").WithLabelValues(),
		BudgetExhausted:  f.counter("budget_exhausted_total", "Operations refused because a budget was used up.", "currency"),
		RateLimited:      f.counter("rate_limited_total", "Commands and connections refused by a limit.", "limit"),
		UpgradesRefused:  f.counter("upgrades_refused_total", "WebSocket handshakes refused for their Host (421) or Origin (403).", "status"),
		Errors:           f.counter("errors_total", "Errors sent to clients; that of a job once, at its end.", "code"),
		ProtocolErrors:   f.counter("protocol_errors_total", "Frames that were dropped or refused.", "reason"),
		received:         make(map[arcp.Type]prometheus.Counter),
		sent:             make(map[arcp.Type]prometheus.Counter),
		tools:            make(map[string]*Tool),
		currencies:       make(map[string]bool),
	}
	m.Workers = f.gauge("workers", "Connected sessions with agents that execute jobs.").WithLabelValues()
	m.WorkerDispatches = f.counter("worker_dispatches_total", "Jobs given to workers, by what came of it.", "result")
	m.Schedules = f.gauge("schedules", "Schedules that have not ended.").WithLabelValues()
	m.SchedulesFired = f.counter("schedules_fired_total", "Occurrences of schedules by what became of them.", "result")
	m.Agents = f.gauge("agents", "Agents that sessions have registered, by what they do.", "status")
	m.CredentialsUnrevoked = f.gauge("credentials_unrevoked",
		"Credentials that are not revoked though their job has ended or is unknown.").WithLabelValues()
	m.CredentialOperations = f.counter("credential_operations_total",
		"Calls of credential provisioners by how they ended.", "operation", "result")
	m.Resources = f.gauge("resources", "Resources that sessions have registered.", "kind_class", "status")
	m.ResourceLeases = f.gauge("resource_leases", "Leases on resources that are not released.", "state")
	m.ResourceCleanup = f.counter("resource_cleanup_total", "Leases that were due, by what became of them.", "result")
	m.ResourceRegistryErrors = f.counter("resource_registry_errors_total",
		"Changes of leases that the registry could not show.").WithLabelValues()
	f.gauge("build_info", "Always 1.", "version").WithLabelValues(version).Set(1)
	m.connected, m.detached = m.Sessions.WithLabelValues("connected"), m.Sessions.WithLabelValues("detached")
	m.states = make(map[arcp.JobState]prometheus.Gauge)
	for _, s := range arcp.JobStates {
		if !s.Terminal() {
			m.states[s] = m.Jobs.WithLabelValues(string(s))
		}
	}
	envelopes := f.counter("envelopes_total", "Envelopes by type.", "direction", "type")
	for i := range arcp.Catalog {
		s := &arcp.Catalog[i]
		m.received[s.Type] = envelopes.WithLabelValues("in", string(s.Type))
		m.sent[s.Type] = envelopes.WithLabelValues("out", string(s.Type))
	}
	m.otherEnvelopes = [2]prometheus.Counter{envelopes.WithLabelValues("in", "extension"), envelopes.WithLabelValues("out", "extension")}
	m.bytes = [2]prometheus.Counter{m.EnvelopeBytes.WithLabelValues("in"), m.EnvelopeBytes.WithLabelValues("out")}
	return m
}

var (
	commitBuckets = prometheus.ExponentialBuckets(50e-6, 2, 16) // 50 µs … 1.6 s
	jobBuckets    = prometheus.ExponentialBuckets(100e-6, 4, 14)
)

// RegisterStore registers gauges of the bytes of the store and of their bound; 0: no bound. It panics
// if a name is registered already.
func RegisterStore(r prometheus.Registerer, bytes func() int64, maxBytes int64) {
	f := factory{r}
	f.gaugeFunc("store_bytes", "Bytes of the store, on disk or in memory.", func() float64 { return float64(bytes()) })
	f.gauge("store_max_bytes", "Bound of the bytes of the store; 0 is no bound.").WithLabelValues().Set(float64(maxBytes))
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

// SetSessions counts the sessions with and without a connection.
func (m *Metrics) SetSessions(connected, detached int) {
	m.connected.Set(float64(connected))
	m.detached.Set(float64(detached))
}

// CountReceived counts n received envelopes of a type, with bytes in total.
func (m *Metrics) CountReceived(t arcp.Type, n, bytes int) { m.count(m.received, 0, t, n, bytes) }

// CountSent counts n sent envelopes of a type, with bytes in total.
func (m *Metrics) CountSent(t arcp.Type, n, bytes int) { m.count(m.sent, 1, t, n, bytes) }

func (m *Metrics) count(by map[arcp.Type]prometheus.Counter, dir int, t arcp.Type, n, bytes int) {
	c := by[t]
	if c == nil {
		c = m.otherEnvelopes[dir]
	}
	c.Add(float64(n))
	m.bytes[dir].Add(float64(bytes))
}

// Tool returns the collectors of a tool; after maxTools tools, the common ones of "other".
func (m *Metrics) Tool(name string) *Tool {
	m.mu.RLock()
	t := m.tools[name]
	m.mu.RUnlock()
	if t != nil {
		return t
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t = m.tools[name]; t != nil {
		return t
	}
	if len(m.tools) >= maxTools {
		if m.otherTools == nil {
			m.otherTools = m.newTool("other")
		}
		return m.otherTools
	}
	t = m.newTool(name)
	m.tools[name] = t
	return t
}

func (m *Metrics) newTool(name string) *Tool {
	calls := make(map[string]prometheus.Counter)
	for _, status := range []string{CallOK, CallError, CallTimeout, CallDenied} {
		calls[status] = m.ToolCalls.WithLabelValues(name, status)
	}
	return &Tool{
		calls: calls, exec: m.ToolDuration.WithLabelValues(name), Abandoned: m.ToolsAbandoned.WithLabelValues(name),
		Submitted: m.JobsSubmitted.WithLabelValues(name),
		Completed: m.JobsFinished.WithLabelValues(name, string(arcp.StateCompleted)),
		Failed:    m.JobsFinished.WithLabelValues(name, string(arcp.StateFailed)),
		Cancelled: m.JobsFinished.WithLabelValues(name, string(arcp.StateCancelled)),
		Queue:     m.JobDuration.WithLabelValues(name, "queue"),
		Exec:      m.JobDuration.WithLabelValues(name, "exec"),
		Total:     m.JobDuration.WithLabelValues(name, "total"),
	}
}

// JobState returns the gauge of jobs in a state that is not terminal.
func (m *Metrics) JobState(s arcp.JobState) prometheus.Gauge { return m.states[s] }

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

// factory makes and registers collectors.
type factory struct{ r prometheus.Registerer }

const namespace = "arcp"

func (f factory) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	f.r.MustRegister(c)
	return c
}

func (f factory) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	f.r.MustRegister(g)
	return g
}

func (f factory) gaugeFunc(name, help string, value func() float64) {
	f.r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value))
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	f.r.MustRegister(h)
	return h
}

func (f factory) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	f.r.MustRegister(h)
	return h
}

// namespaces are the values of the label namespace. Another namespace is counted as "other".
var namespaces = append(slices.Clip(arcp.Namespaces), LeaseRequest)

// LeaseRequest is the namespace label of a submit whose lease_request exceeds the principal's
// lease.
const LeaseRequest = "lease_request"

// CountDenial counts an operation that the lease of its job does not allow.
func (m *Metrics) CountDenial(namespace, reason string) {
	if !slices.Contains(namespaces, namespace) {
		namespace = "other"
	}
	m.Denials.WithLabelValues(namespace, reason).Inc()
}

// kindClasses are the values of the label kind_class. Another kind is counted as "other".
var kindClasses = []string{"sandbox", "subagent", "browser_session", "process", "directory"}

// Resource returns the gauge of the registered resources of a kind and a status. A status that is
// not in statuses is counted as "unknown".
func (m *Metrics) Resource(kind, status string, statuses []string) prometheus.Gauge {
	if !slices.Contains(kindClasses, kind) {
		kind = "other"
	}
	if !slices.Contains(statuses, status) {
		status = "unknown"
	}
	return m.Resources.WithLabelValues(kind, status)
}

// maxCurrencies bounds the values of the label currency. Later currencies are counted as "other".
const maxCurrencies = 32

// CountExhausted counts an operation that was refused because the budget of a currency is exhausted.
func (m *Metrics) CountExhausted(currency string) {
	currency = strings.ToUpper(currency)
	m.mu.Lock()
	if !m.currencies[currency] {
		if len(m.currencies) >= maxCurrencies {
			currency = "other"
		} else {
			m.currencies[currency] = true
		}
	}
	m.mu.Unlock()
	m.BudgetExhausted.WithLabelValues(currency).Inc()
}
