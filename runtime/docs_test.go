package runtime_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/internal/specdoc"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
)

var update = flag.Bool("update", false, "rewrite the generated parts of SPEC.md")

var diagram = regexp.MustCompile(`(?s)(<!-- diagram: job -->).*?(<!-- end diagram -->)`)

func TestSpecTables(t *testing.T) {
	doc, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := specdoc.Update(doc)
	if err != nil {
		t.Fatal(err)
	}
	want = updatePayloads(t, want)
	want = diagram.ReplaceAll(want, []byte("${1}\n```mermaid\n"+strings.TrimSpace(job.Diagram())+"\n```\n${2}"))
	if string(want) == string(doc) {
		return
	}
	if !*update {
		t.Fatal("the generated tables of SPEC.md do not say what the catalog says: run make spec")
	}
	if err := os.WriteFile("../SPEC.md", want, 0o644); err != nil {
		t.Fatal(err)
	}
}

// names collects the metrics that are registered, also those without a value.
type names map[string]bool

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (n names) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 16)
	go func() { c.Describe(descs); close(descs) }()
	for d := range descs {
		n[fqName.FindStringSubmatch(d.String())[1]] = true
	}
	return nil
}

func (n names) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = n.Register(c) // never fails
	}
}

func (n names) Unregister(prometheus.Collector) bool { return false }

func TestOperationsListsEveryMetric(t *testing.T) {
	doc, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	registered := names{}
	metrics.New(registered, "test")
	metrics.RegisterStore(registered, func() int64 { return 0 }, 0)
	metrics.RegisterArtifacts(registered, func() (int, int64) { return 0, 0 })
	metrics.RegisterWaiting(registered, func() map[string]int { return nil })
	metrics.RegisterArtifactLinks(registered, nil)
	mcp.NewMetrics(registered)
	for name := range registered {
		if !strings.Contains(string(doc), "`"+name) {
			t.Errorf("docs/operations.md does not list %s", name)
		}
	}
	for _, m := range regexp.MustCompile("`(arcp_[a-z_]+)").FindAllStringSubmatch(string(doc), -1) {
		if !registered[m[1]] {
			t.Errorf("docs/operations.md lists %s, which does not exist", m[1])
		}
	}
	if len(registered) < 20 {
		t.Errorf("only %d metrics are registered", len(registered))
	}
}
