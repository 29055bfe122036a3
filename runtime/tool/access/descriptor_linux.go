package access

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Descriptors are opened with O_PATH: they refer to a path without opening the file. A device has no side
// effect, a fifo does not block, and a directory needs no read permission. os.Root opens directories for
// reading, and blocks on a fifo that has replaced a directory.
const (
	oPath      = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	oDirectory = oPath | unix.O_DIRECTORY
	// oOpen are the flags for opening the file itself. A fifo must not block the tool, and a
	// terminal must not become the controlling terminal of the runtime.
	oOpen = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
)

const noFD = -1

func openat(dir int, name string, flags int, perm uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, perm)
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return noFD, err
		}
	}
}

func openSlash() (int, error) { return openat(unix.AT_FDCWD, "/", oDirectory, 0) }

func closeFD(fd int) {
	if fd != noFD {
		_ = unix.Close(fd) // nothing was written through it
	}
}

func fstat(fd int) (st unix.Stat_t, err error) {
	for {
		if err = unix.Fstat(fd, &st); !errors.Is(err, unix.EINTR) {
			return st, err
		}
	}
}

func lstatat(dir int, name string) (st unix.Stat_t, err error) {
	for {
		if err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.EINTR) {
			return st, err
		}
	}
}

// readlink returns the target of the symlink of fd.
func readlink(fd int) (string, error) {
	var buf [maxPath + 1]byte
	n, err := unix.Readlinkat(fd, "", buf[:])
	if err != nil {
		return "", err
	}
	if n > maxPath {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

// currentPath returns the current path of fd. It differs from the opened path if the entry was moved or
// removed.
func currentPath(fd int) (string, error) { return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) }

// onProc reports whether fd is on a proc file system, whose links do not lead to the path in their text. If the
// file system is unknown, it returns true.
func onProc(fd int) bool {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return err != nil || st.Type == unix.PROC_SUPER_MAGIC
}

func kind(st unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }
