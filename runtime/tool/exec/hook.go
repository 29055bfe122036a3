package exec

import "os"

// hooked is set by Hook, before other goroutines run.
var hooked bool

// Hook runs the reaper or the limiter in a process that this package has started for it, and then exits. In any
// other process, and on other systems than Linux, it returns. A program that uses this package calls Hook at the beginning of main,
// before it starts goroutines.
func Hook() {
	hooked = true
	if len(os.Args) == 0 {
		return
	}
	runHook(os.Args)
}
