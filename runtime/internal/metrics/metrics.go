// Package metrics has the collectors of the runtime. SPEC.md §8.2 and docs/monitoring.md list their
// names and labels. Every label has a closed set of values: none has an id of a session, job,
// principal, trace or artifact.
package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
)

// Metrics has the collectors. Any goroutine may use its methods and members.
type Metrics struct {
	ConnectionsOpen    *prometheus.GaugeVec
	Handshakes         *prometheus.CounterVec
	HandshakesRejected *prometheus.CounterVec
	HandshakeDuration  prometheus.Histogram
	AuthFailures       *prometheus.CounterVec
	Sessions           *prometheus.GaugeVec
	Resumes            *prometheus.CounterVec
	ResumeReplayed     prometheus.Histogram
	AckLag             prometheus.Histogram
	SlowConsumers      *prometheus.CounterVec
	Evictions          *prometheus.CounterVec
	EnvelopeBytes      *prometheus.CounterVec
	Jobs               *prometheus.GaugeVec
	JobsRecovered      *prometheus.CounterVec
	EventsAppended     prometheus.Counter
	CommitErrors       prometheus.Counter
	CommitSeconds      prometheus.Histogram
	BatchEvents        prometheus.Histogram
	Approvals          *prometheus.CounterVec
	ApprovalsPending   prometheus.Gauge
	ApprovalWait       prometheus.Histogram
	Denials            *prometheus.CounterVec
	Leases             *prometheus.GaugeVec
	LeasesExpired      prometheus.Counter
	BudgetExhausted    *prometheus.CounterVec
	RateLimited        *prometheus.CounterVec
	UpgradesRefused    *prometheus.CounterVec
	Errors             *prometheus.CounterVec
	ProtocolErrors     *prometheus.CounterVec

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

	tools *toolTable

	mu         sync.Mutex
	currencies map[string]bool
}

// New returns collectors that are registered on r. It panics if a name is registered already.
func New(r prometheus.Registerer, version string) *Metrics {
	f := factory{r}
	m := &Metrics{
		ConnectionsOpen:    f.gauge("connections_open", "Connections that are open.", "transport"),
		Handshakes:         f.counter("handshakes_total", "Handshakes that ended.", "scheme", "dialect", "result"),
		HandshakesRejected: f.counter("handshakes_rejected_total", "Handshakes that were rejected for another reason than the credentials.", "reason"),
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
		Jobs:             f.gauge("jobs", "Jobs that have not ended.", "state"),
		JobsRecovered:    f.counter("jobs_recovered_total", "Jobs that did not end in an earlier process.", "disposition"),
		EventsAppended:   f.counter("events_appended_total", "Events that were committed.").WithLabelValues(),
		CommitErrors:     f.counter("store_commit_errors_total", "Group commits that failed, or were refused because an earlier one had failed.").WithLabelValues(),
		CommitSeconds:    f.histogram("eventlog_commit_seconds", "Time of a group commit.", commitBuckets),
		BatchEvents:      f.histogram("eventlog_batch_events", "Events in a group commit.", prometheus.ExponentialBuckets(1, 2, 12)),
		Approvals:        f.counter("approvals_total", "What has become of questions to people.", "kind", "outcome"),
		ApprovalsPending: f.gauge("approvals_pending", "Questions to people that are not answered.").WithLabelValues(),
		ApprovalWait:     f.histogram("approval_wait_seconds", "From a question to its answer.", prometheus.ExponentialBuckets(0.1, 4, 12)),
		Denials:          f.counter("capability_denials_total", "Operations that a job's lease did not allow.", "namespace", "reason"),
		Leases:           f.gauge("leases", "Leases that are in force.", "kind"),
		LeasesExpired:    f.counter("lease_expirations_total", "Leases whose end was noticed.").WithLabelValues(),
		BudgetExhausted:  f.counter("budget_exhausted_total", "Operations refused because a budget was used up.", "currency"),
		RateLimited:      f.counter("rate_limited_total", "Commands and connections refused by a limit.", "limit"),
		UpgradesRefused:  f.counter("upgrades_refused_total", "WebSocket handshakes that were refused.", "reason"),
		Errors:           f.counter("errors_total", "Errors sent to clients; that of a job once, at its end.", "code"),
		ProtocolErrors:   f.counter("protocol_errors_total", "Frames that were dropped or refused.", "reason"),
		received:         make(map[arcp.Type]prometheus.Counter),
		sent:             make(map[arcp.Type]prometheus.Counter),
		tools:            newToolTable(f),
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
	m.closedSets()
	return m
}

var commitBuckets = prometheus.ExponentialBuckets(50e-6, 2, 16) // 50 µs … 1.6 s

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

// JobState returns the gauge of jobs in a state that is not terminal.
func (m *Metrics) JobState(s arcp.JobState) prometheus.Gauge { return m.states[s] }

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

func (f factory) histogramVec(name, help string, buckets []float64, fixed prometheus.Labels, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		ConstLabels: fixed}, labels)
	f.r.MustRegister(h)
	return h
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
