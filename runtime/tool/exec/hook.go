package exec

import (
	"os"
	"runtime"
)

// Values of os.Args[0] of the processes that this program starts from itself.
const (
	reaperName  = "arcp-reaper"
	limiterName = "arcp-limiter"
	self        = "/proc/self/exe"
)

// hooked is set by Hook, before other goroutines run.
var hooked bool

// Hook runs the reaper or the limiter in a process that this package has started for it, and then exits. In any
// other process it returns. A program that uses this package calls Hook at the beginning of main,
// before it starts goroutines.
func Hook() {
	hooked = true
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case reaperName:
		runtime.LockOSThread() // the kernel ends the command when the thread that started it ends
		os.Exit(reaperMain())
	case limiterName:
		runtime.LockOSThread()
		os.Exit(limiterMain(os.Args[1:]))
	}
}
