package conformance

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// A check of a message that RFC 0001 does not have needs a server that serves the message, or offers its feature.
func TestProbeNewer(t *testing.T) {
	target := fakeTarget(t)
	r := &runner{target: &target, opts: &Options{Timeout: bareTimeout}}
	s := r.probe(t.Context(), nil)
	for typ, served := range map[arcp.Type]bool{arcp.SessionPing: true, arcp.SessionListJobs: true, arcp.SessionAck: false, arcp.JobSubscribe: false} {
		if s.served[typ] != served {
			t.Errorf("the server serves %s: %v, want %v", typ, s.served[typ], served)
		}
		if reason := s.missing(&target, messagePrefix+string(typ)); (reason == "") != served {
			t.Errorf("%s: the check is skipped with %q", typ, reason)
		}
	}
	s.accepted.Capabilities.Features = []string{"subscribe"}
	if reason := s.missing(&target, messagePrefix+string(arcp.JobSubscribe)); reason != "" {
		t.Errorf("a check of an offered feature is skipped: %s", reason)
	}
}

// A server that closes the connection after a message of a type that it does not know has one finding for that.
func TestServerThatHangsUp(t *testing.T) {
	report, err := Run(t.Context(), fakeTarget(t, func(f *fake) { f.hangsUp = true }), Options{Timeout: bareTimeout,
		IDs: []string{"control.ping", "extensions.unknown-core", "extensions.unadvertised", "extensions.optional", "extensions.not-negotiated",
			"unimplemented.job.schedule", "unimplemented.workflow.start", "unimplemented.lease.refresh", "catalogue.direction.job.started", "catalogue.phase"}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Status{"control.ping": Passed, "extensions.not-negotiated": Passed, "extensions.unknown-core": Failed,
		"unimplemented.workflow.start": Passed, // the server knows it
		"catalogue.phase":              Passed} // nothing is performed
	for _, res := range report.Results {
		switch status := cmp.Or(want[res.ID], Skipped); {
		case res.Status != status:
			t.Errorf("%s is %s (%s), want %s", res.ID, res.Status, res.Reason, status)
		case status == Skipped && (!strings.HasSuffix(res.Reason, "see extensions.unknown-core") || res.Need != NeedUnknown):
			t.Errorf("%s is skipped for %q: %s, want the check that judges the defect", res.ID, res.Need, res.Reason)
		}
	}
	const habit = "the server keeps the connection after a message of a type that it does not know: no"
	if !slices.Contains(report.Habits, habit) {
		t.Errorf("the habits are %q, want %q", report.Habits, habit)
	}
}
