package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance"
)

// TestExecConformance runs the checks of both dialects against servers on standard input and output. Each check that
// needs one connection passes.
func TestExecConformance(t *testing.T) {
	watchedIn(t, "conformance")
	for name, dialect := range map[string]arcp.Dialect{"rfc": arcp.DialectRFC, "draft": arcp.DialectDraft} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tg := conformance.Target{
				Dialect: dialect, Token: crashToken, Principal: "alice",
				Exec: []string{binary(t), "serve", "--stdio", "--demo", "--data", ":memory:", "--token", "alice=" + crashToken},
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // of half a minute, or two with the race detector
			defer cancel()
			report, err := conformance.Run(ctx, tg, conformance.Options{Parallel: 4, Timeout: 10 * time.Minute, Levels: conformance.Levels})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range report.Failures() {
				t.Errorf("%s: %s", r.ID, r.Reason)
			}
			if passed := report.Count(conformance.Passed); passed < 100 {
				t.Errorf("%d of %d checks pass, want at least 100", passed, len(report.Results))
			}
		})
	}
}
