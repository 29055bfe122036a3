package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
)

// recorder records the names and the labels of the metrics that are registered.
type recorder struct {
	*prometheus.Registry
	labels map[string]string // by name, separated by commas
}

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ".*", constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

func (r recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 64)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		m := described.FindStringSubmatch(d.String())
		labels := m[3]
		if name, _, ok := strings.Cut(m[2], "="); ok {
			labels += "," + name
		}
		r.labels[m[1]] = labels
	}
	return r.Registry.Register(c)
}

func (r recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// tableRows returns the rows of the table below a heading of docs/monitoring.md, as their cells.
func tableRows(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(doc), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/monitoring.md has no section %s", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case strings.HasPrefix(line, "| metric | indicates"):
			return rows
		case strings.HasPrefix(line, "| `"):
			rows = append(rows, cells)
		}
	}
	return rows
}

func TestMonitoringListsEveryMetric(t *testing.T) {
	t.Parallel()
	reg := recorder{prometheus.NewRegistry(), make(map[string]string)}
	cert := new(certificate)
	cert.current.Store(&tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Unix(1, 0)}})
	newServerMetrics(reg, cert)
	registerMinFree(reg, 1<<30)
	mcp.NewMetrics(reg)
	rt, err := runtime.New(t.Context(), runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(new(auth.Config)), Metrics: reg,
		FreeSpace: func() (uint64, error) { return 1 << 40, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Shutdown(context.Background())
	listed := make(map[string]string)
	for _, row := range tableRows(t, "Metrics") {
		for _, m := range regexp.MustCompile("`(arcp_[a-z_]+)(?:\\{([a-z_,]+)\\})?`").FindAllStringSubmatch(row[0], -1) {
			listed[m[1]] = m[2]
		}
	}
	for name, labels := range reg.labels {
		switch got, ok := listed[name]; {
		case !ok:
			t.Errorf("docs/monitoring.md does not list %s{%s}", name, labels)
		case got != labels:
			t.Errorf("docs/monitoring.md lists %s{%s}, which is %s{%s}", name, got, name, labels)
		}
	}
	for name := range listed {
		if _, ok := reg.labels[name]; !ok {
			t.Errorf("docs/monitoring.md lists %s, which does not exist", name)
		}
	}
}

// value returns the value of a series in the text that Prometheus reads; -1: there is none.
func value(t *testing.T, metrics, series string) float64 {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// logTable returns the levels and the fields of the messages in the table of docs/monitoring.md.
func logTable(t *testing.T) (levels map[string][]string, fields map[string][]string) {
	levels, fields = make(map[string][]string), make(map[string][]string)
	for _, row := range tableRows(t, "Logs") {
		message := strings.Trim(strings.TrimSpace(row[0]), "`")
		levels[message] = strings.Split(strings.TrimSpace(row[1]), ", ")
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[2], -1) {
			fields[message] = append(fields[message], m[1])
		}
	}
	return levels, fields
}

// A server logs the lines that are documented, with their fields, and its metrics follow the conventions of Prometheus.
func TestServerCanBeObserved(t *testing.T) {
	t.Parallel()
	const tools = "tools: [{name: slow.call, exec: [sleep, '1000'], limits: {concurrency: 1, timeout_ms: 1000000}}]\n"
	config := write(t, filepath.Join(t.TempDir(), "arcp.yaml"), tools+"token: [alice=secret]\ndemo: true\n")
	p := serve(t, "--config", config, "--data", filepath.Join(t.TempDir(), "data"), "--log-level", "debug")
	until(t, "the server is ready", func() bool { return strings.Contains(p.errs.String(), `"message":"ready"`) })
	checked := logCheck{t: t, seen: make(map[string]bool)}
	checked.read(p.errs.String())
	wantOutcome(t, "a job", p.cli("invoke", "demo.echo", `{"private":"an argument"}`), exitOK, "an argument", "")
	wantOutcome(t, "a job that fails", p.cli("invoke", "demo.fail", `{"code":"OUT_OF_RANGE","message":"it has an argument"}`), exitFailed, "", "")
	wantOutcome(t, "a wrong token", cli(t, "invoke", "demo.echo", "--url", p.url, "--token", "hunter2"), exitAuth, "", "")
	for range 2 { // the second waits for the slot of the first
		wantOutcome(t, "a slow job", p.cli("invoke", "slow.call", "{}", "--detach"), exitOK, "job_", "")
	}
	until(t, "the wait is logged", func() bool { return strings.Contains(p.errs.String(), `"message":"job waits"`) })
	for id := range strings.FieldsSeq(p.cli("jobs", "ls", "--tool", "slow.call", "-o", "name").stdout) {
		wantOutcome(t, "its end", p.cli("jobs", "cancel", id), exitOK, "", "")
	}
	wantOutcome(t, "a panic", p.cli("invoke", "demo.panic"), exitFailed, "", "INTERNAL")
	for host, path := range map[string]string{"evil.example": "/arcp", "": "/nowhere"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http"+strings.TrimPrefix(strings.TrimSuffix(p.url, "/arcp"), "ws")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // it is read
	}
	checked.read(p.errs.String())
	_, before := get(t, p.admin+"/metrics")
	// A mistake of the syntax has no key.
	for i, content := range []string{"[\n", "tokn: x\n", "token: [alice=secret]\ndemo: true\nmax-jobs: 7\n"} {
		write(t, config, tools+content)
		p.signal(syscall.SIGHUP)
		ok := strings.HasPrefix(content, "token")
		logged, n := "reload failed", i+1
		if ok {
			logged, n = `"message":"reloaded"`, 1
		}
		until(t, "log: "+logged, func() bool { return strings.Count(p.errs.String(), logged) == n })
		_, metrics := get(t, p.admin+"/metrics")
		want := map[bool]float64{true: 1}[ok]
		if got := value(t, metrics, "arcp_config_last_reload_successful"); got != want {
			t.Errorf("after %q the last reload has success %v, want %v", content, got, want)
		}
	}
	dir := filepath.Join(t.TempDir(), "backup")
	wantOutcome(t, "a backup", cli(t, "backup", dir, "--admin", p.admin), exitOK, "", "")
	_, metrics := get(t, p.admin+"/metrics")
	checkMetrics(t, before, metrics)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	checked.read(p.errs.String())
	checked.complete()
}

func checkMetrics(t *testing.T, before, metrics string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(metrics)).Lint() // what `promtool check metrics` does
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, "arcp_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
	now := float64(time.Now().Unix())
	for series, want := range map[string][2]float64{
		`arcp_upgrades_refused_total{reason="host"}`:                  {1, 1},
		`arcp_upgrades_refused_total{reason="path"}`:                  {1, 1},
		`arcp_upgrades_refused_total{reason="origin"}`:                {0, 0},
		`arcp_jobs_finished_total{outcome="failed",tool="demo.fail"}`: {1, 1},
		`arcp_slow_consumers_total{action="ack_lag"}`:                 {0, 0},
		`arcp_store_commit_errors_total`:                              {0, 0},
		`arcp_store_free_bytes`:                                       {1, 1e18},
		`arcp_store_min_free_bytes`:                                   {512 << 20, 512 << 20},
		`arcp_store_bytes`:                                            {1, 1e18},
		`arcp_backup_last_success_timestamp_seconds`:                  {now - 3600, now + 1},
		`arcp_config_last_reload_success_timestamp_seconds`:           {now - 3600, now + 1},
	} {
		if got := value(t, metrics, series); got < want[0] || got > want[1] {
			t.Errorf("%s is %v, want %v to %v", series, got, want[0], want[1])
		}
	}
	if n := strings.Count(metrics, `tool="demo.echo"`); n != 39 {
		t.Errorf("a tool has %d series, want 39", n)
	}
	if got := value(t, before, "arcp_backup_last_success_timestamp_seconds"); got != 0 {
		t.Errorf("before a backup its time is %v", got)
	}
	reloads := "arcp_config_last_reload_success_timestamp_seconds"
	if value(t, before, reloads) >= value(t, metrics, reloads) {
		t.Error("a reload does not change its time")
	}
}

var logTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

// logCheck compares a log with the table of docs/monitoring.md.
type logCheck struct {
	t    *testing.T
	seen map[string]bool // messages
}

// read checks the last lines of a log, of which the first may be incomplete.
func (c logCheck) read(log string) {
	c.t.Helper()
	for _, secret := range []string{"secret", "hunter2", "an argument"} {
		if strings.Contains(log, secret) {
			c.t.Errorf("the log has %q:\n%s", secret, log)
		}
	}
	if !strings.HasPrefix(log, "{") {
		_, log, _ = strings.Cut(log, "\n")
	}
	for text := range strings.Lines(log) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			c.t.Errorf("%v: %s", err, text)
			continue
		}
		if !logTime.MatchString(fmt.Sprint(line["time"])) {
			c.t.Errorf("the time of a line is %v, want milliseconds and Z", line["time"])
		}
		c.line(line)
	}
}

func (c logCheck) line(line map[string]any) {
	c.t.Helper()
	levels, fields := logTable(c.t)
	message := fmt.Sprint(line["message"])
	if _, ok := levels[message]; !ok {
		if line["level"] == "info" {
			c.t.Errorf("docs/monitoring.md does not list the message %q", message)
		}
		return
	}
	c.seen[message] = true
	if !slices.Contains(levels[message], fmt.Sprint(line["level"])) {
		c.t.Errorf("%q has the level %v, want one of %v", message, line["level"], levels[message])
	}
	known := append(fields[message], "level", "time", "message")
	for name, value := range line {
		if message != "audit" && !slices.Contains(known, name) {
			c.t.Errorf("docs/monitoring.md does not list the field %s of %q", name, message)
		}
		if value == "" {
			c.t.Errorf("%q has %s without a value", message, name)
		}
	}
}

// complete checks that each message was logged, except those that need another test.
func (c logCheck) complete() {
	c.t.Helper()
	levels, _ := logTable(c.t)
	for _, message := range slices.Sorted(maps.Keys(levels)) {
		if !c.seen[message] && message != "frame dropped or refused" && message != "audit" {
			c.t.Errorf("nothing is logged as %q", message)
		}
	}
}

func TestCertificateExpiryIsAMetric(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := makeCertificate(t, dir, "one", 1)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	p := demoServer(t, "--tls-cert", cert, "--tls-key", key)
	_, metrics := get(t, p.admin+"/metrics")
	if got, want := value(t, metrics, "arcp_certificate_expiry_timestamp_seconds"), float64(pair.Leaf.NotAfter.Unix()); got != want {
		t.Errorf("the certificate expires at %v, want %v", got, want)
	}
}
