package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// serverMetrics are the metrics of `arcp serve` beside those of the runtime.
type serverMetrics struct {
	lastBackup   prometheus.Gauge
	reloadOK     prometheus.Gauge
	lastReloadOK prometheus.Gauge
}

// newServerMetrics registers the metrics. cert may be nil: there is no TLS. The settings that were read at the start
// count as reloaded.
func newServerMetrics(r prometheus.Registerer, cert *certificate) *serverMetrics {
	m := &serverMetrics{
		lastBackup: newGauge(r, "backup_last_success_timestamp_seconds", "When the last backup was made by this process; 0: never."),
		reloadOK:   newGauge(r, "config_last_reload_successful", "Whether the last reload succeeded: 1, or 0."),
		lastReloadOK: newGauge(r, "config_last_reload_success_timestamp_seconds",
			"When the settings were last reloaded, or read at the start."),
	}
	if cert != nil {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "arcp", Name: "certificate_expiry_timestamp_seconds",
			Help: "When the certificate of the listener expires."}, cert.expiry))
	}
	m.reloaded(nil)
	return m
}

func newGauge(r prometheus.Registerer, name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "arcp", Name: name, Help: help})
	r.MustRegister(g)
	return g
}

// registerMinFree registers the value of --min-free.
func registerMinFree(r prometheus.Registerer, bytes int64) {
	newGauge(r, "store_min_free_bytes", "Free bytes of the disk below which no jobs are accepted.").Set(float64(bytes))
}

// reloaded records the result of a reload.
func (m *serverMetrics) reloaded(err error) {
	if err != nil {
		m.reloadOK.Set(0)
		return
	}
	m.reloadOK.Set(1)
	m.lastReloadOK.Set(seconds(time.Now()))
}

func (m *serverMetrics) backedUp() { m.lastBackup.Set(seconds(time.Now())) }

// seconds returns the seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
