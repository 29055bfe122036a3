//go:build unix

package access

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/arcpd/arcpd/arcp"
)

// rootFiles are Files on systems without O_PATH. It opens entries with os.Root.
//
//   - A directory on the path needs read permission.
//   - An entry that is replaced during a call may be opened, but is neither read nor changed.
//   - An existing file is not opened for writing, because its other names (hard links) cannot be excluded.
//     WriteFile replaces it.
//   - Rename moves within a directory only.
type rootFiles struct{ *Files }

// rootTarget is the resolved path of an operation.
type rootTarget struct {
	*rootEnd
	request
}

// find resolves a path within the job's authority. The caller must close the target.
func (f rootFiles) find(name string, in intent) (*rootTarget, error) {
	r, err := f.newRequest(name, in)
	if err != nil {
		return nil, err
	}
	tg := &rootTarget{rootWalk(r.asked, !in.nofollow, r.covers), r}
	if err := r.admit(&tg.walked, in); err != nil {
		tg.close()
		return nil, err
	}
	return tg, nil
}

// namedInfo is a FileInfo with the last name of the requested path.
type namedInfo struct {
	fs.FileInfo
	name string
}

func (n namedInfo) Name() string { return n.name }

func (f rootFiles) Stat(path string) (fs.FileInfo, error) {
	return f.stat(path, intent{op: "stat", namespaces: reading})
}

func (f rootFiles) stat(name string, in intent) (fs.FileInfo, error) {
	t, err := f.find(name, in)
	if err != nil {
		return nil, err
	}
	defer t.close()
	return namedInfo{t.info, path.Base(t.asked)}, nil
}

func (f rootFiles) OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	ns, err := namespaces(path, flag)
	if err != nil {
		return nil, err
	}
	t, err := f.find(path, intent{op: "open", namespaces: ns, create: flag&os.O_CREATE != 0})
	if err != nil {
		return nil, err
	}
	defer t.close()
	if len(t.lost) > 1 || t.name == "." {
		return nil, t.fail(cmp.Or(t.err, error(syscall.EISDIR)))
	}
	if t.missing() {
		file, err := t.dir.OpenFile(t.name, openFlags|flag&^os.O_TRUNC|os.O_EXCL, perm.Perm())
		return file, t.fail(cause(err))
	}
	if flag&os.O_EXCL != 0 {
		return nil, t.fail(syscall.EEXIST)
	}
	if err := t.regular(t.info); err != nil {
		return nil, err
	}
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return nil, arcp.Errorf(arcp.CodeUnimplemented, "%s exists, and this system cannot exclude that it has other names (hard links): replace it with WriteFile", t.asked)
	}
	return t.open(flag)
}

// openFlags are the flags for opening a file. A fifo must not block the tool, and a terminal must not become the
// controlling terminal of the runtime.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// open opens the regular file for reading.
func (tg *rootTarget) open(flag int) (*os.File, error) {
	file, err := tg.dir.OpenFile(tg.name, openFlags|flag, 0)
	if err != nil {
		return nil, tg.fail(cause(err))
	}
	info, err := file.Stat()
	if err == nil && os.SameFile(info, tg.info) && info.Mode().IsRegular() {
		return file, nil
	}
	_ = file.Close()                   // it was not read
	return nil, tg.fail(syscall.EBUSY) // the file was replaced meanwhile
}

// regular returns an error unless the file is a regular file.
func (tg *rootTarget) regular(info fs.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return tg.fail(syscall.EISDIR)
	}
	return tg.refuse(notRegular(tg.asked))
}

func (f rootFiles) ReadDir(path string) ([]fs.DirEntry, error) {
	t, err := f.find(path, intent{op: "readdir", namespaces: reading})
	if err != nil {
		return nil, err
	}
	defer t.close()
	if !t.info.IsDir() {
		return nil, t.fail(syscall.ENOTDIR)
	}
	sub, err := openSame(t.dir, t.name, t.info)
	if err != nil {
		return nil, t.fail(err)
	}
	defer closeRoot(sub)
	dir, err := sub.Open(".")
	if err != nil {
		return nil, t.fail(cause(err))
	}
	defer dir.Close()
	list, err := dir.ReadDir(MaxEntries + 1)
	if err != nil && err != io.EOF {
		return nil, t.fail(cause(err))
	}
	if len(list) > MaxEntries {
		return nil, tooLarge(t.asked, MaxEntries)
	}
	return f.entries(t.asked, list), nil
}

func (f rootFiles) entries(dir string, list []fs.DirEntry) []fs.DirEntry {
	for i, e := range list {
		list[i] = rootEntry{e, f, path.Join(dir, e.Name())}
	}
	sortByName(list)
	return list
}

