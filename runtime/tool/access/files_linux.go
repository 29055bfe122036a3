package access

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/arcpd/arcpd/arcp"
	"golang.org/x/sys/unix"
)

const maxPath = 4096 // bytes of a path and of a symlink's target, as on Linux

// clean returns the path in the form for Check.
func clean(name string) (string, error) {
	switch {
	case name == "":
		return "", malformed(name, "the path is empty")
	case len(name) > maxPath:
		return "", malformed(name[:64]+"…", "the path is too long")
	case !isPlain(name):
		return "", malformed(name, "the path has control characters or is not UTF-8")
	case !path.IsAbs(name):
		return "", malformed(name, "the path is not absolute")
	}
	return path.Clean(name), nil
}

// refused returns an error that does not reveal the real path.
func refused(asked string) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, "%s leads out of what the job may touch", asked)
}

func notRegular(asked string) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, "%s is neither a regular file nor a directory", asked)
}

// target is the resolved path of an operation.
type target struct {
	*pathEnd
	op        string
	asked     string
	namespace string // the last namespace that the operation needs
	onRefusal RefusalFunc
}

func (tg *target) refuse(err *arcp.Error) error { return tg.onRefusal.refuse(tg.namespace, err) }

func (tg *target) fail(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errEscape):
		return tg.refuse(refused(tg.asked))
	}
	return &fs.PathError{Op: tg.op, Path: tg.asked, Err: err}
}

// missing reports whether only the last name of the path does not exist.
func (tg *target) missing() bool { return len(tg.lost) == 1 }

// intent is an operation before its path is resolved.
type intent struct {
	op         string
	namespaces []string
	nofollow   bool // the operation applies to a symlink at the end of the path, not to its target
	create     bool // names may be missing; target.lost lists them
}

var (
	reading = []string{arcp.NamespaceFSRead}
	writing = []string{arcp.NamespaceFSWrite}
	both    = []string{arcp.NamespaceFSRead, arcp.NamespaceFSWrite}
)

// find resolves a path within the job's authority. The caller must close the target.
func (f *Files) find(name string, in intent) (*target, error) {
	asked, err := clean(name)
	if err != nil {
		return nil, err
	}
	for _, ns := range in.namespaces {
		if err := f.check.ask(ns, asked); err != nil {
			return nil, err
		}
	}
	real := func(path string) error { return f.checkReal(in.namespaces, asked, path) }
	tg := &target{
		pathEnd:   walk(asked, !in.nofollow, real),
		op:        in.op,
		asked:     asked,
		namespace: in.namespaces[len(in.namespaces)-1],
		onRefusal: f.onRefusal,
	}
	if err := tg.admit(in, real); err != nil {
		tg.close()
		return nil, err
	}
	return tg, nil
}

// admit checks the authority over the real path. It returns the error of the walk only for a path within the
// authority.
func (tg *target) admit(in intent, check func(string) error) error {
	if wire, ok := errors.AsType[*arcp.Error](tg.err); ok {
		return wire
	}
	if errors.Is(tg.err, errEscape) {
		return tg.refuse(refused(tg.asked))
	}
	if real := tg.real(); real != tg.asked {
		if err := check(real); err != nil {
			return err
		}
	}
	if in.create && len(tg.lost) > 0 {
		return nil
	}
	return tg.fail(tg.err)
}

// checkReal checks the authority over the real path. A refusal does not reveal the path.
func (f *Files) checkReal(namespaces []string, asked, real string) error {
	if !isPlain(real) {
		return refused(asked)
	}
	for _, ns := range namespaces {
		err := f.check.ask(ns, real)
		if err == nil {
			continue
		}
		wire, ok := errors.AsType[*arcp.Error](err)
		if ok && (wire.Code == arcp.CodePermissionDenied || wire.Code == arcp.CodeInvalidArgument) {
			return refused(asked)
		}
		return err // the end of the lease or the budget
	}
	return nil
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

// Open opens a regular file for reading. The job needs fs.read.
func (f *Files) Open(path string) (*os.File, error) {
	return f.OpenFile(path, os.O_RDONLY, 0)
}

// ReadFile returns the content of a file. The job needs fs.read. The error is RESOURCE_EXHAUSTED for more than limit
// bytes.
func (f *Files) ReadFile(path string, limit int64) ([]byte, error) {
	file, err := f.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, max(limit, 0)))
	if err != nil {
		return nil, err
	}
	if n, err := file.Read(make([]byte, 1)); n > 0 {
		return nil, tooLarge(file.Name(), limit)
	} else if err != io.EOF {
		return nil, err
	}
	return data, nil
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

// The flags that OpenFile supports.
const allFlags = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL | os.O_SYNC | os.O_TRUNC

// namespaces returns the namespaces that OpenFile needs for the flags.
func namespaces(path string, flag int) ([]string, error) {
	if flag&^allFlags != 0 {
		return nil, malformed(path, "this flag is not supported")
	}
	mode := flag & (os.O_WRONLY | os.O_RDWR)
	changes := flag & (os.O_CREATE | os.O_TRUNC | os.O_APPEND | os.O_EXCL)
	switch {
	case mode == os.O_WRONLY:
		return writing, nil
	case mode == os.O_RDWR:
		return both, nil
	case mode == os.O_RDONLY && changes == 0:
		return reading, nil
	}
	return nil, malformed(path, "a file that is only read is not created or changed")
}
