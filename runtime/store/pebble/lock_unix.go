//go:build unix

package pebble

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// heldErrors are the errors of a lock that another process holds.
var heldErrors = []syscall.Errno{syscall.EAGAIN, syscall.EACCES}

// lockShared locks an existing file for reading. It does not see a lock of this process.
func lockShared(name string) (io.Closer, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	lock := syscall.Flock_t{Type: syscall.F_RDLCK, Whence: io.SeekStart} // the whole file
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
