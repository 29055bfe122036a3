package exec

import (
	"os"
	"runtime"
)

// What this program is called when it is started again.
const (
	reaperName  = "arcp-reaper"
	limiterName = "arcp-limiter"
	self        = "/proc/self/exe"
)

// hooked says that Hook was called. It is written before anything else runs.
var hooked bool

// Hook does the work of a process that was started by this package, and does not
// return in it. A program that makes tools of commands, or has sources that start
// programs, calls it first thing in main, before it starts anything.
func Hook() {
	hooked = true
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case reaperName:
		runtime.LockOSThread() // the kernel ends the command with the thread that started it
		os.Exit(keep())
	case limiterName:
		runtime.LockOSThread()
		os.Exit(limit(os.Args[1:]))
	}
}
