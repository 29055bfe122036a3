package exec

import "syscall"

// order is what a reaper is told to run.
type order struct {
	Program string // its path
	Argv    []string
	Env     []string
	Dir     string // where it runs
	Scratch bool   // Dir is removed after it
	Bounds  Bounds
	Bwrap   string // path of bubblewrap; "": no sandbox
	Hide    []string
	GraceMS int // from the request to end to the end
}

// What a reaper is told later, a byte each. The end of the connection is the last
// one: this process is gone.
const (
	sayEnd  = 'e' // SIGTERM to the command's group, SIGKILL to all after the grace
	sayKill = 'k' // SIGKILL to all
)

// report is what a reaper says in the end.
type report struct {
	Fault  string // the command was not started
	Status int    // of its exit; -1: it was ended by Signal
	Signal int
	Left   int // processes that could not be ended
}

// newReport tells of the end of a command.
func newReport(ws syscall.WaitStatus) report {
	if ws.Signaled() {
		return report{Status: -1, Signal: int(ws.Signal())}
	}
	return report{Status: ws.ExitStatus()}
}
