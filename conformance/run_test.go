package conformance

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

func TestCatalogOfChecks(t *testing.T) {
	seen := map[string]bool{}
	name := regexp.MustCompile(`^[a-z]+(\.[a-z0-9_-]+)+$`)
	for _, c := range allChecks() {
		switch {
		case seen[c.ID] || !name.MatchString(c.ID):
			t.Errorf("id %q is duplicate or malformed", c.ID)
		case c.Title == "" || c.Section == "":
			t.Errorf("%s: a check has a title, a section, a dialect and a function", c.ID)
		case !slices.Contains(Levels, c.Level):
			t.Errorf("%s: level %q", c.ID, c.Level)
		case strings.HasPrefix(c.Section, "SPEC") && c.Level != House:
			t.Errorf("%s: a rule of %s is of the level house", c.ID, c.Section)
		case !slices.Contains(Groups(c.Dialect), c.Group()):
			t.Errorf("%s: group %q", c.ID, c.Group())
		}
		seen[c.ID] = true
	}
	for _, need := range []string{"catalogue.direction.session.accepted", "catalogue.empty.cancel", "unimplemented.job.schedule"} {
		if !seen[need] {
			t.Errorf("there is no check %s: checks are made from the catalog", need)
		}
	}
}

// runChecks runs checks of a test against the fake server.
func runChecks(t *testing.T, target Target, checks ...Check) []Result {
	t.Helper()
	r := &runner{target: &target, opts: &Options{Levels: Levels, Timeout: time.Minute}}
	r.server = r.probe(t.Context(), checks)
	return r.run(t.Context(), checks)
}

func testCheck(id string, run func(t *checkRun), needs ...string) Check {
	return Check{ID: id, Needs: needs, run: func(_ context.Context, t *checkRun) { run(t) }}
}

func TestOutcomes(t *testing.T) {
	results := runChecks(t, fakeTarget(t),
		testCheck("x.passes", func(t *checkRun) { t.Open().ExpectNothing("the session works") }),
		testCheck("x.fails", func(t *checkRun) {
			t.Open().ExpectNothing("the session works")
			t.Failf("the server sent %q", fakeToken)
		}),
		testCheck("x.skips", func(t *checkRun) { t.Skipf("the precondition is missing") }),
		testCheck("x.panics", func(t *checkRun) { panic("oops") }),
		testCheck("x.needs", func(t *checkRun) { t.Failf("it ran") }, toolNeed("demo.nothing")),
		testCheck("x.needs-more", func(t *checkRun) { t.Failf("it ran") }, toolNeed("demo.echo"), capabilityNeed("streaming")),
		testCheck("x.needs-other", func(t *checkRun) { t.Failf("it ran") }, NeedOther),
		testCheck("x.needs-socket", func(t *checkRun) { t.Failf("it ran") }, NeedWebSocket),
		testCheck("x.needs-limit", func(t *checkRun) { t.Failf("it ran") }, NeedFrameLimit),
		testCheck("x.needs-restart", func(t *checkRun) { t.Failf("it ran") }, NeedRestart),
		testCheck("x.has", func(t *checkRun) {}, toolNeed("demo.echo")),
		testCheck("x.unexpected", func(t *checkRun) {
			c := t.Open()
			c.Ping()
			c.Expect("a ping is answered by silence", arcp.Ack, "")
		}),
		testCheck("x.waits", func(t *checkRun) {
			ctx, cancel := context.WithCancel(t.ctx)
			defer cancel()
			t.ctx = ctx
			c := t.Open()
			time.AfterFunc(20*time.Millisecond, cancel)
			c.next("something comes")
		}),
	)
	for i, want := range []struct {
		status Status
		reason string
	}{
		{Passed, ""}, {Failed, `the server sent "[redacted]"`}, {Skipped, "the precondition is missing"}, {Failed, "the check itself panicked: oops"},
		{Skipped, "the server has no tool demo.nothing"}, {Skipped, "capability streaming is not offered"},
		{Skipped, "no token of another principal was given: give --other-token, or other_token in a mapping file"}, {Skipped, "the target has no WebSocket URL"},
		{Skipped, "the largest frame that the server reads is unknown: give --frame-limit, or frame_limit in a mapping file"}, {Skipped, "the server cannot be restarted by the checks"}, {Passed, ""},
		{Failed, "a ping is answered by silence: got pong, want ack"}, {Failed, "something comes: no frame was received before the timeout of the check"},
	} {
		got := results[i]
		if got.Status != want.status || !strings.HasPrefix(got.Reason, want.reason) {
			t.Errorf("%s: %s %q, want %s %q", got.ID, got.Status, got.Reason, want.status, want.reason)
		}
		if (got.Status == Failed) != (got.Transcript != nil) {
			t.Errorf("%s: %s has a transcript of %d entries", got.ID, got.Status, len(got.Transcript))
		}
	}
}

