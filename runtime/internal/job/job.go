// Package job decides about one job: its states and timers, its attempts, and its checkpoints. A job
// ends exactly once. The package is pure: its functions take the time and return what the caller must
// do.
package job

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Spec configures the machine of a job. Zero durations are off.
type Spec struct {
	MaxRuntime time.Duration // from the first start; then failed with TIMEOUT
	Heartbeat  time.Duration // interval of heartbeats while running or blocked
	Block      bool          // missed heartbeats block the job instead of failing it
	Window     time.Duration // how long a job blocked by missed heartbeats waits for one
	Since      time.Time     // when the first attempt started; zero: none has

	// Lost makes missed heartbeats reported by Silence instead of failing the job. The caller
	// decides: another worker may repeat the attempt.
	Lost bool
}

// Outcome is how a job ended.
type Outcome struct {
	State  arcp.JobState // completed, failed or cancelled
	Value  arcp.Raw      // completed: the result
	Err    *arcp.Error   // failed: why
	Reason string        // cancelled: the reason of the cancel
	Code   arcp.Code     // cancelled: CANCELLED, or ABORTED after the hard stop
}

// Output is what the caller must do, in the order of the fields.
type Output struct {
	State     arcp.JobState             // the new state; empty: unchanged
	Started   bool                      // emit job.started and start an attempt
	Heartbeat *arcp.JobHeartbeatPayload // emit it
	Stop      *arcp.Error               // ask the tool to stop, with this cause
	Terminal  *Outcome                  // the job has ended; nothing comes after
}
