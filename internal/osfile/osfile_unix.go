//go:build unix

package osfile

import (
	"errors"
	"os"
)

// hasBits reports whether the permission bits of a file are those of the file system.
const hasBits = true

// RenamesOpen reports whether a file that is open can get another name.
const RenamesOpen = true

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
