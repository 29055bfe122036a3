package conformance

import (
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
