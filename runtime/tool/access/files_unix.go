//go:build unix && !linux

package access

import (
	"io/fs"
	"os"
)

// Stat describes a file of any kind. The job needs fs.read.
func (f *Files) Stat(path string) (fs.FileInfo, error) { return portableFiles{f}.Stat(path) }

// OpenFile opens a regular file for reading, or creates a file. The job needs fs.read for O_RDONLY, fs.write for
// O_WRONLY, and both for O_RDWR. An existing file that would be written is UNIMPLEMENTED.
func (f *Files) OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	return portableFiles{f}.OpenFile(path, flag, perm)
}

// ReadDir lists at most MaxEntries of a directory, sorted by name. The job needs fs.read of the directory. Info of
// an entry needs fs.read of the entry.
func (f *Files) ReadDir(path string) ([]fs.DirEntry, error) { return portableFiles{f}.ReadDir(path) }

// WriteFile replaces the content of a file atomically, or creates the file with perm. The job needs fs.write.
func (f *Files) WriteFile(path string, data []byte, perm fs.FileMode) error {
	return portableFiles{f}.WriteFile(path, data, perm)
}

// Mkdir creates a directory. The job needs fs.write.
func (f *Files) Mkdir(path string, perm fs.FileMode) error { return portableFiles{f}.Mkdir(path, perm) }

// MkdirAll creates a directory and its missing parents. The job needs fs.write of path and of each directory that
// MkdirAll creates.
func (f *Files) MkdirAll(path string, perm fs.FileMode) error {
	return portableFiles{f}.MkdirAll(path, perm)
}

// Remove removes a file, a symlink (not its target) or an empty directory. The job needs fs.write.
func (f *Files) Remove(path string) error { return portableFiles{f}.Remove(path) }

// Rename moves an entry, and replaces an existing target as rename(2) does. The job needs fs.write of both paths.
func (f *Files) Rename(oldPath, newPath string) error {
	return portableFiles{f}.Rename(oldPath, newPath)
}
