package access

import (
	"io/fs"
	"os"

	"github.com/arcpd/arcpd/arcp"
)

// errNoFiles is the error of each operation of Files.
var errNoFiles = arcp.Errorf(arcp.CodeUnimplemented, "the files of a lease are not opened on Windows, where a path cannot be checked against a lease; run the runtime or the worker on Linux or macOS")

// Stat returns an error with UNIMPLEMENTED.
func (f *Files) Stat(_ string) (fs.FileInfo, error) { return nil, errNoFiles }

// OpenFile returns an error with UNIMPLEMENTED.
func (f *Files) OpenFile(_ string, _ int, _ fs.FileMode) (*os.File, error) { return nil, errNoFiles }

// ReadDir returns an error with UNIMPLEMENTED.
func (f *Files) ReadDir(_ string) ([]fs.DirEntry, error) { return nil, errNoFiles }

// WriteFile returns an error with UNIMPLEMENTED.
func (f *Files) WriteFile(_ string, _ []byte, _ fs.FileMode) error { return errNoFiles }

// Mkdir returns an error with UNIMPLEMENTED.
func (f *Files) Mkdir(_ string, _ fs.FileMode) error { return errNoFiles }

// MkdirAll returns an error with UNIMPLEMENTED.
func (f *Files) MkdirAll(_ string, _ fs.FileMode) error { return errNoFiles }

// Remove returns an error with UNIMPLEMENTED.
func (f *Files) Remove(_ string) error { return errNoFiles }

// Rename returns an error with UNIMPLEMENTED.
func (f *Files) Rename(_ string, _ string) error { return errNoFiles }
