// Package osfile has the operations on files that differ between operating systems, and the replacement of a file.
package osfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Shared reports whether the permission bits let other users read or write a file. Windows has access control
// lists instead of permission bits. They are not examined: there Shared returns false.
func Shared(info fs.FileInfo) bool { return hasBits && info.Mode().Perm()&0o077 != 0 }

// Replace writes a file that only its owner can read, mode 0600. An existing file is replaced in one step: readers, and
// a start after a crash, find the old or the new content. The content is durable when Replace returns nil. After an error
// the file is as it was, unless the directory could not be synced.
func Replace(file string, content []byte) error {
	dir := filepath.Dir(file)
	temp, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return SyncDir(dir)
}
