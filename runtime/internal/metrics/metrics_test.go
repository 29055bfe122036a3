package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/prometheus/common/expfmt"

	"github.com/arcpd/arcpd/arcp"
)

// touch makes every vector have a child, so that the linter sees it.
func touch(m *Metrics) {
	m.ConnectionsOpen.WithLabelValues("websocket").Inc()
	m.Handshakes.WithLabelValues("bearer", "rfc", "accepted").Inc()
	m.AuthFailures.WithLabelValues("bearer", "unknown").Inc()
	m.Sessions.WithLabelValues("connected").Inc()
	m.Evictions.WithLabelValues("cancelled").Inc()
	m.Jobs.WithLabelValues("running").Inc()
	m.JobsRecovered.WithLabelValues("fail").Inc()
	m.RateLimited.WithLabelValues("jobs").Inc()
	m.WorkerDispatches.WithLabelValues(DispatchOK).Inc()
	m.CredentialOperations.WithLabelValues("issue", "ok").Inc()
	m.Errors.WithLabelValues("INTERNAL").Inc()
	m.ProtocolErrors.WithLabelValues("not_json").Inc()
	m.Tool("demo.echo").Submitted.Inc()
	m.CountReceived(arcp.Ping, 1, 10)
	m.CountSent("com.example.v1", 1, 10)
}

func TestMetricsFollowTheConventions(t *testing.T) {
	reg := prometheus.NewRegistry()
	touch(New(reg, "1.0.0"))
	RegisterStore(reg, func() int64 { return 1 }, 2)
	RegisterWaiting(reg, func() map[string]int { return map[string]int{arcp.WaitWorker: 1} })
	RegisterArtifacts(reg, func() (int, int64) { return 1, 2 })("put", "ok")
	RegisterArtifactLinks(reg, []string{"issued"})("issued")
	RegisterSnapshot(reg, func() Snapshot {
		return Snapshot{Queues: []Queue{{Tool: "demo.echo", Jobs: 1, Oldest: time.Now()}}, Workers: map[string]int{"demo.echo": 1}}
	}, func() uint64 { return 1 })
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "arcp_") {
			t.Errorf("%s: want the namespace arcp_", f.GetName())
		}
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if n := l.GetName(); strings.HasSuffix(n, "_id") || n == "principal" || n == "session" || n == "job" {
					t.Errorf("%s: label %s is not from a closed set", f.GetName(), n)
				}
			}
		}
	}
	problems, err := promlint.New(strings.NewReader(text.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestToolNamesAreBounded(t *testing.T) {
	m := New(prometheus.NewRegistry(), "1.0.0")
	for i := range 3 * maxTools {
		m.Tool("tool." + strings.Repeat("x", i)).Submitted.Inc()
	}
	if n := len(m.tools.byName); n > maxTools {
		t.Errorf("%d tool labels, want at most %d: the rest is other", n, maxTools)
	}
}
