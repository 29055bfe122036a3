package exec

import (
	"os"
	"runtime"
)

// Values of os.Args[0] with which this program starts itself.
const (
	reaperName  = "arcp-reaper"
	limiterName = "arcp-limiter"
	self        = "/proc/self/exe"
)

// hooked is set by Hook, before other goroutines run.
var hooked bool

// Hook runs the reaper or limiter if this package has started the process as one, and does not
// return then. A program that uses this package calls it at the beginning of main, before it
// starts goroutines.
func Hook() {
	hooked = true
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case reaperName:
		runtime.LockOSThread() // the kernel ends the command with the thread that started it
		os.Exit(reaperMain())
	case limiterName:
		runtime.LockOSThread()
		os.Exit(limiterMain(os.Args[1:]))
	}
}
