package access

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"golang.org/x/sys/unix"
)

// maxTries bounds how often an operation starts again because a file was put in
// the place of another meanwhile.
const maxTries = 16

var errAgain = errors.New("the file was replaced meanwhile")

// OpenFile opens a regular file. O_RDONLY needs fs.read, O_WRONLY fs.write, O_RDWR both. A
// file opened for reading is not created or changed. Only the nine permission bits of perm are
// used.
//
// An existing file with more than one name (hard link) is not opened for writing: its other
// names may be outside of the job's authority. Needs /proc.
func (f *Files) OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	ns, err := namespaces(path, flag)
	if err != nil {
		return nil, err
	}
	t, err := f.find(path, intent{op: "open", namespaces: ns, create: flag&os.O_CREATE != 0})
	if err != nil {
		return nil, err
	}
	defer t.close()
	return t.open(flag, perm)
}

// Create makes or empties a file for writing. It needs fs.write only: unlike with os.Create,
// the file cannot be read.
func (f *Files) Create(path string) (*os.File, error) {
	return f.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
}

func (t *target) open(flag int, perm fs.FileMode) (*os.File, error) {
	if len(t.lost) > 1 || t.name == "." {
		return nil, t.fail(cmp.Or(t.err, error(unix.EISDIR)))
	}
	for range maxTries {
		fd, err := t.try(flag, perm)
		switch {
		case errors.Is(err, errAgain):
			continue
		case err != nil:
			return nil, err
		}
		if err := unix.SetNonblock(fd, false); err != nil {
			closeFD(fd)
			return nil, t.fail(err)
		}
		return os.NewFile(uintptr(fd), t.asked), nil
	}
	return nil, t.fail(unix.EBUSY)
}

// try opens or creates the file at t. It returns errAgain if the file has changed meanwhile.
func (t *target) try(flag int, perm fs.FileMode) (int, error) {
	st, err := lstatat(t.dir, t.name)
	switch {
	case errors.Is(err, unix.ENOENT) && flag&os.O_CREATE != 0:
		return t.create(flag, perm)
	case err != nil:
		return noFD, t.fail(err)
	case flag&os.O_EXCL != 0:
		return noFD, t.fail(unix.EEXIST)
	}
	if err := t.regular(st); err != nil {
		return noFD, err
	}
	// Nothing is truncated before it is known to be the right thing.
	fd, err := openat(t.dir, t.name, oOpen|flag&^(os.O_CREATE|os.O_EXCL|os.O_TRUNC), 0)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO):
		return noFD, errAgain // it is gone, or a link or a fifo now
	case err != nil:
		return noFD, t.fail(err)
	}
	if err := t.vet(fd, flag); err != nil {
		closeFD(fd)
		return noFD, err
	}
	return fd, nil
}

func (t *target) create(flag int, perm fs.FileMode) (int, error) {
	fd, err := openat(t.dir, t.name, oOpen|flag&^os.O_TRUNC|os.O_EXCL, uint32(perm.Perm()))
	if errors.Is(err, unix.EEXIST) && flag&os.O_EXCL == 0 {
		return noFD, errAgain
	}
	return fd, t.fail(err)
}

// regular refuses kinds of files that are not opened.
func (t *target) regular(st unix.Stat_t) error {
	switch kind(st) {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return t.fail(unix.EISDIR)
	case unix.S_IFLNK: // it was none when the path was resolved
		return t.refuse(refused(t.asked))
	}
	return t.refuse(unusual(t.asked))
}

// vet checks the opened file, and empties it if the flags require that.
func (t *target) vet(fd, flag int) error {
	st, err := fstat(fd)
	if err != nil {
		return t.fail(err)
	}
	if err := t.regular(st); err != nil || flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return err
	}
	if err := t.onlyName(fd, st); err != nil {
		return err
	}
	if flag&os.O_TRUNC == 0 {
		return nil
	}
	return t.fail(unix.Ftruncate(fd, 0))
}

