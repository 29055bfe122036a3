package job

import (
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Input is an input of the table. A method of the Machine may cause different inputs: Fail causes InputFail,
// or InputGiveUp after a cancel.
type Input string

// The inputs.
const (
	InputQueue    Input = "queue"
	InputStart    Input = "start"
	InputComplete Input = "complete"
	InputFail     Input = "fail"
	InputCancel   Input = "cancel"
	InputGiveUp   Input = "give up"
	InputHardStop Input = "hard stop"
	InputBlock    Input = "block"
	InputUnblock  Input = "unblock"
	InputManual   Input = "manual"
	InputBeat     Input = "beat"
	InputSilence  Input = "silence"
	InputHold     Input = "hold"
	InputReturn   Input = "return"
	InputWindow   Input = "window"
	InputTimeout  Input = "timeout"
	InputRetry    Input = "retry"
	InputPause    Input = "pause"
	InputRewind   Input = "rewind"
	InputRestart  Input = "restart"
)

// InputInfo describes an input.
type InputInfo struct {
	Input Input
	Use   string // one sentence for SPEC.md
}

// Inputs lists every input in the order of SPEC.md §5.6.
var Inputs = []InputInfo{
	{InputQueue, "The tool has no capacity now."},
	{InputStart, "An attempt starts."},
	{InputComplete, "The attempt returned a value."},
	{InputFail, "The attempt returned an error, or the runtime fails the job."},
	{InputCancel, "A cancel was accepted; a running attempt is asked to stop."},
	{InputGiveUp, "The attempt returned, with whatever, after a cancel; or it reported CANCELLED itself."},
	{InputHardStop, "The attempt had not returned when the cancel's deadline passed."},
	{InputBlock, "The attempt waits for a person."},
	{InputUnblock, "The person has answered."},
	{InputManual, "The tool sends the heartbeats from now on."},
	{InputBeat, "The tool's heartbeat came in time."},
	{InputSilence, "The tool missed two heartbeats and heartbeat_recovery is fail."},
	{InputHold, "The tool missed two heartbeats and heartbeat_recovery is block."},
	{InputReturn, "A heartbeat came for a job that missed ones had blocked."},
	{InputWindow, "No heartbeat came back within the window."},
	{InputTimeout, "max_runtime_sec have passed since the first start, not counting waits for a person."},
	{InputRetry, "The attempt returned an error after which another one is made."},
	{InputPause, "The attempt stopped at a checkpoint because the runtime shuts down."},
	{InputRewind, "The job shall go on from one of its checkpoints; another attempt is made."},
	{InputRestart, "The runtime was started again; another attempt is made."},
}

// Transition is one row of the table: Input takes a job from From to To.
type Transition struct {
	From  arcp.JobState
	Input Input
	To    arcp.JobState
}

// Transitions is the table. An input without a row for a state is ignored in that state. Terminal states have
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
	{arcp.StateQueued, InputTimeout, arcp.StateFailed},

	{arcp.StateRunning, InputComplete, arcp.StateCompleted},
	{arcp.StateRunning, InputFail, arcp.StateFailed},
	{arcp.StateRunning, InputCancel, arcp.StateRunning},
	{arcp.StateRunning, InputGiveUp, arcp.StateCancelled},
	{arcp.StateRunning, InputHardStop, arcp.StateCancelled},
	{arcp.StateRunning, InputBlock, arcp.StateBlocked},
	{arcp.StateRunning, InputManual, arcp.StateRunning},
	{arcp.StateRunning, InputBeat, arcp.StateRunning},
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
	{arcp.StateBlocked, InputBeat, arcp.StateBlocked},
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
