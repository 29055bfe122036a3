//go:build unix

package access

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// directory is an open directory. Its methods do not follow symbolic links, and a fifo does not block them. os.Root
// follows links within a directory, and blocks on a fifo that has replaced a directory.
type directory struct{ fd int }

// portableOpen are the flags for opening an entry. A terminal must not become the controlling terminal of the
// runtime.
const portableOpen = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

func openSlashDirectory() (*directory, error) {
	return (&directory{unix.AT_FDCWD}).openDirectory("/")
}

// retryEINTR repeats a system call that a signal interrupted.
func retryEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (d *directory) open(name string, flags int, perm fs.FileMode) (fd int, err error) {
	err = retryEINTR(func() (err error) {
		fd, err = unix.Openat(d.fd, name, portableOpen|flags, uint32(perm.Perm()))
		return err
	})
	return fd, err
}

// openDirectory opens a directory, which needs read permission.
func (d *directory) openDirectory(name string) (*directory, error) {
	fd, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &directory{fd}, nil
}

// openFile opens an entry. path is the name of the file in errors.
func (d *directory) openFile(name string, flags int, perm fs.FileMode, path string) (*os.File, error) {
	fd, err := d.open(name, flags, perm)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// lstat describes an entry.
func (d *directory) lstat(name string) (*statInfo, error) {
	info := &statInfo{name: name}
	err := retryEINTR(func() error { return unix.Fstatat(d.fd, name, &info.st, unix.AT_SYMLINK_NOFOLLOW) })
	return info, err
}

func (d *directory) readlink(name string) (string, error) {
	var buf [maxPath + 1]byte
	n, err := unix.Readlinkat(d.fd, name, buf[:])
	if err != nil {
		return "", err
	}
	if n > maxPath {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

func (d *directory) mkdir(name string, perm fs.FileMode) error {
	return unix.Mkdirat(d.fd, name, uint32(perm.Perm()))
}

// closeDirectory closes a directory, unless it is nil.
func closeDirectory(d *directory) {
	if d != nil {
		_ = unix.Close(d.fd) // nothing was written through it
	}
}

// statInfo is a FileInfo of lstat.
type statInfo struct {
	name string
	st   unix.Stat_t
}

func (i *statInfo) Name() string       { return i.name }
func (i *statInfo) Size() int64        { return i.st.Size }
func (i *statInfo) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i *statInfo) IsDir() bool        { return i.Mode().IsDir() }
func (i *statInfo) Sys() any           { return &i.st }

// modeTypes are the types of files.
var modeTypes = map[uint32]fs.FileMode{
	unix.S_IFREG:  0,
	unix.S_IFDIR:  fs.ModeDir,
	unix.S_IFLNK:  fs.ModeSymlink,
	unix.S_IFIFO:  fs.ModeNamedPipe,
	unix.S_IFSOCK: fs.ModeSocket,
	unix.S_IFBLK:  fs.ModeDevice,
	unix.S_IFCHR:  fs.ModeDevice | fs.ModeCharDevice,
}

// Mode returns the permission bits and the type of the file.
func (i *statInfo) Mode() fs.FileMode {
	mode := uint32(i.st.Mode) //nolint:unconvert // it has 16 bits on macOS
	kind, ok := modeTypes[mode&unix.S_IFMT]
	if !ok {
		kind = fs.ModeIrregular
	}
	for bit, special := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if mode&bit != 0 {
			kind |= special
		}
	}
	return kind | fs.FileMode(mode).Perm()
}

// isOpenAs reports whether fd is the file of the information.
func (i *statInfo) isOpenAs(fd int) bool {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstat(fd, &st) })
	return err == nil && st.Dev == i.st.Dev && st.Ino == i.st.Ino
}
