package exec

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// CloseInherited marks all files but standard input, output and error close-on-exec, so that programs
// that this process starts do not inherit files of its parent. main calls it after Hook.
func CloseInherited() error {
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
