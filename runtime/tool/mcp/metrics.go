package mcp

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// States of a server: the values of the label.
const (
	stateStarting = "starting" // a session is being opened
	stateReady    = "ready"
	stateWaiting  = "waiting" // the last session or attempt has failed
)

var states = []string{stateStarting, stateReady, stateWaiting}

// Metrics counts the servers of a runtime (docs/monitoring.md). All sources share one Metrics.
type Metrics struct {
	servers  *prometheus.GaugeVec
	ready    *prometheus.GaugeVec
	restarts prometheus.Counter
	leftOut  prometheus.Gauge

	mu      sync.Mutex
	sources map[string]int // open sources by the name of the server: a reload may replace one before it is closed
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		servers: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "arcp_mcp_servers",
			Help: "MCP servers whose tools are published, by state."}, []string{"state"}),
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "arcp_mcp_server_ready",
			Help: "1 if the tools of an MCP server can be called, otherwise 0."}, []string{"mcp_server"}),
		sources: make(map[string]int),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{Name: "arcp_mcp_restarts_total",
			Help: "Sessions with MCP servers that ended by themselves or could not be made, each followed by another attempt."}),
		leftOut: prometheus.NewGauge(prometheus.GaugeOpts{Name: "arcp_mcp_tools_left_out",
			Help: "Tools of MCP servers that are not published because of a fault in their definition or a name that is taken."}),
	}
	r.MustRegister(m.servers, m.ready, m.restarts, m.leftOut)
	for _, s := range states {
		m.servers.WithLabelValues(s)
	}
	return m
}

// setState counts the change of a server from one state to another; "" is no state.
func (m *Metrics) setState(server, from, to string) {
	if m == nil || from == to {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if from == "" {
		m.sources[server]++
	} else {
		m.servers.WithLabelValues(from).Dec()
	}
	if to != "" {
		m.servers.WithLabelValues(to).Inc()
		m.ready.WithLabelValues(server).Set(map[bool]float64{true: 1}[to == stateReady])
		return
	}
	if m.sources[server]--; m.sources[server] == 0 {
		delete(m.sources, server)
		m.ready.DeleteLabelValues(server)
	}
}

func (m *Metrics) restarted() {
	if m != nil {
		m.restarts.Inc()
	}
}

func (m *Metrics) addOmitted(change int) {
	if m != nil {
		m.leftOut.Add(float64(change))
	}
}
