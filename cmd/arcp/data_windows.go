package main

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// errHeld is the error of lockDir if another process has the lock.
const errHeld = windows.ERROR_SHARING_VIOLATION

// ownedByUser returns true: each user of Windows has a temporary directory.
func ownedByUser(fs.FileInfo) bool { return true }

// lockDir locks a directory until the file is closed. It fails if another process has the lock. The lock is a file
// beside the directory, which Windows removes when it is closed.
func lockDir(path string) (*os.File, error) {
	name := path + ".lock"
	text, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	const notShared = 0
	h, err := windows.CreateFile(text, windows.GENERIC_READ|windows.GENERIC_WRITE, notShared, nil, windows.OPEN_ALWAYS,
		windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_DELETE_ON_CLOSE, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), name), nil
}
