package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/arcpd/arcpd/conformance/interop"
)

// A collector of OpenTelemetry receives the spans of a job over both protocols. It is a process with the
// receiver of go.opentelemetry.io/collector.
func TestCollectorReceivesSpans(t *testing.T) {
	ofOtherPrograms(t)
	t.Parallel() // most of its time is the build
	collector := filepath.Join(t.TempDir(), "collector")
	if err := goTool("mod", "download"); err != nil {
		interop.Unable(t, "needs the modules of the collector: %v", err)
	}
	if err := goTool("build", "-o", collector, "."); err != nil {
		t.Fatal(err)
	}
	for protocol, receiver := range map[string]string{"http/protobuf": "http", "grpc": "grpc"} {
		t.Run(receiver, func(t *testing.T) {
			addr := freeAddr(t)
			received := filepath.Join(t.TempDir(), "received")
			startCollector(t, collector, receiver, addr, received)
			bin := binaryAfter(t, fmt.Sprintf("export OTEL_EXPORTER_OTLP_ENDPOINT=http://%s OTEL_EXPORTER_OTLP_PROTOCOL=%s", addr, protocol))
			p := startServer(t, bin, ":memory:")
			runEcho(t, p)
			stopServer(t, p) // exports the last spans
			for _, span := range []string{"handshake", "demo.echo@1.0.0", "attempt", "tool call", "store commit"} {
				awaitOutput(t, received, regexp.MustCompile(` Name +: `+regexp.QuoteMeta(span)+`\n`))
			}
			awaitOutput(t, received, regexp.MustCompile(`service.name: Str\(arcp\)`))
		})
	}
}

// fetchTime bounds the download and the build of the collector. It is shorter than the limit of go test.
const fetchTime = 6 * time.Minute

// goTool runs the go command in the module of the collector.
func goTool(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join("internal", "e2e", "testdata", "collector")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return nil
}

// startCollector starts a collector with a receiver, and waits until it receives. It prints the spans to a
// file.
func startCollector(t *testing.T, bin, receiver, addr, file string) {
	t.Helper()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	config := fmt.Sprintf(`yaml:{receivers: {otlp: {protocols: {%s: {endpoint: %q}}}}, exporters: {debug: {verbosity: detailed}},`+
		`service: {telemetry: {metrics: {level: none}}, pipelines: {traces: {receivers: [otlp], exporters: [debug]}}}}`, receiver, addr)
	cmd := exec.Command(bin, "--config", config)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killProcess(cmd) })
	awaitOutput(t, file, regexp.MustCompile(`Everything is ready`))
}

// awaitOutput waits until a file has a text.
func awaitOutput(t *testing.T, file string, text *regexp.Regexp) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		data, err := os.ReadFile(file)
		switch {
		case err != nil:
			t.Fatal(err)
		case text.Match(data):
			return
		case time.Now().After(deadline):
			t.Fatalf("%s is not in the output:\n%s", text, data)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
