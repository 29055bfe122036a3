package pebble

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// heldErrors are the errors of a lock that another process holds.
var heldErrors = []syscall.Errno{windows.ERROR_SHARING_VIOLATION}

// lockShared opens an existing file for reading. A store cannot lock it as long as it is open.
func lockShared(name string) (io.Closer, error) {
	f, err := os.Open(name)
	if e, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(e, windows.ERROR_SHARING_VIOLATION) {
		return nil, e.Err
	}
	return f, err
}
