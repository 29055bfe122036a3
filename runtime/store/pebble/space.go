package pebble

import "github.com/cockroachdb/pebble/v2/vfs"

// FreeSpace is how many bytes the file system of a directory has left for this
// process.
func FreeSpace(dir string) (uint64, error) {
	u, err := vfs.Default.GetDiskUsage(dir)
	return u.AvailBytes, err
}
