package pebble

import "github.com/cockroachdb/pebble/v2/vfs"

// FreeSpace returns the bytes that this process may still write to the file system of a
// directory.
func FreeSpace(dir string) (uint64, error) {
	u, err := vfs.Default.GetDiskUsage(dir)
	return u.AvailBytes, err
}
