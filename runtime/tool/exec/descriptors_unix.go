//go:build unix && !linux

package exec

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// CloseInherited marks all files but standard input, output and error close-on-exec, so that programs
// that this process starts do not inherit files of its parent. main calls it after Hook.
func CloseInherited() error {
	const first = 3
	open, err := os.ReadDir("/dev/fd")
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
