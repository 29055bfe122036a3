package conformance

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/proxy"
	"github.com/arcpd/arcpd/transport"
)

func TestChecksCanFail(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all conformance checks: left out with -short")
	}
	if err := selfTest(t.Context(), fakeTarget(t), fakeFaults()); err != nil {
		t.Error(err)
	}
}

// durable are the groups of checks, or beginnings of their names, that the fake server cannot pass. internal/e2e tests their
// faults with the runtime.
var durable = []string{"limits", "resume", "takeover", "flow", "feeds", "dedup", "liveness", "recovery", "retry", "sessions",
	"leases", "budgets", "permissions", "questions", "interrupts", "approvals", "tools", "resources", "host", "observers", "workers", "exec", "mcp", "auth", "jwt", "results", "streams", "artifacts", "traces", "schedules", "handoffs", "catalogue.no-object"}

// fakeFaults are the faults that a check detects with the fake server.
func fakeFaults() []proxy.Fault {
	return slices.DeleteFunc(proxy.Faults(), func(f proxy.Fault) bool {
		return strings.HasPrefix(f.Checks[0], draftPrefix) || slices.ContainsFunc(durable, func(group string) bool { return strings.HasPrefix(f.Checks[0], group+".") })
	})
}

func TestFaultsNameChecks(t *testing.T) {
	known, defects := map[string]bool{}, map[string]bool{}
	for _, c := range allChecks() {
		known[c.ID] = true
	}
	for _, f := range proxy.Faults() {
		if f.Defect == "" || len(f.Checks) == 0 || defects[f.Defect] {
			t.Errorf("fault %q needs a unique defect and at least one check", f.Defect)
		}
		defects[f.Defect] = true
		for _, id := range f.Checks {
			if !known[id] {
				t.Errorf("fault %q names the unknown check %q", f.Defect, id)
			}
		}
	}
}

// Each check of the draft dialect can fail.
func TestDraftChecksHaveFaults(t *testing.T) {
	named := map[string]bool{}
	for _, f := range proxy.Faults() {
		for _, id := range f.Checks {
			named[id] = true
		}
	}
	for _, c := range performed(Checks(arcp.DialectDraft)) {
		if !named[c.ID] {
			t.Errorf("no fault names the check %s", c.ID)
		}
	}
}

// A check of a broken server fails with a reason and does not panic.
func TestChecksSurviveTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	for name, target := range map[string]Target{"small": fakeTarget(t), "parrot": parrotTarget(t)} {
		t.Run(name, func(t *testing.T) {
			target.OtherToken, target.ObserverToken, target.Principal = fakeToken, fakeToken, "fake"
			target.JWT = &JWT{Key: secretKey(make([]byte, minSecret)), Issuer: "https://issuer.example"}
			r := &runner{target: &target, opts: &Options{Levels: Levels, Parallel: 16, Timeout: 300 * time.Millisecond}, server: knowsAll(), opens: opens{endless: true}}
			for _, res := range r.run(t.Context(), performed(Checks(arcp.DialectRFC))) {
				if res.Status == Failed && (res.Reason == "" || strings.Contains(res.Reason, "panicked")) {
					t.Errorf("%s fails with %q", res.ID, res.Reason)
				}
			}
		})
	}
}

// knowsAll returns a server with every tool that the checks need.
func knowsAll() *server {
	s := &server{tools: map[string]bool{}, served: map[arcp.Type]bool{}}
	for _, c := range allChecks() {
		for _, need := range c.Needs {
			if name, ok := strings.CutPrefix(need, toolPrefix); ok {
				s.tools[name] = true
			}
			if typ, ok := strings.CutPrefix(need, messagePrefix); ok {
				s.served[arcp.Type(typ)] = true
			}
		}
	}
	return s
}

// parrotTarget is a server that sends each frame back unchanged.
func parrotTarget(t *testing.T) Target {
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	return Target{Token: fakeToken, Dial: func(context.Context) (transport.Conn, error) {
		near, far := transport.Pipe(transport.Limits{})
		serving.Go(func() {
			defer func() { _ = far.Abort() }() // the client has disconnected
			for {
				frame, err := far.Read()
				if err != nil || far.Write(frame) != nil || far.Flush() != nil {
					return
				}
			}
		})
		return near, nil
	}}
}

// That a check runs into its timeout detects a fault only if the fault is a missing frame.
func TestTimeoutsDetectSilentFaults(t *testing.T) {
	f := fault(t, "the final event of a job is never sent")
	target := fakeTarget(t)
	r := &runner{target: target.behind(f), opts: &Options{Levels: Levels, Timeout: 300 * time.Millisecond}, server: knowsAll()}
	c, _ := FindCheck("jobs.life")
	res := r.runOne(t.Context(), &c)
	if !counts(f, &res) {
		t.Errorf("%+v does not count", res)
	}
	loud := *f
	loud.Silent = false
	if counts(&loud, &res) {
		t.Errorf("%+v counts for a fault that is no missing frame", res)
	}
}

// The limit of a check behind a silent fault grows with the time that the check takes without the fault.
func TestSilentTimeoutFollowsTheSoundRun(t *testing.T) {
	silent, loud := &proxy.Fault{Silent: true}, &proxy.Fault{}
	for took, want := range map[time.Duration]time.Duration{0: silentTimeout, 3 * time.Second: silentFactor * 3 * time.Second} {
		list := passedChecks([]Check{{ID: "a"}}, []Result{{Status: Passed, Duration: Millis(took)}})
		if got := list[0].detectionTimeout(silent); got != want {
			t.Errorf("a check that takes %v has the limit %v, want %v", took, got, want)
		}
		if got := list[0].detectionTimeout(loud); got != soundTimeout {
			t.Errorf("the limit behind a fault that is not silent is %v, want %v", got, soundTimeout)
		}
	}
}

// A fault that only the rules of the level house detect needs its mark.
func TestFaultMarksAreJudged(t *testing.T) {
	for _, f := range proxy.Faults() {
		if f.Defect != "pong has another nonce than its ping" {
			continue
		}
		f.House = !f.House
		const want = "without the rules of the level house: mark it as House"
		if err := selfTest(t.Context(), fakeTarget(t), []proxy.Fault{f}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without the mark of %q the error is %v, want %s", f.Defect, err, want)
		}
		return
	}
	t.Error("the fault is gone")
}