// Checks that restart the server run alone, and their connections end with the
// restart.
func TestRestartsAreAlone(t *testing.T) {
	target := fakeTarget(t)
	running, restarts := atomic.Int32{}, 0
	target.Restart = func(context.Context) error {
		if restarts++; restarts == 3 {
			return errors.New("it is broken")
		}
		return nil
	}
	other := func(t *checkRun) {
		running.Add(1)
		defer running.Add(-1)
		t.Open().ExpectNothing("the session works")
	}
	restart := func(t *checkRun) {
		t.Want("no other check runs", running.Add(1) == 1, "there are %d", running.Load())
		defer running.Add(-1)
		c := t.Open()
		t.Restart(t.ctx)
		t.Want("the connection is gone", c.gone, "it is there")
	}
	results := runChecks(t, target, testCheck("x.a", restart, NeedRestart), testCheck("x.b", other), testCheck("x.c", restart, NeedRestart), testCheck("x.d", other),
		testCheck("x.e", restart, NeedRestart))
	for i, want := range []Status{Passed, Passed, Passed, Passed, Failed} {
		if got := results[i]; got.Status != want {
			t.Errorf("%s: %s %q, want %s", got.ID, got.Status, got.Reason, want)
		}
	}
}

func TestTranscriptShowsNoSecrets(t *testing.T) {
	res := runChecks(t, fakeTarget(t), testCheck("x.fails", func(t *checkRun) {
		t.Open()
		t.Failf("always")
	}))[0]
	dirs := map[Direction]int{}
	for _, e := range res.Transcript {
		dirs[e.Dir]++
		if strings.Contains(e.Text, fakeToken) || strings.Contains(e.Text, `"rt_`) {
			t.Errorf("a transcript shows a secret: %s", e)
		}
	}
	if dirs[Sent] != 1 || dirs[Received] != 1 || dirs[Noted] == 0 {
		t.Errorf("a transcript has both directions and notes: %v", res.Transcript)
	}
}

