package exec

import "syscall"

// order is the first message to a reaper: the command to run.
type order struct {
	Program string // its path
	Argv    []string
	Env     []string
	Dir     string // working directory
	Scratch bool   // the reaper removes Dir after the command
	Bounds  Bounds
	Bwrap   string // path of bubblewrap; "": no sandbox
	Hide    []string
	GraceMS int // from SIGTERM to SIGKILL
}

// Later messages to a reaper, a byte each. The end of the connection means that this process is
// gone: it counts as commandKill.
const (
	commandEnd  = 'e' // SIGTERM to the command's process group, SIGKILL to all processes after the grace
	commandKill = 'k' // SIGKILL to all processes
)

// report is the last message of a reaper.
type report struct {
	Fault  string // why the command was not started; "": it was
	Status int    // exit status; -1: Signal ended the command
	Signal int
	Left   int // processes that could not be killed
}

// newReport tells of the end of a command.
func newReport(ws syscall.WaitStatus) report {
	if ws.Signaled() {
		return report{Status: -1, Signal: int(ws.Signal())}
	}
	return report{Status: ws.ExitStatus()}
}
