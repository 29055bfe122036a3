package main

import (
	"path/filepath"
	"regexp"
	"testing"

	"go.yaml.in/yaml/v3"
)

var (
	metricName = regexp.MustCompile(`\b(arcp|process)_[a-z0-9_]+`)
	metricType = regexp.MustCompile(`(?m)^# TYPE (\S+) `)
)

// Each metric in the alert rules is one of a server with TLS and a data directory.
func TestAlertsNameRealMetrics(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := makeCertificate(t, dir, "alerts", 1)
	p := serve(t, "--data", filepath.Join(dir, "data"), "--token", "alice=secret", "--demo", "--tls-cert", cert, "--tls-key", key)
	_, text := get(t, p.admin+"/metrics")
	there := make(map[string]bool)
	for _, m := range metricType.FindAllStringSubmatch(text, -1) {
		there[m[1]] = true
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(deployDir, "prometheus", "alerts.yaml"))), &file); err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			names := metricName.FindAllString(r.Expr, -1)
			if len(names) == 0 && r.Alert != "ArcpDown" {
				t.Errorf("%s: the expression %q has no metric", r.Alert, r.Expr)
			}
			for _, name := range names {
				if !there[name] {
					t.Errorf("%s: the server has no metric %s", r.Alert, name)
				}
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["action"] == "" {
				t.Errorf("%s: want a severity, a summary and an action", r.Alert)
			}
		}
	}
	if rules < 8 {
		t.Errorf("%d rules, want at least 8", rules)
	}
}
