package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/arcpd/arcpd/arcp/client"
)

// spanReceiver receives spans over both protocols of OTLP.
type spanReceiver struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	names map[string]int // of the received spans
}

func (r *spanReceiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range req.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				r.names[span.Name]++
			}
		}
	}
	return new(collector.ExportTraceServiceResponse), nil
}

func (r *spanReceiver) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(hr.Body)
	req := new(collector.ExportTraceServiceRequest)
	if err != nil || hr.URL.Path != "/v1/traces" || proto.Unmarshal(body, req) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = r.Export(hr.Context(), req) // never fails
}

// A server exports the spans of its jobs over both protocols, the last ones when it stops. The receiver is in
// this process, with the messages of go.opentelemetry.io/proto/otlp.
func TestSpansAreExported(t *testing.T) {
	bin := binary(t)
	for name, serve := range map[string]func(*testing.T, *spanReceiver) (endpoint string){
		"http/protobuf": func(t *testing.T, r *spanReceiver) string {
			s := httptest.NewServer(r)
			t.Cleanup(s.Close)
			return s.URL
		},
		"grpc": func(t *testing.T, r *spanReceiver) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			collector.RegisterTraceServiceServer(s, r)
			go func() { _ = s.Serve(l) }() // Stop ends it
			t.Cleanup(s.Stop)
			return "http://" + l.Addr().String()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &spanReceiver{names: map[string]int{}}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", serve(t, r))
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", name)
			p := startServer(t, bin, ":memory:")
			runEcho(t, p)
			stopServer(t, p)
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, span := range []string{"handshake", "demo.echo@1.0.0", "attempt", "tool call", "store commit"} {
				if r.names[span] != 1 {
					t.Errorf("received %d spans %q of %v, want 1", r.names[span], span, r.names)
				}
			}
		})
	}
}

// A server without its collector runs jobs and stops.
func TestMissingCollectorHarmsNoJob(t *testing.T) {
	bin := binary(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+freeAddr(t))
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
		p := startServer(t, bin, ":memory:")
		runEcho(t, p)
		stopServer(t, p)
	}
}

func runEcho(t *testing.T, p *process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, p.url, client.Options{Auth: client.Auth{Token: crashToken}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.echo"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// stopServer stops a server in order.
func stopServer(t *testing.T, p *process) {
	t.Helper()
	kill := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() }) // Wait reports it
	defer kill.Stop()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
