//go:build unix

package main

import "syscall"

// maxDescriptors returns the descriptor limit of this process, which the Go runtime has raised.
func maxDescriptors() (n int, ok bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0, false
	}
	return int(limit.Cur), true
}
