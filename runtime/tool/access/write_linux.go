package access

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"

	"github.com/arcpd/arcpd/arcp"
	"golang.org/x/sys/unix"
)

// maxTries bounds the attempts of an operation whose file is replaced meanwhile.
const maxTries = 16

var errAgain = errors.New("the file was replaced meanwhile")

// OpenFile opens a regular file. The job needs fs.read for O_RDONLY, fs.write for O_WRONLY, and both for O_RDWR. A
// file opened for reading is neither created nor changed. Only the nine permission bits of perm are
// used.
//
// An existing file with several names (hard links) is not opened for writing, because its other
// names may be outside of the job's authority. This check needs /proc.
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

func (tg *target) open(flag int, perm fs.FileMode) (*os.File, error) {
	if len(tg.lost) > 1 || tg.name == "." {
		return nil, tg.fail(cmp.Or(tg.err, error(unix.EISDIR)))
	}
	for range maxTries {
		fd, err := tg.try(flag, perm)
		switch {
		case errors.Is(err, errAgain):
			continue
		case err != nil:
			return nil, err
		}
		if err := unix.SetNonblock(fd, false); err != nil {
			closeFD(fd)
			return nil, tg.fail(err)
		}
		return os.NewFile(uintptr(fd), tg.asked), nil
	}
	return nil, tg.fail(unix.EBUSY)
}

// try opens or creates the file at t. It returns errAgain if the file was replaced meanwhile.
func (tg *target) try(flag int, perm fs.FileMode) (int, error) {
	st, err := lstatat(tg.dir, tg.name)
	switch {
	case errors.Is(err, unix.ENOENT) && flag&os.O_CREATE != 0:
		return tg.create(flag, perm)
	case err != nil:
		return noFD, tg.fail(err)
	case flag&os.O_EXCL != 0:
		return noFD, tg.fail(unix.EEXIST)
	}
	if err := tg.regular(st); err != nil {
		return noFD, err
	}
	// O_TRUNC would empty the file before verify.
	fd, err := openat(tg.dir, tg.name, oOpen|flag&^(os.O_CREATE|os.O_EXCL|os.O_TRUNC), 0)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO):
		return noFD, errAgain // the file was removed, or replaced by a link or a fifo
	case err != nil:
		return noFD, tg.fail(err)
	}
	if err := tg.verify(fd, flag); err != nil {
		closeFD(fd)
		return noFD, err
	}
	return fd, nil
}

func (tg *target) create(flag int, perm fs.FileMode) (int, error) {
	fd, err := openat(tg.dir, tg.name, oOpen|flag&^os.O_TRUNC|os.O_EXCL, uint32(perm.Perm()))
	if errors.Is(err, unix.EEXIST) && flag&os.O_EXCL == 0 {
		return noFD, errAgain
	}
	return fd, tg.fail(err)
}

// regular returns an error unless the file is a regular file.
func (tg *target) regular(st unix.Stat_t) error {
	switch kind(st) {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return tg.fail(unix.EISDIR)
	case unix.S_IFLNK: // the file was replaced by a link
		return tg.refuse(refused(tg.asked))
	}
	return tg.refuse(notRegular(tg.asked))
}

// verify checks the opened file, and empties the file if the flags require it.
func (tg *target) verify(fd, flag int) error {
	st, err := fstat(fd)
	if err != nil {
		return tg.fail(err)
	}
	if err := tg.regular(st); err != nil || flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return err
	}
	if err := tg.onlyName(fd, st); err != nil {
		return err
	}
	if flag&os.O_TRUNC == 0 {
		return nil
	}
	return tg.fail(unix.Ftruncate(fd, 0))
}

// onlyName returns an error if an open file has other names than the opened one. A link count of one is not enough:
// the opened name may have been removed.
//
// The opened name must therefore still exist after the count. The kernel reports the directory entry by
// which fd was opened, and a removed entry never returns. A removal lowers the count before it
// removes the entry. It holds the lock of the directory meanwhile, for which a rename waits, so this
// order has no effect.
func (tg *target) onlyName(fd int, st unix.Stat_t) error {
	if st.Nlink > 1 {
		return tg.refuse(arcp.Errorf(arcp.CodePermissionDenied, "%s has other names (hard links), which the job may not be allowed to write", tg.asked))
	}
	err := unix.Renameat(tg.dir, tg.name, tg.dir, tg.name)
	if errors.Is(err, unix.ENOENT) {
		return errAgain
	}
	if err != nil {
		return tg.fail(err)
	}
	at, err := currentPath(fd)
	if err != nil {
		return arcp.Errorf(arcp.CodeUnavailable, "%s: an existing file is not written where /proc is missing", tg.asked)
	}
	if at != tg.real() {
		return errAgain
	}
	return nil
}

// WriteFile replaces the content of a file, or creates the file with perm. The replacement is atomic, also if the
// machine stops. The job needs fs.write.
//
// WriteFile writes a new file .arcp-… in the same directory and renames it. The file keeps its permission
// bits, but not its owner and its other names (hard links).
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

func (tg *target) replace(data []byte, perm fs.FileMode) (err error) {
	temp := ".arcp-" + rand.Text()
	fd, err := openat(tg.dir, temp, oOpen|unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, uint32(perm.Perm()))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(tg.dir, temp, 0) // the first error is more precise
		}
	}()
	file := os.NewFile(uintptr(fd), tg.asked)
	if err = tg.fill(file, data); err != nil {
		_ = file.Close() // the first error is more precise
		return err
	}
	if err = file.Close(); err != nil {
		return cause(err)
	}
	return unix.Renameat(tg.dir, temp, tg.dir, tg.name)
}

func (tg *target) fill(file *os.File, data []byte) error {
	if tg.err == nil {
		if err := file.Chmod(fs.FileMode(tg.stat.Mode).Perm()); err != nil {
			return cause(err)
		}
	}
	if _, err := file.Write(data); err != nil {
		return cause(err)
	}
	return cause(file.Sync())
}

// Mkdir creates a directory. The job needs fs.write.
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

// MkdirAll creates a directory and its missing parents. The job needs fs.write of path and of each directory that
// MkdirAll creates.
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

// makeLost creates the missing directories of the path.
func (tg *target) makeLost(perm fs.FileMode) error {
	for _, name := range tg.lost {
		err := unix.Mkdirat(tg.dir, name, uint32(perm.Perm()))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return tg.fail(err)
		}
		fd, err := openat(tg.dir, name, oDirectory, 0)
		if err != nil {
			return tg.fail(err)
		}
		closeFD(tg.dir)
		tg.dir = fd
	}
	return nil
}

// Remove removes a file, a symlink (not its target) or an empty directory. The job needs fs.write.
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

// Rename moves a file, a symlink (not its target) or a directory, and replaces an existing target as rename(2) does. The
// job needs fs.write of both paths. The content of a moved directory is readable if the job may read
// the new path.
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
