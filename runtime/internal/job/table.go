package job

import (
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Input is an input of the table (SPEC.md §5.6). A method of the Machine may apply different inputs: Fail
// applies InputFail, or InputGiveUp after a cancel.
type Input string

// The inputs.
const (
	InputQueue     Input = "queue"     // the tool has no capacity now
	InputStart     Input = "start"     // an attempt starts
	InputComplete  Input = "complete"  // the attempt returned a value
	InputFail      Input = "fail"      // the attempt returned an error, or the runtime fails the job
	InputCancel    Input = "cancel"    // a cancel was accepted; a running attempt gets a request to stop
	InputGiveUp    Input = "give up"   // the attempt returned after a cancel, or it returned CANCELLED
	InputHardStop  Input = "hard stop" // the attempt had not returned when the cancel's deadline passed
	InputBlock     Input = "block"     // the attempt waits for an answer
	InputUnblock   Input = "unblock"   // the attempt waits for no answer any more
	InputManual    Input = "manual"    // the tool sends the heartbeats from now on
	InputHeartbeat Input = "beat"      // a heartbeat of the tool arrived in time
	InputSilence   Input = "silence"   // the tool missed two heartbeats and heartbeat_recovery is fail
	InputHold      Input = "hold"      // the tool missed two heartbeats and heartbeat_recovery is block
	InputReturn    Input = "return"    // a heartbeat arrived for a job that was blocked by missed heartbeats
	InputWindow    Input = "window"    // no heartbeat arrived within the window
	InputTimeout   Input = "timeout"   // max_runtime_sec have passed since the first start, without the waits for an answer
	InputRetry     Input = "retry"     // the attempt returned an error, and another attempt follows
	InputPause     Input = "pause"     // the attempt stopped at a checkpoint because the runtime shuts down
	InputRewind    Input = "rewind"    // a client has chosen a checkpoint; another attempt follows
	InputConclude  Input = "conclude"  // the job ends with a value without an attempt, as a schedule does
	InputRestart   Input = "restart"   // the runtime was restarted; another attempt follows
)

// Transition is one row of the table: Input takes a job from From to To.
type Transition struct {
	From  arcp.JobState
	Input Input
	To    arcp.JobState
}

// Transitions is the table. The machine ignores an input without a row for its state. Terminal states have
// no rows. The table must not be changed.
var Transitions = []Transition{
	{arcp.StateAccepted, InputQueue, arcp.StateQueued},
	{arcp.StateAccepted, InputStart, arcp.StateRunning},
	{arcp.StateAccepted, InputFail, arcp.StateFailed},
	{arcp.StateAccepted, InputCancel, arcp.StateCancelled},
	{arcp.StateAccepted, InputGiveUp, arcp.StateCancelled},

	{arcp.StateQueued, InputStart, arcp.StateRunning},
	{arcp.StateQueued, InputFail, arcp.StateFailed},
	{arcp.StateQueued, InputCancel, arcp.StateCancelled},
	{arcp.StateQueued, InputGiveUp, arcp.StateCancelled},
	{arcp.StateQueued, InputConclude, arcp.StateCompleted},
	{arcp.StateQueued, InputTimeout, arcp.StateFailed},

	{arcp.StateRunning, InputComplete, arcp.StateCompleted},
	{arcp.StateRunning, InputFail, arcp.StateFailed},
	{arcp.StateRunning, InputCancel, arcp.StateRunning},
	{arcp.StateRunning, InputGiveUp, arcp.StateCancelled},
	{arcp.StateRunning, InputHardStop, arcp.StateCancelled},
	{arcp.StateRunning, InputBlock, arcp.StateBlocked},
	{arcp.StateRunning, InputManual, arcp.StateRunning},
	{arcp.StateRunning, InputHeartbeat, arcp.StateRunning},
	{arcp.StateRunning, InputSilence, arcp.StateFailed},
	{arcp.StateRunning, InputHold, arcp.StateBlocked},
	{arcp.StateRunning, InputTimeout, arcp.StateFailed},
	{arcp.StateRunning, InputRetry, arcp.StateQueued},
	{arcp.StateRunning, InputPause, arcp.StatePaused},
	{arcp.StateRunning, InputRewind, arcp.StateQueued},
	{arcp.StateRunning, InputRestart, arcp.StateQueued},

	{arcp.StateBlocked, InputComplete, arcp.StateCompleted},
	{arcp.StateBlocked, InputFail, arcp.StateFailed},
	{arcp.StateBlocked, InputCancel, arcp.StateBlocked},
	{arcp.StateBlocked, InputGiveUp, arcp.StateCancelled},
	{arcp.StateBlocked, InputHardStop, arcp.StateCancelled},
	{arcp.StateBlocked, InputBlock, arcp.StateBlocked},
	{arcp.StateBlocked, InputUnblock, arcp.StateRunning},
	{arcp.StateBlocked, InputManual, arcp.StateBlocked},
	{arcp.StateBlocked, InputHeartbeat, arcp.StateBlocked},
	{arcp.StateBlocked, InputReturn, arcp.StateRunning},
	{arcp.StateBlocked, InputWindow, arcp.StateFailed},
	{arcp.StateBlocked, InputTimeout, arcp.StateFailed},
	{arcp.StateBlocked, InputRetry, arcp.StateQueued},
	{arcp.StateBlocked, InputPause, arcp.StatePaused},
	{arcp.StateBlocked, InputRewind, arcp.StateQueued},
	{arcp.StateBlocked, InputRestart, arcp.StateQueued},

	{arcp.StatePaused, InputRestart, arcp.StateQueued},
	{arcp.StatePaused, InputFail, arcp.StateFailed},
	{arcp.StatePaused, InputCancel, arcp.StateCancelled},
	{arcp.StatePaused, InputGiveUp, arcp.StateCancelled},
}

type transition struct {
	from  arcp.JobState
	input Input
}

var table = func() map[transition]arcp.JobState {
	t := make(map[transition]arcp.JobState, len(Transitions))
	for _, r := range Transitions {
		t[transition{r.From, r.Input}] = r.To
	}
	return t
}()

// Diagram returns the table as a Mermaid state diagram for SPEC.md §5.6. Rows that do not change the state are
// left out, and inputs with the same effect share an arrow.
func Diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> accepted\n")
	for _, from := range arcp.JobStates {
		for _, to := range arcp.JobStates {
			if inputs := between(from, to); from != to && len(inputs) > 0 {
				b.WriteString("    " + string(from) + " --> " + string(to) + ": " + strings.Join(inputs, ", ") + "\n")
			}
		}
	}
	for _, s := range arcp.JobStates {
		if s.Terminal() {
			b.WriteString("    " + string(s) + " --> [*]\n")
		}
	}
	return b.String()
}

func between(from, to arcp.JobState) (inputs []string) {
	for _, r := range Transitions {
		if r.From == from && r.To == to {
			inputs = append(inputs, string(r.Input))
		}
	}
	return inputs
}
