package storetest

import (
	"syscall"
	"time"
)

// processTime returns the processor time of this process.
func processTime() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, exited, kernel, user syscall.Filetime
	if syscall.GetProcessTimes(self, &created, &exited, &kernel, &user) != nil {
		return 0
	}
	return 100 * time.Duration(ticks(kernel)+ticks(user))
}

// ticks returns a duration in units of 100 ns.
func ticks(f syscall.Filetime) int64 { return int64(f.HighDateTime)<<32 | int64(f.LowDateTime) }