// rootEntry is an entry of a directory. Its Info checks the authority.
type rootEntry struct {
	fs.DirEntry
	files rootFiles
	path  string
}

func (e rootEntry) Info() (fs.FileInfo, error) {
	return e.files.stat(e.path, intent{op: "lstat", namespaces: reading, nofollow: true})
}

func (e rootEntry) String() string { return fs.FormatDirEntry(e) }

func (f rootFiles) WriteFile(path string, data []byte, perm fs.FileMode) error {
	t, err := f.find(path, intent{op: "write", namespaces: writing, create: true})
	if err != nil {
		return err
	}
	defer t.close()
	switch {
	case len(t.lost) > 1:
		return t.fail(t.err)
	case t.err == nil:
		if err := t.regular(t.info); err != nil {
			return err
		}
	}
	return t.fail(cause(t.replace(data, perm)))
}

// replace writes a new file in the same directory and renames it.
func (tg *rootTarget) replace(data []byte, perm fs.FileMode) (err error) {
	temp := ".arcp-" + rand.Text()
	file, err := tg.dir.OpenFile(temp, openFlags|os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm.Perm())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tg.dir.Remove(temp) // the first error is more precise
		}
	}()
	if tg.err == nil {
		err = file.Chmod(tg.info.Mode().Perm())
	}
	if err == nil {
		_, err = file.Write(data)
	}
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return renameIn(tg.dir, temp, tg.name)
}

// renameIn renames an entry of a directory.
func renameIn(dir *os.Root, from, to string) error {
	err := dir.Rename(from, to)
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}

func (f rootFiles) Mkdir(path string, perm fs.FileMode) error {
	t, err := f.find(path, intent{op: "mkdir", namespaces: writing, nofollow: true, create: true})
	if err != nil {
		return err
	}
	defer t.close()
	switch {
	case t.err == nil:
		return t.fail(syscall.EEXIST)
	case !t.missing():
		return t.fail(t.err)
	}
	return t.fail(cause(t.dir.Mkdir(t.name, perm.Perm())))
}

func (f rootFiles) MkdirAll(path string, perm fs.FileMode) error {
	t, err := f.find(path, intent{op: "mkdir", namespaces: writing, create: true})
	if err != nil {
		return err
	}
	defer t.close()
	if t.err == nil {
		if !t.info.IsDir() {
			return t.fail(syscall.ENOTDIR)
		}
		return nil
	}
	have := len(t.names) - len(t.lost)
	for n := have + 1; n < len(t.names); n++ {
		if err := t.covers(join(t.names[:n])); err != nil {
			return err
		}
	}
	return t.makeLost(perm)
}

// makeLost creates the missing directories of the path.
func (tg *rootTarget) makeLost(perm fs.FileMode) error {
	for _, name := range tg.lost {
		err := tg.dir.Mkdir(name, perm.Perm())
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return tg.fail(cause(err))
		}
		info, err := tg.dir.Lstat(name)
		if err != nil {
			return tg.fail(cause(err))
		}
		if !info.IsDir() {
			return tg.fail(syscall.ENOTDIR)
		}
		sub, err := openSame(tg.dir, name, info)
		if err != nil {
			return tg.fail(err)
		}
		closeRoot(tg.dir)
		tg.dir = sub
	}
	return nil
}

func (f rootFiles) Remove(path string) error {
	t, err := f.find(path, intent{op: "remove", namespaces: writing, nofollow: true})
	if err != nil {
		return err
	}
	defer t.close()
	return t.fail(cause(t.dir.Remove(t.name)))
}

func (f rootFiles) Rename(oldPath, newPath string) error {
	from, err := f.find(oldPath, intent{op: "rename", namespaces: writing, nofollow: true})
	if err != nil {
		return err
	}
	defer from.close()
	to, err := f.find(newPath, intent{op: "rename", namespaces: writing, nofollow: true, create: true})
	if err != nil {
		return err
	}
	defer to.close()
	if len(to.lost) > 1 {
		return to.fail(to.err)
	}
	source, err := from.dir.Stat(".")
	if err != nil {
		return from.fail(cause(err))
	}
	target, err := to.dir.Stat(".")
	if err != nil {
		return to.fail(cause(err))
	}
	if !os.SameFile(source, target) {
		return arcp.Errorf(arcp.CodeUnimplemented, "%s is in another directory, and this system moves within a directory only: copy the file and remove it", to.asked)
	}
	return from.fail(renameIn(from.dir, from.name, to.name))
}
