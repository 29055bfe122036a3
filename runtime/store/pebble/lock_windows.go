package pebble

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// heldErrors are the errors of a lock that another process holds.
var heldErrors = []syscall.Errno{windows.ERROR_SHARING_VIOLATION}
