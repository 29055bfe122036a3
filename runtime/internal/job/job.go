// Package job decides about one job: its states and timers, its attempts, and its checkpoints. A job
// ends exactly once. The package is pure: its functions take the time and return the actions for the
// caller.
//
// The packages below it decide about a job's authority, its questions and its children.
package job

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Spec configures the machine of a job. Zero durations are off.
type Spec struct {
	MaxRuntime     time.Duration // from the first start; then the job fails with TIMEOUT
	Heartbeat      time.Duration // interval of heartbeats while running or blocked
	BlockOnSilence bool          // missed heartbeats block the job instead of failing it
	SilenceWindow  time.Duration // how long a job that is blocked by missed heartbeats waits for one
	StartedAt      time.Time     // of the first attempt; zero: no attempt has started

	// ReportSilence reports missed heartbeats by Machine.TakeSilenceError instead of failing the job:
	// another worker may repeat the attempt.
	ReportSilence bool
}

// Outcome is the end of a job.
type Outcome struct {
	State     arcp.JobState             // completed, failed or cancelled
	Value     arcp.Raw                  // completed: the result, unless Reference is set
	Reference *arcp.JobCompletedPayload // completed with a result in chunks of the tool: refers to it
	Err       *arcp.Error               // failed: the error
	Reason    string                    // cancelled: the reason of the cancel
	Code      arcp.Code                 // cancelled: CANCELLED, or ABORTED after the hard stop
}

// Output has the actions for the caller, in the order of the fields.
type Output struct {
	State     arcp.JobState             // the new state; empty: unchanged
	Started   bool                      // emit job.started and start an attempt
	Heartbeat *arcp.JobHeartbeatPayload // emit it
	Stop      *arcp.Error               // ask the tool to stop, with this cause
	Terminal  *Outcome                  // the job has ended; no output follows
}
