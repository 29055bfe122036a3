package arcp

// JobState is a state of a job (§5.6).
type JobState string

// The states.
const (
	StateAccepted  JobState = "accepted"  // durable, not started yet
	StateQueued    JobState = "queued"    // waits for capacity
	StateRunning   JobState = "running"   // an attempt runs
	StateBlocked   JobState = "blocked"   // an attempt waits for a person or a heartbeat
	StatePaused    JobState = "paused"    // stopped at a checkpoint; the runtime continues it
	StateCompleted JobState = "completed" // ended with a result
	StateFailed    JobState = "failed"    // ended with an error
	StateCancelled JobState = "cancelled" // ended on request
)

// JobStates lists the states in the order of SPEC.md.
var JobStates = []JobState{StateAccepted, StateQueued, StateRunning, StateBlocked, StatePaused,
	StateCompleted, StateFailed, StateCancelled}

// Terminal reports whether a job in this state has ended.
func (s JobState) Terminal() bool {
	return s == StateCompleted || s == StateFailed || s == StateCancelled
}
