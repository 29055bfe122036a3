package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// A failed check says in one line which rule is violated, what was sent and what came.
func TestFindingLines(t *testing.T) {
	results := runChecks(t, fakeTarget(t),
		testCheck("x.expect", func(t *checkRun) {
			c := t.Open()
			c.Ping()
			c.Expect("a ping is answered by silence", arcp.Ack, "")
		}),
		testCheck("x.barrier", func(t *checkRun) {
			c := t.Open()
			c.Send(arcp.Cancel, arcp.CancelPayload{Target: "job", TargetID: unknownJob})
			c.ExpectNothing("a cancel is not answered")
		}),
		testCheck("x.two", func(t *checkRun) {
			a, b := t.Open(), t.Dial()
			a.Ping()
			b.write([]byte("{"))
			a.Expect("a ping is answered by silence", arcp.Ack, "")
		}),
		testCheck("x.malformed", func(t *checkRun) {
			c := t.Open()
			c.write([]byte(`{"type":7}`))
			t.Failf("%s: got %s\nand more", "a type is a text", "nothing")
		}),
		testCheck("x.secret", func(t *checkRun) {
			t.Open()
			t.Failf("%s: got %s", "the token "+fakeToken+" is secret", fakeToken)
		}),
		testCheck("x.untold", func(t *checkRun) { t.Failf("connect to the server: %s", "refused") }),
		testCheck("x.panics", func(*checkRun) { panic("oops") }),
	)
	for i, want := range []string{
		"a ping is answered by silence; sent: session.open, then ping; got: pong, want ack",
		"a cancel is not answered; sent: cancel, then ping; got: cancel.refused",
		"a ping is answered by silence; sent: session.open, then ping; got: pong, want ack",
		"a type is a text; sent: frame without a valid type; got: nothing",
		"the token [redacted] is secret; sent: session.open; got: [redacted]",
		"a title; got: connect to the server: refused",
		"a title; got: the check itself panicked: oops",
	} {
		res := results[i]
		res.Title, res.Level, res.Section = "a title", Must, "RFC §1"
		if got := res.Finding(); !strings.HasPrefix(got, res.ID+" (MUST, RFC §1): "+want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %s, want %s", res.ID, got, want)
		}
	}
}

// The finding of a script has the rule after the step or the rule of its verb, and not the place in
// the file.
func TestFindingOfScript(t *testing.T) {
	for _, c := range []struct{ why, found, rule, got string }{
		{"a rule: with a colon", "got nack", "a rule: with a colon", "nack"},
		{"a title", "a valid session.open is accepted: got nack", "a valid session.open is accepted", "nack"},
		{"a title", `payload.message is "a: got b", want "c"`, "a title", `payload.message is "a: got b", want "c"`},
		{"a title", `got nack "a: got b"`, "a title", `nack "a: got b"`},
		{"a title", "it is 3, want 4", "a title", "it is 3, want 4"},
	} {
		rule, got := splitViolation("%s: %s\n%s: %s", []any{c.why, c.found, "jobs.txt:3", "a< ack"})
		if rule != c.rule || got != c.got {
			t.Errorf("splitViolation(%s, %s) = %q, %q, want %q, %q", c.why, c.found, rule, got, c.rule, c.got)
		}
	}
}

// A rule of frames that is selected alone is judged by the frames of all checks, which are not
// reported. The finding names the check that received the first such frame.
func TestFramesAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all conformance checks: left out with -short")
	}
	target := fakeTarget(t)
	target.plant = rewriting(func(frame string) string {
		return strings.Replace(frame, `"type":"pong"`, `"priority":"urgent","type":"pong"`, 1)
	})
	var published []string
	report, err := Run(t.Context(), target, Options{IDs: []string{"frames.priority"}, Parallel: 64, Timeout: 300 * time.Millisecond,
		OnResult: func(res Result) { published = append(published, res.ID) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 1 || len(published) != 1 {
		t.Fatalf("the report has %d results, and %v were published, want one", len(report.Results), published)
	}
	res := report.Results[0]
	if _, ok := FindCheck(res.During); res.Status != Failed || !ok || !strings.HasSuffix(res.Finding(), "; first during "+res.During) {
		t.Errorf("%s is %s: %s, want a finding that names a check", res.ID, res.Status, res.Finding())
	}
}
