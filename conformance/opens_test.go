package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/transport"
)

// A server that stops to accept sessions fails two checks. The others are skipped with the reason.
func TestSkipsAfterTwoRefusals(t *testing.T) {
	target := fakeTarget(t)
	dials := 0
	target.plant = func(conn transport.Conn) transport.Conn {
		if dials++; dials <= 5 { // that a server listens, three of the probe and the first check
			return conn
		}
		_ = conn.Abort() // the check is told
		return conn
	}
	report, err := Run(t.Context(), target, Options{Groups: []string{"control"}, Parallel: 1, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	failed := report.Failures()
	if len(failed) != maxRefused || report.Count(Passed) != 1 {
		t.Errorf("%d checks passed and %d failed, want 1 and %d: %+v", report.Count(Passed), len(failed), maxRefused, failed)
	}
	last := report.Results[len(report.Results)-1]
	if last.Status != Skipped || !strings.Contains(last.Reason, "two checks in a row: ") {
		t.Errorf("%s is %s %q, want skipped with the reason", last.ID, last.Status, last.Reason)
	}
}
