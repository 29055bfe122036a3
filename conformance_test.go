package arcpd_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/conformance"
)

// later are the checks that need what this version does not have.
var later = []string{
	"jobs.metric", // needs demo.spend
}

// TestConformance runs the black-box checks against the command, on each store.
func TestConformance(t *testing.T) {
	for name, data := range map[string]string{"memory": ":memory:", "durable": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			p := startServer(t, binary(t), data, "--token", "bob="+crashToken+"-of-bob", "--heartbeat", "1s")
			defer p.kill(t)
			report, err := conformance.Run(t.Context(), target(p), conformance.Options{Parallel: 4, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := conformance.WriteText(&text, &report, conformance.TextOptions{}); err != nil {
				t.Fatal(err)
			}
			passed := 0
			for _, r := range report.Results {
				switch {
				case r.Status == conformance.Passed:
					passed++
				case r.Status == conformance.Skipped && slices.Contains(later, r.ID):
				default:
					t.Errorf("%s: %s", r.ID, r.Status)
				}
			}
			if t.Failed() || passed < 200 {
				t.Errorf("%d checks passed\n%s", passed, text.String())
			}
		})
	}
}

func target(p *process) conformance.Target {
	return conformance.Target{URL: p.url, Token: crashToken, Principal: "alice", OtherToken: crashToken + "-of-bob"}
}

// TestConformanceChecksCanFail puts a proxy in between that breaks one rule at a
// time: some check must notice each.
func TestConformanceChecksCanFail(t *testing.T) {
	p := startServer(t, binary(t), ":memory:", "--token", "bob="+crashToken+"-of-bob", "--heartbeat", "1s")
	defer p.kill(t)
	if err := conformance.SelfTest(t.Context(), target(p)); err != nil {
		t.Error(err)
	}
}
