//go:build unix

package exec

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName returns the name of a signal, such as SIGKILL.
func signalName(s int) string { return unix.SignalName(syscall.Signal(s)) }

// boundText returns the end of an error message about the bound that a signal enforces, or "".
func boundText(s int) string {
	switch syscall.Signal(s) {
	case syscall.SIGXCPU:
		return ": it took more than limits.cpu_seconds"
	case syscall.SIGXFSZ:
		return ": it wrote a file larger than limits.file_size"
	}
	return ""
}
