package exec

import "syscall"

// order is the first message to a reaper: the command to run.
type order struct {
	Program string // path
	Argv    []string
	Env     []string
	Dir     string // working directory
	Scratch bool   // the reaper removes Dir after the command
	Bounds  Bounds
	Bwrap   string // path of bubblewrap; "": no sandbox
	Hide    []string
	GraceMS int // milliseconds from SIGTERM to SIGKILL

	// HoldInput says that the reaper has a write end of the standard input, too. It closes that on
	// commandInputEnd: if this process is killed, the command is killed without an end of its input.
	HoldInput bool
}

// report is the last message of a reaper.
type report struct {
	Fault  string // reason why the command was not started; "": the command was started
	Status int    // exit status; -1: Signal ended the command
	Signal int
	Left   int // processes that could not be killed
}

// newReport returns the report for the wait status of a command.
func newReport(ws syscall.WaitStatus) report {
	if ws.Signaled() {
		return report{Status: -1, Signal: int(ws.Signal())}
	}
	return report{Status: ws.ExitStatus()}
}
