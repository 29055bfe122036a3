package conn

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

var update = flag.Bool("update", false, "rewrite testdata from what the handlers do")

// Each type that a client may send and that is served has exactly one handler: in routes or in
// the machine. No other type has one.
func TestEachServedTypeHasOneHandler(t *testing.T) {
	for i := range arcp.Catalog {
		s := &arcp.Catalog[i]
		n := 0
		if routes[s.Type] != nil {
			n++
		}
		if machine.Handles(s.Type) {
			n++
		}
		if want := map[bool]int{true: 1}[s.Served]; n != want {
			t.Errorf("%s has %d handlers, want %d", s.Type, n, want)
		}
		if s.Served && (s.From&arcp.FromClient == 0 || s.Phase&arcp.InAccepted == 0) {
			t.Errorf("%s is served, but its row says that no client sends it in a session", s.Type)
		}
		if s.Worker && s.From&arcp.FromClient == 0 {
			t.Errorf("%s is of workers, but its row says that no client sends it", s.Type)
		}
		if (s.Command || s.Repeatable) && !s.Served {
			t.Errorf("%s has columns of a served type", s.Type)
		}
	}
	for typ := range routes {
		if arcp.Lookup(typ) == nil {
			t.Errorf("%s has a handler and no row", typ)
		}
	}
}

// handling returns a connection whose handlers run without a runtime: a message that needs one
// makes the test panic.
func handling(features ...arcp.Feature) *conn {
	srv := &Server{opts: Options{Metrics: metrics.New(prometheus.NewRegistry(), "test")}}
	c := &conn{srv: srv, id: "sess_own", machine: machine.New(time.Time{}, new(machine.Config), "sess_own")}
	c.session.row.Negotiated = features
	c.bindParts()
	c.output.counts.metrics = srv.opts.Metrics
	return c
}

// refusalOf handles a message and returns the frame that refuses it.
func refusalOf(t *testing.T, c *conn, env *arcp.Envelope) (answer arcp.Envelope) {
	t.Helper()
	c.route(time.Unix(0, 0), machine.Admitted{Envelope: env})
	if c.output.current == nil {
		return arcp.Envelope{}
	}
	answer, err := arcp.Decode(c.output.current.data)
	if err != nil {
		t.Fatal(err)
	}
	c.output.current = nil
	return answer
}

// Each handler decodes the payload that the catalog names: a member of another type is
// refused by its name.
func TestHandlersDecodeTheCatalogPayload(t *testing.T) {
	for typ := range routes {
		for _, f := range members(reflect.TypeOf(arcp.Lookup(typ).NewPayload()).Elem()) {
			env := &arcp.Envelope{ID: "msg_x", Type: typ, Payload: fmt.Appendf(nil, `{%q:%s}`, f.name, f.wrong)}
			var text string
			if typ == arcp.ToolInvoke || typ == arcp.WorkflowStart || typ == arcp.AgentDelegate || typ == arcp.JobSchedule { // the engine sends the refusal
				text = fmt.Sprint(decodeSubmit(env, new(arcp.ToolInvokePayload)))
			} else {
				answer := refusalOf(t, handling(), env)
				text = string(answer.Payload)
			}
			if !strings.Contains(text, f.name) {
				t.Errorf("%s with %s:%s is refused with %q, want the name of the member", typ, f.name, f.wrong, text)
			}
		}
	}
}

type member struct{ name, wrong string }

// members lists the members of a payload that have a type.
func members(t reflect.Type) (list []member) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case name == "-":
		case f.Anonymous:
			list = append(list, members(ft)...)
		case ft == reflect.TypeFor[arcp.Raw]():
		case ft.Kind() == reflect.String && ft != reflect.TypeFor[arcp.Number](), ft == reflect.TypeFor[time.Time]():
			list = append(list, member{name, "7"})
		default:
			list = append(list, member{name, `"x"`})
		}
	}
	return list
}

// A submit that cannot be read is refused by the engine, in its place among the answers.
func TestSubmitPayload(t *testing.T) {
	for payload, want := range map[string]string{
		`{"tool":"echo@1.0.0","arguments":{"a": 1.0}}`:                   "",
		`{"tool":"echo","on_disconnect":"cancel","max_runtime_sec":1.5}`: "",
		`{"tool":7}`: `tool.invoke: payload member "tool": a string is required, not a number`,
		`{"tool":"echo","on_disconnect":"explode"}`: "tool.invoke: on_disconnect must be continue or cancel",
		`{}`: `tool.invoke: payload member "tool" is required`,
	} {
		got := ""
		if err := decodeSubmit(&arcp.Envelope{Type: arcp.ToolInvoke, Payload: arcp.Raw(payload)}, new(arcp.ToolInvokePayload)); err != nil {
			got = arcp.PayloadError(arcp.ToolInvoke, err).Message
		}
		if got != want {
			t.Errorf("%s: %q, want %q", payload, got, want)
		}
	}
}

// TestRefusals plays testdata/refusals.txt: messages that are refused for their content, and
// the answers. A line is: id, type, members of the envelope, payload.
func TestRefusals(t *testing.T) {
	const file = "testdata/refusals.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c := handling()
	for line := range strings.Lines(string(text)) {
		if line[0] == '\t' {
			continue
		}
		out.WriteString(line)
		if features, ok := strings.CutPrefix(line, "negotiated "); ok {
			c = handling(arcp.Feature(strings.TrimSpace(features)))
		} else if strings.HasPrefix(line, "msg_") {
			answer := refusalOf(t, c, parseMessage(t, line))
			fmt.Fprintf(&out, "\t%s corr=%s %s\n", answer.Type, answer.CorrelationID, answer.Payload)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if out.String() != string(text) {
		t.Errorf("%s: the handlers do\n%s", file, out.String())
	}
}

func parseMessage(t *testing.T, line string) *arcp.Envelope {
	t.Helper()
	head, payload, _ := strings.Cut(line, "{")
	fields := strings.Fields(head)
	env := &arcp.Envelope{ID: arcp.MessageID(fields[0]), Type: arcp.Type(fields[1]), Payload: arcp.Raw("{" + strings.TrimSpace(payload))}
	for _, f := range fields[2:] {
		switch name, value, _ := strings.Cut(f, "="); name {
		case "corr":
			env.CorrelationID = arcp.MessageID(value)
		case "stream":
			env.StreamID = arcp.StreamID(value)
		default:
			t.Fatalf("%s: no such member", f)
		}
	}
	return env
}

// A filter that is too large is refused: each event would be compared with it.
func TestFilterBounds(t *testing.T) {
	trace := func(n int) *arcp.EventFilter { return &arcp.EventFilter{TraceID: make([]string, n)} }
	for why, err := range map[string]error{
		"one value too many": checkFilter(&arcp.EventFilter{TraceID: make([]string, maxFilterTerms), Types: []arcp.Type{arcp.Log}}, 100),
		"too many bytes":     checkFilter(trace(20), maxFilterBytes+1),
	} {
		if err == nil {
			t.Errorf("%s: accepted", why)
		}
	}
	if err := checkFilter(trace(maxFilterTerms), maxFilterBytes); err != nil {
		t.Errorf("the largest filter: %v", err)
	}
	if err := checkFilter(nil, 2*maxFilterBytes); err != nil {
		t.Errorf("no filter: %v", err)
	}
}
