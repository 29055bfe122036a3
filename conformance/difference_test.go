package conformance

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/proxy"
)

// fault returns a fault by its defect.
func fault(t *testing.T, defect string) *proxy.Fault {
	t.Helper()
	for _, f := range proxy.Faults() {
		if f.Defect == defect {
			return &f
		}
	}
	t.Fatalf("there is no fault %q", defect)
	return nil
}

// against compares two servers, and returns the differences as lines.
func against(t *testing.T, first, second Target, opts Options) []string {
	t.Helper()
	opts.Parallel = 8
	report, err := RunAgainst(t.Context(), first, second, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range report.Against.Differences {
		if len(d.Transcripts[0]) == 0 || len(d.Transcripts[1]) == 0 {
			t.Errorf("%s has no two transcripts", d)
		}
	}
	return report.Against.lines()
}

// A server does not differ from itself, whatever the order of its frames.
func TestServerAgainstItself(t *testing.T) {
	if testing.Short() {
		t.Skip("runs many conformance checks twice: left out with -short")
	}
	own := ownTarget(t)
	for d, groups := range map[arcp.Dialect][]string{
		arcp.DialectRFC:   {"handshake", "envelope", "control", "jobs", "cancel", "list"},
		arcp.DialectDraft: {"submit", "events", "cancel", "idempotency", "list"},
	} {
		own.Dialect = d
		if got := against(t, own, own, Options{Groups: groups, Timeout: bareTimeout}); len(got) > 0 {
			t.Errorf("dialect %s: a server differs from itself:\n%s", d, strings.Join(got, "\n"))
		}
	}
}

// A server with a fault differs from the same server without it, by the fault only.
func TestServerAgainstFaultyOne(t *testing.T) {
	own := ownTarget(t)
	for _, c := range []struct {
		dialect arcp.Dialect
		defect  string
		opts    Options
		want    string
	}{
		{arcp.DialectRFC, "the refusal of a submit has an event_seq", Options{IDs: []string{"jobs.version-unknown", "jobs.life"}, Levels: ProtocolLevels},
			"jobs.version-unknown: job.failed event_seq: absent / number"},
		{arcp.DialectRFC, "the code of every refusal is INTERNAL", Options{IDs: []string{"extensions.unknown-core", "jobs.life"}},
			"extensions.unknown-core: outcome: passed / failed: "},
		{arcp.DialectRFC, "session.accepted has no capabilities", Options{IDs: []string{"jobs.life", "control.ping"}, Levels: ProtocolLevels},
			"control.ping (and 1 more): session.accepted payload.capabilities: object / absent"},
		{arcp.DialectDraft, "job.error does not tell when the job failed", Options{IDs: []string{"draft.errors.refusal-harmless", "draft.errors.status"}},
			"draft.errors.status (and 1 more): job.error payload.completed_at: text / absent"},
	} {
		own.Dialect = c.dialect
		repeated := 0
		c.opts.OnRepeat = func(Check) { repeated++ }
		got := against(t, own, *own.behind(fault(t, c.defect)), c.opts)
		if repeated == 0 {
			t.Errorf("%s: OnRepeat was not called", c.defect)
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%s: the differences are\n%s\nwant\n%s", c.defect, strings.Join(got, "\n"), c.want)
		}
	}
}

// A value counts if each run with one server has it and none with the other.
func TestCompareShapes(t *testing.T) {
	run := func(frames ...string) shapes {
		s := shapes{}
		for _, f := range frames {
			s.add([]byte(f))
		}
		return s
	}
	frame := func(typ, payload string) string {
		return `{"arcp":"1.1","id":"msg_1","type":"` + typ + `","timestamp":"2026-01-02T03:04:05Z","payload":` + payload + `}`
	}
	pong, nonce := frame("pong", `{}`), frame("pong", `{"nonce":"a"}`)
	for _, c := range []struct {
		why  string
		a, b []shapes
		want string
	}{
		{"the same", []shapes{run(pong)}, []shapes{run(pong, pong)}, ""},
		{"another text", []shapes{run(nonce)}, []shapes{run(frame("pong", `{"nonce":"b"}`))}, ""},
		{"a member is missing", []shapes{run(nonce)}, []shapes{run(pong)}, "pong payload.nonce: text / absent"},
		{"a member is missing sometimes", []shapes{run(nonce)}, []shapes{run(pong, nonce)}, "pong payload.nonce: text / absent, text"},
		{"a member is missing in one of two runs", []shapes{run(nonce), run(nonce)}, []shapes{run(pong), run(nonce)}, ""},
		{"another JSON type", []shapes{run(frame("pong", `{"n":1}`))}, []shapes{run(frame("pong", `{"n":"1"}`))}, "pong payload.n: number / text"},
		{"another code", []shapes{run(frame("nack", `{"code":"A"}`))}, []shapes{run(frame("nack", `{"code":"B"}`))}, `nack payload.code: "A" / "B"`},
		{"one of two codes", []shapes{run(frame("nack", `{"code":"A"}`), frame("nack", `{"code":"B"}`))}, []shapes{run(frame("nack", `{"code":"A"}`))}, ""},
		{"a code in one of the runs", []shapes{run(frame("nack", `{"code":"A"}`), frame("nack", `{"code":"B"}`)), run(frame("nack", `{"code":"B"}`))}, []shapes{run(frame("nack", `{"code":"A"}`))}, ""},
		{"two other codes", []shapes{run(frame("nack", `{"code":"A"}`), frame("nack", `{"code":"B"}`))}, []shapes{run(frame("nack", `{"code":"C"}`))}, `nack payload.code: "A", "B" / "C"`},
		{"one of two booleans", []shapes{run(frame("nack", `{"retryable":true}`), frame("nack", `{"retryable":false}`))}, []shapes{run(frame("nack", `{"retryable":true}`))}, ""},
		{"a code and no code", []shapes{run(frame("nack", `{"code":"A"}`), frame("nack", `{}`))}, []shapes{run(frame("nack", `{"code":"A"}`))}, `nack payload.code: "A", absent / "A"`},
		{"another page", []shapes{run(frame("session.jobs", `{"next_cursor":"a"}`), frame("session.jobs", `{"next_cursor":null}`))}, []shapes{run(frame("session.jobs", `{"next_cursor":null}`))}, ""},
		{"no cursor", []shapes{run(frame("session.jobs", `{"next_cursor":"a"}`))}, []shapes{run(frame("session.jobs", `{}`))}, ""},
		{"another boolean", []shapes{run(frame("nack", `{"retryable":true}`))}, []shapes{run(frame("nack", `{"retryable":false}`))}, "nack payload.retryable: true / false"},
		{"a type is missing", []shapes{run(pong, frame("ack", `{"a":{"b":1}}`))}, []shapes{run(pong)}, "ack: sent / not sent"},
		{"the outer member", []shapes{run(frame("ack", `{"a":{"b":{"c":1}}}`))}, []shapes{run(frame("ack", `{"a":1}`))}, "ack payload.a: object / number"},
		{"a name with a dot", []shapes{run(frame("ack", `{"lease":{"tool.call":[]}}`))}, []shapes{run(frame("ack", `{"lease":{}}`))}, "ack payload.lease.tool.call: list / absent"},
		{"in a list", []shapes{run(frame("ack", `{"a":[{"b":1}]}`))}, []shapes{run(frame("ack", `{"a":[{}]}`))}, "ack payload.a[].b: number / absent"},
		{"content of a tool", []shapes{run(frame("job.completed", `{"value":{"b":1}}`))}, []shapes{run(frame("job.completed", `{"value":{"c":1}}`))}, ""},
	} {
		var got []string
		for _, d := range compareShapes(c.a, c.b) {
			got = append(got, d.aspect+": "+d.values[0]+" / "+d.values[1])
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %s, want %s", c.why, strings.Join(got, "; "), c.want)
		}
	}
}
