package runtime_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
)

// traced runs a test with a runtime whose spans are recorded.
func traced(t *testing.T, test func(f *fixture, spans *tracetest.InMemoryExporter)) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithIDGenerator(runtime.IDGenerator{}))
	people := withPeople(t)
	inBubble(t, func(c *runtime.Config) { people(c); c.TracerProvider = provider }, func(f *fixture) { test(f, spans) })
}

// submitTraced submits a job with a trace id and returns its last event.
func (p *peer) submitTraced(name, args, traceID string) arcp.Envelope {
	p.Helper()
	p.sent++
	frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_traced%d","type":"tool.invoke","timestamp":"2030-01-02T15:04:05Z","session_id":%q,"trace_id":%q,`+
		`"payload":{"tool":%q,"arguments":%s,"lease_request":{"agent.delegate":["demo.*"],"cost.budget":["USD:5.00"],"expires_at":"2031-01-02T15:04:05Z"}}}`,
		p.sent, p.session, traceID, name, args)
	if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
		p.Fatal(err)
	}
	id := fmt.Sprintf("msg_traced%d", p.sent)
	for {
		if env := p.read(); string(env.CorrelationID) == id && env.Type.Terminal() {
			return env
		}
	}
}

// find returns the only span with a name.
func find(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(spans), func(s tracetest.SpanStub) bool { return s.Name != name })
	if len(found) != 1 {
		t.Fatalf("%d spans %q, want 1 of %d", len(found), name, len(spans))
	}
	return found[0]
}

func attributesOf(s tracetest.SpanStub) string {
	var list []string
	for _, a := range s.Attributes {
		list = append(list, string(a.Key)+"="+a.Value.String())
	}
	return strings.Join(list, " ")
}

func TestJobsHaveSpans(t *testing.T) {
	const traceID, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	traced(t, func(f *fixture, exported *tracetest.InMemoryExporter) {
		p := f.dial("alice")
		handshake := find(f.T, exported.GetSpans(), "handshake")
		exported.Reset()
		if handshake.Parent.IsValid() {
			f.Error("the span of the handshake has a parent")
		}
		end := p.submitTraced("demo.delegate", `{"tool":"demo.fail","arguments":{"code":"NOT_FOUND","message":"a secret"}}`, "00-"+traceID+"-"+parent+"-01")
		synctest.Wait()
		spans := exported.GetSpans()
		job := find(f.T, spans, "demo.delegate@1.0.0")
		if got := job.SpanContext; got.TraceID().String() != traceID || got.SpanID().String() != end.SpanID || job.Parent.SpanID().String() != parent {
			f.Errorf("span of the job = %s %s of %s, want %s %s of %s", got.TraceID(), got.SpanID(), job.Parent.SpanID(), traceID, end.SpanID, parent)
		}
		attrs := attributesOf(job)
		for _, want := range []string{"arcp.job_id=" + string(end.JobID), "arcp.lease.expires_at=2031-01-02T15:04:05Z", `arcp.budget.remaining={"USD":5`, "error.type=NOT_FOUND"} {
			if !strings.Contains(attrs, want) {
				f.Errorf("attributes of the job = %s, want %s", attrs, want)
			}
		}
		child := find(f.T, spans, "demo.fail@1.0.0")
		if child.Parent.SpanID() != job.SpanContext.SpanID() {
			f.Errorf("the parent of the child is %s, want the job %s", child.Parent.SpanID(), job.SpanContext.SpanID())
		}
		for _, s := range spans {
			if s.SpanContext.TraceID().String() != traceID {
				f.Errorf("span %s is of trace %s, want %s", s.Name, s.SpanContext.TraceID(), traceID)
			}
			if strings.Contains(attributesOf(s)+s.Status.Description, "secret") {
				f.Errorf("span %s has the arguments of the job: %s", s.Name, attributesOf(s))
			}
		}
		parentOf := map[string][]trace.SpanID{}
		for _, s := range spans {
			parentOf[s.Name] = append(parentOf[s.Name], s.Parent.SpanID())
		}
		for _, name := range []string{"attempt", "store commit"} {
			if !slices.Contains(parentOf[name], job.SpanContext.SpanID()) || !slices.Contains(parentOf[name], child.SpanContext.SpanID()) {
				f.Errorf("parents of %q are %s, want both jobs", name, parentOf[name])
			}
		}
		for _, s := range spans {
			if s.Name == "attempt" && !slices.Contains(parentOf["tool call"], s.SpanContext.SpanID()) {
				f.Errorf("the parents of the tool calls are %s, want each attempt", parentOf["tool call"])
			}
		}
	})
}

// A trace_id of another form has the first 16 bytes of its SHA-256 as the id of the exported trace.
func TestAnyTraceIDHasATrace(t *testing.T) {
	traced(t, func(f *fixture, exported *tracetest.InMemoryExporter) {
		f.dial("alice").submitTraced("demo.echo", `{}`, "trace_789")
		synctest.Wait()
		const want = "7da24ddbee70c88f5b42fd5fac5bd424"
		if got := find(f.T, exported.GetSpans(), "demo.echo@1.0.0").SpanContext.TraceID().String(); got != want {
			f.Errorf("trace id = %s, want %s", got, want)
		}
	})
}

func TestApprovalsHaveSpans(t *testing.T) {
	traced(t, func(f *fixture, exported *tracetest.InMemoryExporter) {
		p, person := f.dial("alice"), f.human("ann")
		p.submit("danger", `{}`)
		ask := person.until("human.choice.request")
		frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_answer","type":"human.choice.response","timestamp":"2030-01-02T15:04:05Z","session_id":%q,"correlation_id":%q,`+
			`"payload":{"choice_id":"deny","responded_by":"x","responded_at":"2030-01-02T15:04:05Z"}}`, person.session, ask.ID)
		if err := errors.Join(person.conn.Write([]byte(frame)), person.conn.Flush()); err != nil {
			f.Fatal(err)
		}
		p.until("job.failed")
		synctest.Wait()
		spans := exported.GetSpans()
		wait, attempt := find(f.T, spans, "approval wait"), find(f.T, spans, "attempt")
		if wait.Parent.SpanID() != attempt.SpanContext.SpanID() || !strings.Contains(attributesOf(wait), "error.type=PERMISSION_DENIED") {
			f.Errorf("span of the wait = %s of %s, want PERMISSION_DENIED of the attempt %s", attributesOf(wait), wait.Parent.SpanID(), attempt.SpanContext.SpanID())
		}
	})
}
