// Package osfile has the operations on files that differ between operating systems.
package osfile

import "io/fs"

// Shared reports whether the permission bits let other users read or write a file. Windows has access control
// lists instead of permission bits. They are not examined: there Shared returns false.
func Shared(info fs.FileInfo) bool { return hasBits && info.Mode().Perm()&0o077 != 0 }