// onlyName refuses an open file that has another name than the one it was opened by. The link
// count alone is not enough: the first name may be gone and another name left.
//
// So the name must still exist after the count. The kernel reports the directory entry by
// which fd was opened, and a removed entry never returns. A removal lowers the count before it
// removes the entry, but it holds the directory's lock, for which the rename waits, so this
// order has no effect.
func (t *target) onlyName(fd int, st unix.Stat_t) error {
	if st.Nlink > 1 {
		return t.refuse(arcp.Errorf(arcp.CodePermissionDenied, "%s has other names (hard links), which the job may not be allowed to write", t.asked))
	}
	err := unix.Renameat(t.dir, t.name, t.dir, t.name)
	if errors.Is(err, unix.ENOENT) {
		return errAgain
	}
	if err != nil {
		return t.fail(err)
	}
	at, err := whereIs(fd)
	if err != nil {
		return arcp.Errorf(arcp.CodeUnavailable, "%s: an existing file is not written where /proc is missing", t.asked)
	}
	if at != t.real() {
		return errAgain
	}
	return nil
}

// WriteFile replaces the content of a file, or creates it with perm: completely or not at all,
// also if the machine stops meanwhile. It needs fs.write.
//
// It writes a new file .arcp-… in the same directory and renames it. The permission bits of an
// existing file stay; its owner and its other names (hard links) do not.
func (f *Files) WriteFile(path string, data []byte, perm fs.FileMode) error {
	t, err := f.find(path, intent{op: "write", namespaces: writing, create: true})
	if err != nil {
		return err
	}
	defer t.close()
	switch {
	case len(t.lost) > 1:
		return t.fail(t.err)
	case t.err == nil:
		if err := t.regular(t.stat); err != nil {
			return err
		}
	}
	return t.fail(t.replace(data, perm))
}

func (t *target) replace(data []byte, perm fs.FileMode) (err error) {
	temp := ".arcp-" + rand.Text()
	fd, err := openat(t.dir, temp, oOpen|unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, uint32(perm.Perm()))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(t.dir, temp, 0) // the first error is more precise
		}
	}()
	file := os.NewFile(uintptr(fd), t.asked)
	if err = t.fill(file, data); err != nil {
		_ = file.Close() // likewise
		return err
	}
	if err = file.Close(); err != nil {
		return cause(err)
	}
	return unix.Renameat(t.dir, temp, t.dir, t.name)
}

func (t *target) fill(file *os.File, data []byte) error {
	if t.err == nil {
		if err := file.Chmod(fs.FileMode(t.stat.Mode).Perm()); err != nil {
			return cause(err)
		}
	}
	if _, err := file.Write(data); err != nil {
		return cause(err)
	}
	return cause(file.Sync())
}

// cause returns the reason of an error without its place.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Mkdir makes a directory. Needs fs.write.
func (f *Files) Mkdir(path string, perm fs.FileMode) error {
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
	return t.fail(unix.Mkdirat(t.dir, t.name, uint32(perm.Perm())))
}

// MkdirAll makes a directory and those above it that are missing. Needs fs.write
// of path and of each directory it makes.
func (f *Files) MkdirAll(path string, perm fs.FileMode) error {
	t, err := f.find(path, intent{op: "mkdir", namespaces: writing, create: true})
	if err != nil {
		return err
	}
	defer t.close()
	if t.err == nil {
		if kind(t.stat) != unix.S_IFDIR {
			return t.fail(unix.ENOTDIR)
		}
		return nil
	}
	have := len(t.names) - len(t.lost)
	for n := have + 1; n < len(t.names); n++ {
		if err := f.checkReal(writing, t.asked, join(t.names[:n])); err != nil {
			return err
		}
	}
	return t.makeLost(perm)
}

// makeLost makes the missing directories, one in the other.
func (t *target) makeLost(perm fs.FileMode) error {
	for _, name := range t.lost {
		err := unix.Mkdirat(t.dir, name, uint32(perm.Perm()))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return t.fail(err)
		}
		fd, err := openat(t.dir, name, oDirectory, 0)
		if err != nil {
			return t.fail(err)
		}
		closeFD(t.dir)
		t.dir = fd
	}
	return nil
}

// Remove removes a file, a symlink (not its target) or an empty directory. It needs fs.write.
func (f *Files) Remove(path string) error {
	t, err := f.find(path, intent{op: "remove", namespaces: writing, nofollow: true})
	if err != nil {
		return err
	}
	defer t.close()
	flags := 0
	if kind(t.stat) == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
	}
	return t.fail(unix.Unlinkat(t.dir, t.name, flags))
}

// Rename moves a file, a symlink (not its target) or a directory, and replaces the same
// targets as rename(2). It needs fs.write of both paths. The content of a directory moves with
// it, and becomes readable if the job may read the new place.
func (f *Files) Rename(oldPath, newPath string) error {
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
	return from.fail(unix.Renameat(from.dir, from.name, to.dir, to.name))
}

func sortByName(list []fs.DirEntry) {
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
}
