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

// runHook runs the reaper or the limiter if args are of one, and then exits.
func runHook(args []string) {
	switch args[0] {
	case reaperName:
		runtime.LockOSThread() // the kernel ends the command when the thread that started it ends
		os.Exit(reaperMain())
	case limiterName:
		runtime.LockOSThread()
		os.Exit(limiterMain(args[1:]))
	}
}
