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
				t.Fatalf("a job that is to be blocked is %s, and told %v", m.State(), err)
			}
			at = at.Add(time.Minute)
			m.Advance(at)
		}
		if m.State().Terminal() {
			t.Fatalf("block %v: the job is %s", block, m.State())
		}
		err := m.TakeSilenceError()
		if err == nil || err.Code != arcp.CodeHeartbeatLost {
			t.Fatalf("block %v: told %v", block, err)
		}
		if again := m.TakeSilenceError(); again != nil {
			t.Errorf("block %v: told twice: %v", block, again)
		}
		if d := m.Deadline(); !d.After(at) {
			t.Errorf("block %v: the next deadline is %v, which is over", block, d)
		}
		if m.Retry(at, err); m.State() != arcp.StateQueued {
			t.Errorf("block %v: another attempt waits as %s", block, m.State())
		}
	}
}
