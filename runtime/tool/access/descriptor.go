package access

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Descriptors here are made with O_PATH: they name a place and open nothing. No
// device notices, no fifo waits, and a directory needs no permission to be read.
// os.Root has no such thing: it opens directories for reading, and waits for ever
// at a fifo that has taken the place of one.
const (
	oPlace     = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	oDirectory = oPlace | unix.O_DIRECTORY
	// oOpen are the flags for opening the file itself. A fifo must not block the tool, nor a
	// terminal become the runtime's controlling one.
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

// readlink is the target of the symlink that fd names.
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

// whereIs is the path by which fd was opened, as it is now. It differs for an entry
// that has been moved or removed.
func whereIs(fd int) (string, error) { return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) }

// onProc reports whether fd is on a proc file system, whose links lead to more than their
// text. If the file system is unknown it returns true.
func onProc(fd int) bool {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return err != nil || st.Type == unix.PROC_SUPER_MAGIC
}

func kind(st unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// split is the names of a path, ".." among them.
func split(path string) []string {
	var names []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

func join(names []string) string { return "/" + strings.Join(names, "/") }
