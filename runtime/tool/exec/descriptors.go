package exec

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// KeepDescriptors has no program that this process starts inherit what it has itself
// inherited, beyond standard input, output and error. It belongs to the start of main,
// after Hook: whoever starts a server may leave files open that are not for commands.
func KeepDescriptors() error {
	const first = 3
	if unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	open, err := os.ReadDir("/proc/self/fd") // for kernels before 5.11
	if err != nil {
		return fmt.Errorf("list the open files: %w", err)
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}
