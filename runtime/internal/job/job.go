// Package job is the machine of one job: which states follow each other, what
// time does to them, and that a job ends exactly once. It is pure: it takes the
// time and returns what its caller must do.
package job

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Spec is what the machine needs to know about a job. Zero durations are off.
type Spec struct {
	MaxRuntime time.Duration // from the first start; then failed with TIMEOUT
	Heartbeat  time.Duration // interval of heartbeats while running or blocked
	Block      bool          // missed heartbeats block the job instead of failing it
	Window     time.Duration // how long a job blocked by missed heartbeats waits for one
	Since      time.Time     // when the first attempt started; zero: none has

	// Lost says that missed heartbeats do not fail the job: its caller asks Silence
	// and decides, for the one that missed them may be made again elsewhere.
	Lost bool
}

// Outcome is how a job ended.
type Outcome struct {
	State  arcp.JobState // completed, failed or cancelled
	Value  arcp.Raw      // completed: the result
	Err    *arcp.Error   // failed: why
	Reason string        // cancelled: as the canceller said
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
