package access

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// walker resolves a path from the root, including symlinks. One goroutine uses a walker once.
type walker struct {
	dir   int      // descriptor of at; noFD: not open
	at    []string // the current directory, without symlinks
	rest  []string // names that remain
	home  []string // the directory of the last symlink; errors may reveal it and its parents
	links int
	steps int

	// through returns an error unless a link may lead through a directory and out again, which
	// reveals the existence of the directory.
	through func(path string) error
}

// pathEnd is the result of a walk. After an error dir and self may be noFD.
type pathEnd struct {
	dir  int    // descriptor of the directory; owned
	name string // in dir; "." for dir itself
	self int    // descriptor of the entry; owned; noFD: no entry
	stat unix.Stat_t
	walked
}

func (p *pathEnd) close() {
	closeFD(p.dir)
	closeFD(p.self)
	p.dir, p.self = noFD, noFD
}

// walk resolves a clean path. It follows a symlink at the end of the path if followLast is set.
func walk(path string, followLast bool, through func(string) error) *pathEnd {
	w := &walker{dir: noFD, rest: split(path), through: through}
	defer func() { closeFD(w.dir) }()
	for len(w.rest) > 0 {
		if p := w.step(followLast); p != nil {
			return p
		}
	}
	return w.endAtDirectory()
}

// step resolves the next name. It returns nil if the walk continues.
func (w *walker) step(followLast bool) *pathEnd {
	name := w.rest[0]
	w.rest = w.rest[1:]
	if name == ".." {
		return w.up()
	}
	if err := w.reopen(); err != nil {
		return w.end(name, err)
	}
	if len(w.rest) > 0 {
		if fd, err := w.open(w.dir, name, oDirectory); err == nil {
			w.down(name, fd)
			return nil
		}
	}
	fd, err := w.open(w.dir, name, oPath)
	if err != nil {
		return w.end(name, err)
	}
	st, err := fstat(fd)
	switch {
	case err != nil:
	case kind(st) == unix.S_IFLNK && (followLast || len(w.rest) > 0):
		err = w.follow(fd)
		closeFD(fd)
		if err == nil {
			return nil
		}
		return w.end(name, err)
	case len(w.rest) == 0:
		return w.found(name, fd, st)
	case kind(st) == unix.S_IFDIR: // the entry was replaced by a directory
		w.down(name, fd)
		return nil
	default:
		err = unix.ENOTDIR
	}
	closeFD(fd)
	return w.end(name, err)
}

func (w *walker) open(dir int, name string, flags int) (int, error) {
	if w.steps++; w.steps > maxSteps {
		return noFD, unix.ELOOP
	}
	return openat(dir, name, flags, 0)
}

func (w *walker) down(name string, fd int) {
	closeFD(w.dir)
	w.dir, w.at = fd, append(w.at, name)
}

// up moves from w.at to its parent. It uses the names of w.at, because ".." of a moved directory leads to the new
// parent.
func (w *walker) up() *pathEnd {
	if w.steps++; w.steps > maxSteps {
		return w.end("", unix.ELOOP)
	}
	if len(w.at) == 0 {
		return nil
	}
	if !within(w.home, w.at) {
		if err := w.through(join(w.at)); err != nil {
			return w.end("", err)
		}
	}
	closeFD(w.dir)
	w.dir, w.at = noFD, w.at[:len(w.at)-1]
	return nil
}

// reopen opens w.at as w.dir. A name of w.at that is a symlink now was replaced during the walk.
func (w *walker) reopen() (err error) {
	if w.dir != noFD {
		return nil
	}
	if w.dir, err = openSlash(); err != nil {
		return err
	}
	for _, name := range w.at {
		fd, err := w.open(w.dir, name, oDirectory)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOENT) {
			return errEscape
		}
		if err != nil {
			return err
		}
		closeFD(w.dir)
		w.dir = fd
	}
	return nil
}

// follow inserts the target of the symlink fd in w.at before the rest.
func (w *walker) follow(fd int) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	if onProc(fd) {
		return errEscape
	}
	target, err := readlink(fd)
	if err != nil {
		return err
	}
	w.home = slices.Clone(w.at)
	w.rest = append(split(target), w.rest...)
	if strings.HasPrefix(target, "/") {
		closeFD(w.dir)
		w.dir, w.at = noFD, nil
	}
	return nil
}

// found ends the walk at name in w.dir.
func (w *walker) found(name string, fd int, st unix.Stat_t) *pathEnd {
	p := &pathEnd{dir: w.dir, name: name, self: fd, stat: st, walked: walked{names: append(w.at, name)}}
	w.dir = noFD
	return p
}

// endAtDirectory ends the walk at w.at.
func (w *walker) endAtDirectory() *pathEnd {
	if err := w.reopen(); err != nil {
		return w.end("", err)
	}
	fd, err := w.open(w.dir, ".", oDirectory)
	if err != nil {
		return w.end("", err)
	}
	st, err := fstat(fd)
	if err != nil {
		closeFD(fd)
		return w.end("", err)
	}
	p := w.found(".", fd, st)
	p.names = w.at
	return p
}

// end ends the walk with err at name.
func (w *walker) end(name string, err error) *pathEnd {
	p := &pathEnd{dir: w.dir, name: name, self: noFD, walked: walked{names: slices.Clone(w.at), err: err}}
	w.dir = noFD
	p.finish(name, w.rest, errors.Is(err, unix.ENOENT))
	return p
}
