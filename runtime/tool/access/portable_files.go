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

	"github.com/arcpd/arcpd/arcp"
	"golang.org/x/sys/unix"
)

// portableFiles are Files on systems without O_PATH.
//
//   - A directory on the path needs read permission.
//   - An entry that is replaced during a call may be opened, but is neither read nor changed.
//   - An existing file is not opened for writing, because its other names (hard links) cannot be excluded.
//     WriteFile replaces it.
type portableFiles struct{ *Files }

// portableTarget is the resolved path of an operation.
type portableTarget struct {
	*portableEnd
	request
}

// find resolves a path within the job's authority. The caller must close the target.
func (f portableFiles) find(name string, in intent) (*portableTarget, error) {
	r, err := f.newRequest(name, in)
	if err != nil {
		return nil, err
	}
	tg := &portableTarget{portableWalk(r.asked, !in.nofollow, r.covers), r}
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

func (f portableFiles) Stat(path string) (fs.FileInfo, error) {
	return f.stat(path, intent{op: "stat", namespaces: reading})
}

func (f portableFiles) stat(name string, in intent) (fs.FileInfo, error) {
	t, err := f.find(name, in)
	if err != nil {
		return nil, err
	}
	defer t.close()
	return namedInfo{t.info, path.Base(t.asked)}, nil
}

func (f portableFiles) OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
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
		return nil, t.fail(cmp.Or(t.err, error(unix.EISDIR)))
	}
	if t.missing() {
		file, err := t.dir.openFile(t.name, flag&^os.O_TRUNC|os.O_EXCL, perm, t.asked)
		return file, t.fail(err)
	}
	if flag&os.O_EXCL != 0 {
		return nil, t.fail(unix.EEXIST)
	}
	if err := t.regular(t.info); err != nil {
		return nil, err
	}
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return nil, arcp.Errorf(arcp.CodeUnimplemented, "%s exists, and this system cannot exclude that it has other names (hard links): replace it with WriteFile", t.asked)
	}
	return t.open(flag)
}

// open opens the regular file for reading.
func (tg *portableTarget) open(flag int) (*os.File, error) {
	fd, err := tg.dir.open(tg.name, flag, 0)
	if err != nil {
		return nil, tg.fail(err)
	}
	if !tg.info.isOpenAs(fd) { // the file was replaced meanwhile
		_ = unix.Close(fd) // it was not read
		return nil, tg.fail(unix.EBUSY)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd) // it was not read
		return nil, tg.fail(err)
	}
	return os.NewFile(uintptr(fd), tg.asked), nil
}

// regular returns an error unless the file is a regular file.
func (tg *portableTarget) regular(info *statInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return tg.fail(unix.EISDIR)
	}
	return tg.refuse(notRegular(tg.asked))
}

func (f portableFiles) ReadDir(path string) ([]fs.DirEntry, error) {
	t, err := f.find(path, intent{op: "readdir", namespaces: reading})
	if err != nil {
		return nil, err
	}
	defer t.close()
	if !t.info.IsDir() {
		return nil, t.fail(unix.ENOTDIR)
	}
	dir, err := t.dir.openFile(t.name, os.O_RDONLY|unix.O_DIRECTORY, 0, t.asked)
	if err != nil {
		return nil, t.fail(err)
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

func (f portableFiles) entries(dir string, list []fs.DirEntry) []fs.DirEntry {
	for i, e := range list {
		list[i] = portableEntry{e, f, path.Join(dir, e.Name())}
	}
	sortByName(list)
	return list
}

// portableEntry is an entry of a directory. Its Info checks the authority.
type portableEntry struct {
	fs.DirEntry
	files portableFiles
	path  string
}

func (e portableEntry) Info() (fs.FileInfo, error) {
	return e.files.stat(e.path, intent{op: "lstat", namespaces: reading, nofollow: true})
}

func (e portableEntry) String() string { return fs.FormatDirEntry(e) }

func (f portableFiles) WriteFile(path string, data []byte, perm fs.FileMode) error {
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
func (tg *portableTarget) replace(data []byte, perm fs.FileMode) (err error) {
	temp := ".arcp-" + rand.Text()
	file, err := tg.dir.openFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm, tg.asked)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(tg.dir.fd, temp, 0) // the first error is more precise
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
	return unix.Renameat(tg.dir.fd, temp, tg.dir.fd, tg.name)
}

func (f portableFiles) Mkdir(path string, perm fs.FileMode) error {
	t, err := f.find(path, intent{op: "mkdir", namespaces: writing, nofollow: true, create: true})
	if err != nil {
		return err
	}
	defer t.close()
	switch {
	case t.err == nil:
		return t.fail(unix.EEXIST)
	case !t.missing():
		return t.fail(t.err)
	}
	return t.fail(t.dir.mkdir(t.name, perm))
}

func (f portableFiles) MkdirAll(path string, perm fs.FileMode) error {
	t, err := f.find(path, intent{op: "mkdir", namespaces: writing, create: true})
	if err != nil {
		return err
	}
	defer t.close()
	if t.err == nil {
		if !t.info.IsDir() {
			return t.fail(unix.ENOTDIR)
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
func (tg *portableTarget) makeLost(perm fs.FileMode) error {
	for _, name := range tg.lost {
		err := tg.dir.mkdir(name, perm)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return tg.fail(err)
		}
		sub, err := tg.dir.openDirectory(name)
		if err != nil {
			return tg.fail(err)
		}
		closeDirectory(tg.dir)
		tg.dir = sub
	}
	return nil
}

func (f portableFiles) Remove(path string) error {
	t, err := f.find(path, intent{op: "remove", namespaces: writing, nofollow: true})
	if err != nil {
		return err
	}
	defer t.close()
	flags := 0
	if t.info.IsDir() {
		flags = unix.AT_REMOVEDIR
	}
	return t.fail(unix.Unlinkat(t.dir.fd, t.name, flags))
}

func (f portableFiles) Rename(oldPath, newPath string) error {
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
	return from.fail(unix.Renameat(from.dir.fd, from.name, to.dir.fd, to.name))
}
