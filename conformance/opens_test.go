package conformance

import (
	"slices"
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
		if dials++; dials <= 9 { // that a server listens, seven of the probe and the first check
			return conn
		}
		_ = conn.Abort() // the check is told
		return conn
	}
	report, err := Run(t.Context(), target, Options{Groups: []string{"control"}, Levels: Levels, Parallel: 1, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	failed := report.Failures()
	if len(failed) != maxRefused || report.Count(Passed) != 1 {
		t.Errorf("%d checks passed and %d failed, want 1 and %d: %+v", report.Count(Passed), len(failed), maxRefused, failed)
	}
	told := func(res Result) bool {
		return res.Status == Skipped && strings.Contains(res.Reason, "two checks in a row: ")
	}
	if !slices.ContainsFunc(report.Results, told) {
		t.Errorf("the results are %+v, want some that are skipped with the reason", report.Results)
	}
}
