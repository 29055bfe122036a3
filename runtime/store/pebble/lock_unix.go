//go:build unix

package pebble

import "syscall"

// heldErrors are the errors of a lock that another process holds.
var heldErrors = []syscall.Errno{syscall.EAGAIN, syscall.EACCES}
