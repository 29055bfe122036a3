package access

import (
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// target is the resolved path of an operation.
type target struct {
	*pathEnd
	request
}

// find resolves a path within the job's authority. The caller must close the target.
func (f *Files) find(name string, in intent) (*target, error) {
	r, err := f.newRequest(name, in)
	if err != nil {
		return nil, err
	}
	tg := &target{walk(r.asked, !in.nofollow, r.covers), r}
	if err := r.admit(&tg.walked, in); err != nil {
		tg.close()
		return nil, err
	}
	return tg, nil
}

// Stat describes a file of any kind. The job needs fs.read.
func (f *Files) Stat(path string) (fs.FileInfo, error) {
	return f.stat(path, intent{op: "stat", namespaces: reading})
}

func (f *Files) stat(path string, in intent) (fs.FileInfo, error) {
	t, err := f.find(path, in)
	if err != nil {
		return nil, err
	}
	defer t.close()
	file := os.NewFile(uintptr(t.self), t.asked) // FileInfo.Name returns the last name of this path
	t.self = noFD
	defer file.Close()
	return file.Stat()
}

// ReadDir lists at most MaxEntries of a directory, sorted by name. The job needs fs.read of the directory, which covers the
// names of all entries. Info of an entry needs fs.read of the entry.
func (f *Files) ReadDir(path string) ([]fs.DirEntry, error) {
	t, err := f.find(path, intent{op: "readdir", namespaces: reading})
	if err != nil {
		return nil, err
	}
	defer t.close()
	if kind(t.stat) != unix.S_IFDIR {
		return nil, t.fail(unix.ENOTDIR)
	}
	fd, err := openat(t.self, ".", oOpen|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, t.fail(err)
	}
	dir := os.NewFile(uintptr(fd), t.asked)
	defer dir.Close()
	list, err := dir.ReadDir(MaxEntries + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(list) > MaxEntries {
		return nil, tooLarge(t.asked, MaxEntries)
	}
	return f.entries(t.asked, list), nil
}

func (f *Files) entries(dir string, list []fs.DirEntry) []fs.DirEntry {
	for i, e := range list {
		list[i] = entry{DirEntry: e, files: f, path: path.Join(dir, e.Name())}
	}
	sortByName(list)
	return list
}

// entry is an entry of a directory. Its Info checks the authority.
type entry struct {
	fs.DirEntry
	files *Files
	path  string
}

func (e entry) Info() (fs.FileInfo, error) {
	return e.files.stat(e.path, intent{op: "lstat", namespaces: reading, nofollow: true})
}

func (e entry) String() string { return fs.FormatDirEntry(e) }