// A refused credential is an error of its own. Any other refusal of a session is a failed check.
func TestServerThatRefusesEveryClient(t *testing.T) {
	target := fakeTarget(t)
	target.Token = "another-token-0123456789"
	_, err := Run(t.Context(), target, Options{IDs: []string{"handshake.accepted"}})
	if refused, ok := errors.AsType[*RefusedError](err); !ok || strings.Contains(err.Error(), target.Token) {
		t.Errorf("the error is %v, want a RefusedError without the token", err)
	} else if refused.Code != arcp.CodeUnauthenticated {
		t.Errorf("the code is %q", refused.Code)
	}
	good := fakeTarget(t)
	if _, err := RunAgainst(t.Context(), good, target, Options{IDs: []string{"handshake.accepted"}}); !errors.As(err, new(*RefusedError)) ||
		!strings.HasPrefix(err.Error(), "the second server: ") {
		t.Errorf("the error is %v, want a RefusedError of the second server", err)
	}

	draft := firstAnswers(t, map[arcp.Type]string{script.SessionHello: frameWith(script.SessionError, `{"code":"UNAUTHENTICATED","message":"no"}`)})
	draft.Dialect = arcp.DialectDraft
	if _, err := Run(t.Context(), draft, Options{IDs: []string{"draft.cancel.acknowledged"}}); !errors.As(err, new(*RefusedError)) {
		t.Errorf("the error of the draft is %v, want a RefusedError", err)
	}

	full := firstAnswers(t, map[arcp.Type]string{arcp.SessionOpen: frameWith(arcp.SessionRejected, `{"code":"RESOURCE_EXHAUSTED","message":"full"}`)})
	report, err := Run(t.Context(), full, Options{IDs: []string{"handshake.accepted", "jobs.life"}, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Results[0]; got.Status != Failed {
		t.Errorf("%s is %s: the check of the handshake itself runs", got.ID, got.Status)
	}
	if got := report.Results[1]; got.Status != Skipped || !strings.Contains(got.Reason, "refuses session.open") {
		t.Errorf("%s is %s %q: what needs a tool is skipped", got.ID, got.Status, got.Reason)
	}
	var text strings.Builder
	if err := WriteText(&text, &report, TextOptions{}); err != nil || !strings.HasPrefix(text.String(), "unknown server at ") {
		t.Errorf("the report begins with %.40q, %v", text.String(), err)
	}
}

func TestRun(t *testing.T) {
	var reported []string
	inside := 0
	report, err := Run(t.Context(), fakeTarget(t), Options{Groups: []string{"control"}, Levels: []Level{Must}, Parallel: 8,
		OnResult: func(r Result) {
			if inside++; inside != 1 {
				t.Error("OnResult is called one at a time")
			}
			reported = append(reported, r.ID)
			inside--
		}})
	if err != nil {
		t.Fatal(err)
	}
	if len(reported) != len(report.Results) || len(reported) == 0 {
		t.Errorf("OnResult received %d results, the report has %d", len(reported), len(report.Results))
	}
	if report.Runtime.Kind != "fake" {
		t.Errorf("Runtime.Kind = %q, want that of the server", report.Runtime.Kind)
	}
	for _, r := range report.Results {
		if r.Group != "control" || r.Level != Must {
			t.Errorf("%s of level %s was not selected", r.ID, r.Level)
		}
	}
	if n := report.Count(Passed) + report.Count(Failed) + report.Count(Skipped); n != len(reported) || len(report.Failures()) != report.Count(Failed) {
		t.Errorf("the counts add up to %d, want %d", n, len(reported))
	}
}

// A check of the level house is performed if its level is chosen, or the check itself.
func TestHouseIsChosen(t *testing.T) {
	house := Check{ID: "x.y", Level: House}
	for _, c := range []struct {
		opts Options
		want bool
	}{
		{Options{}, false}, {Options{Groups: []string{"x"}}, false}, {Options{IDs: []string{"x.y"}}, true},
		{Options{Levels: Levels}, true}, {Options{IDs: []string{"x.y"}, Levels: ProtocolLevels}, false},
	} {
		if got := c.opts.selects(&house); got != c.want {
			t.Errorf("options %+v select a check of the level house: %v, want %v", c.opts, got, c.want)
		}
	}
}

func TestRunErrors(t *testing.T) {
	if _, err := Run(t.Context(), fakeTarget(t), Options{Groups: []string{"nothing"}}); !errors.Is(err, ErrNoChecks) {
		t.Errorf("no selected check: error is %v", err)
	}
	broken := errors.New("no route")
	_, err := Run(t.Context(), Target{Dial: func(context.Context) (transport.Conn, error) { return nil, broken }}, Options{})
	if !errors.Is(err, broken) {
		t.Errorf("no server: error is %v, want it to wrap %v", err, broken)
	}
}

func TestRunEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	report, err := Run(ctx, fakeTarget(t), Options{Groups: []string{"control"}, Parallel: 1, OnResult: func(Result) { cancel() }})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results[1:] {
		if r.Status != Skipped || r.Reason != "the run was cancelled" {
			t.Errorf("%s is %s %q after the end of the run", r.ID, r.Status, r.Reason)
		}
	}
}
