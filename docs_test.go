package arcpd_test

import (
	"bufio"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/job"
	"github.com/arcpd/arcpd/runtime/metrics"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
)

var update = flag.Bool("update", false, "rewrite the generated parts of SPEC.md")

var diagram = regexp.MustCompile(`(?s)(<!-- diagram: job -->).*?(<!-- end diagram -->)`)

func TestSpecTables(t *testing.T) {
	doc, err := os.ReadFile("SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := arcp.UpdateSpec(doc)
	if err != nil {
		t.Fatal(err)
	}
	want = diagram.ReplaceAll(want, []byte("${1}\n```mermaid\n"+strings.TrimSpace(job.Diagram())+"\n```\n${2}"))
	if string(want) == string(doc) {
		return
	}
	if !*update {
		t.Fatal("the generated tables of SPEC.md do not say what the catalogue says: run make spec")
	}
	if err := os.WriteFile("SPEC.md", want, 0o644); err != nil {
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
	doc, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	registered := names{}
	metrics.New(registered, "test")
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

// block returns the first fenced block of a language after a heading.
func block(t *testing.T, doc []byte, heading, language string) string {
	t.Helper()
	_, after, ok := strings.Cut(string(doc), "\n"+heading+"\n")
	_, begin, fenced := strings.Cut(after, "```"+language+"\n")
	text, _, closed := strings.Cut(begin, "```")
	if !ok || !fenced || !closed {
		t.Fatalf("no block of %s after %q", language, heading)
	}
	return text
}

var sayings = regexp.MustCompile("(?s)```sh\n(arcp [^\n]*)\n```")

// A newcomer who follows the README word for word gets a tool.
func TestReadmeAddsAShellCommand(t *testing.T) {
	doc, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const heading = "### Add a shell command"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "arcp.yaml"), []byte(block(t, doc, heading, "yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), heading)
	said := sayings.FindAllStringSubmatch(section, 2)
	if len(said) != 2 || said[0][1] != "arcp dev" || !strings.HasPrefix(said[1][1], "arcp invoke ") {
		t.Fatalf("commands of the section: %q", said)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	run := func(line string, env ...string) *exec.Cmd {
		cmd := exec.Command(bin, strings.Fields(line)[1:]...)
		cmd.Dir = dir
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...)
		cmd.Stderr = overheard(t)
		return cmd
	}
	server := run(said[0][1], "ARCP_LISTEN=127.0.0.1:0", "ARCP_ADMIN=127.0.0.1:0")
	server.Stderr = nil // its banner
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Signal(os.Interrupt) // it may have failed
		_ = server.Wait()                       // so has what it ends with
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 {
		t.Fatalf("arcp dev said %q, %v", line, err)
	}
	client := run(said[1][1], "ARCP_URL="+words[1])
	result, err := client.Output()
	if err != nil || !regexp.MustCompile(`^\d+\n$`).Match(result) {
		t.Errorf("%s: %q, %v, want a number", said[1][1], result, err)
	}
}

// The commands of jobs are processes of the unit: with the default of systemd they
// would be told to stop together with the server, and nothing would be drained.
func TestUnitLetsJobsEnd(t *testing.T) {
	unit, err := os.ReadFile("deploy/arcp.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"KillMode=mixed", "TimeoutStopSec=60"} { // twice the default of --drain
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("deploy/arcp.service has no line %s", line)
		}
	}
}
