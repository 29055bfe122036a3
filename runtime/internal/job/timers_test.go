package job

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// With ReportSilence, missed heartbeats do not end the job: TakeSilenceError returns them once, and
// its caller ends the attempt.
func TestSilenceReportsMissedHeartbeats(t *testing.T) {
	for _, block := range []bool{false, true} {
		m := New(Spec{Heartbeat: time.Second, BlockOnSilence: block, SilenceWindow: time.Minute, ReportSilence: true})
		m.Start(t0)
		m.SetManualHeartbeats(t0)
		at := t0.Add(maxMissed * time.Second)
		m.Advance(at)
		if block {
			if err := m.TakeSilenceError(); err != nil || m.State() != arcp.StateBlocked {
				t.Fatalf("TakeSilenceError = %v in state %s, want nil in blocked", err, m.State())
			}
			at = at.Add(time.Minute)
			m.Advance(at)
		}
		if m.State().Terminal() {
			t.Fatalf("block %v: state = %s after missed heartbeats, want one that is not terminal", block, m.State())
		}
		err := m.TakeSilenceError()
		if err == nil || err.Code != arcp.CodeHeartbeatLost {
			t.Fatalf("block %v: TakeSilenceError = %v, want HEARTBEAT_LOST", block, err)
		}
		if again := m.TakeSilenceError(); again != nil {
			t.Errorf("block %v: second TakeSilenceError = %v, want nil", block, again)
		}
		if d := m.Deadline(); !d.After(at) {
			t.Errorf("block %v: Deadline = %v, want a time after %v", block, d, at)
		}
		if m.Retry(at, err); m.State() != arcp.StateQueued {
			t.Errorf("block %v: state = %s after Retry, want queued", block, m.State())
		}
	}
}
