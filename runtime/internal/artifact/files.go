package artifact

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/osfile"
)

// unfinished is the suffix of the file of content that is being written.
const unfinished = ".part"

// Files is a Content in a directory. Each artifact is a file with its id as name.
type Files struct {
	fs          fileSystem
	renamesOpen bool // a file that is open can get another name
}

// OpenFiles returns the Files in a directory, which it creates with mode 0700 unless it exists. No
// other process may use the directory.
func OpenFiles(dir string) (*Files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := osfile.SyncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	return &Files{directory(dir), osfile.RenamesOpen}, nil
}

// Create implements Content.
func (f *Files) Create(_ string, id arcp.ArtifactID) (Writer, error) {
	file, err := f.fs.Create(string(id) + unfinished)
	if err != nil {
		return nil, err
	}
	return &fileWriter{file, f, string(id)}, nil
}

// Open implements Content.
func (f *Files) Open(id arcp.ArtifactID) (io.ReadSeekCloser, error) { return f.fs.Open(string(id)) }

// Remove implements Content. It also removes unfinished content that could not be removed before. A
// crash may bring the file back, without its row: Store.Load removes it then.
func (f *Files) Remove(id arcp.ArtifactID) error {
	for _, name := range []string{string(id), string(id) + unfinished} {
		if err := f.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Recover implements Content.
func (f *Files) Recover() ([]arcp.ArtifactID, error) {
	names, err := f.fs.Names()
	if err != nil {
		return nil, err
	}
	var ids []arcp.ArtifactID
	for _, name := range names {
		switch id := arcp.ArtifactID(name); {
		case strings.HasSuffix(name, unfinished):
			if err := f.fs.Remove(name); err != nil {
				return nil, err
			}
		case id.Valid():
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// fileWriter is the Writer of Files. It writes a file under a temporary name.
type fileWriter struct {
	file
	files *Files
	id    string
}

// Commit gives the file its name before both become durable, where a file that is open can get one: many
// file systems then make both durable at once. After a crash in between, the file has no row, so recovery
// removes it.
func (w *fileWriter) Commit() error {
	name, err := w.id+unfinished, error(nil)
	rename := func() {
		if err == nil && name != w.id {
			if err = w.files.fs.Rename(name, w.id); err == nil {
				name = w.id
			}
		}
	}
	if w.files.renamesOpen {
		rename()
	}
	if err == nil {
		err = w.Sync()
	}
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	rename()
	if err == nil {
		err = w.files.fs.Sync()
	}
	if err != nil { // the name may not survive a crash
		return errors.Join(err, w.files.fs.Remove(name))
	}
	return nil
}

func (w *fileWriter) Abort() {
	_ = w.Close()                            // the file is removed
	_ = w.files.fs.Remove(w.id + unfinished) // or else by Recover
}

// fileSystem has the operations on the files of one directory. Tests let each of them fail.
type fileSystem interface {
	Create(name string) (file, error)
	Open(name string) (io.ReadSeekCloser, error)
	Rename(from, to string) error
	Remove(name string) error
	Names() ([]string, error)
	Sync() error // makes the names durable
}

// file is a file that is written.
type file interface {
	io.WriteCloser
	Sync() error
}

// directory is the fileSystem of a directory of the operating system.
type directory string

func (d directory) path(name string) string { return filepath.Join(string(d), name) }

func (d directory) Create(name string) (file, error) {
	return os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (d directory) Open(name string) (io.ReadSeekCloser, error) { return os.Open(d.path(name)) }
func (d directory) Rename(from, to string) error                { return os.Rename(d.path(from), d.path(to)) }
func (d directory) Remove(name string) error                    { return os.Remove(d.path(name)) }
func (d directory) Sync() error                                 { return osfile.SyncDir(string(d)) }

func (d directory) Names() (names []string, err error) {
	f, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	names, err = f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}
