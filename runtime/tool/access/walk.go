package access

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxPath  = 4096  // bytes of a path and of a symlink's target, as on Linux
	maxLinks = 40    // symlinks on one path, as on Linux
	maxSteps = 10000 // look-ups for one path: hostile links of 2,000 names each would make it millions
)

// errEscape ends a walk that leads out of the authority, whether or not a file is there.
var errEscape = errors.New("the path leads out of the job's authority")

// walker follows a path from the root, symlinks included. It is used by one
// goroutine and once.
type walker struct {
	dir   int      // of at; noFD: not open
	at    []string // the directory reached; no name of it is a symlink
	rest  []string // to go
	home  []string // the directory of the last symlink; it and its parents may be revealed
	links int
	steps int

	// through asks whether a link may lead through a directory and out of it again, which reveals
	// that the directory exists.
	through func(path string) error
}

// pathEnd is the end of a path.
//
// A walk that ends early sets err; then names are as far as the walk went, and dir and self
// may be noFD.
type pathEnd struct {
	dir   int    // the directory; owned
	name  string // in dir; "." for dir itself
	self  int    // descriptor of the entry itself; owned; noFD: none
	stat  unix.Stat_t
	names []string // the real path
	err   error    // why the walk ended early; nil: self is there
	lost  []string // when that is all: the names that are missing, the first one in dir
}

func (p *pathEnd) close() {
	closeFD(p.dir)
	closeFD(p.self)
	p.dir, p.self = noFD, noFD
}

func (p *pathEnd) real() string { return join(p.names) }

// walk goes to the end of path, which is clean. A symlink at the very end is
// followed on demand.
func walk(path string, followLast bool, through func(string) error) *pathEnd {
	w := &walker{dir: noFD, rest: split(path), through: through}
	defer func() { closeFD(w.dir) }()
	for len(w.rest) > 0 {
		if p := w.step(followLast); p != nil {
			return p
		}
	}
	return w.endHere()
}

// step takes the next name; nil: there are more, or the end is w.at itself.
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
	fd, err := w.open(w.dir, name, oPlace)
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
	case kind(st) == unix.S_IFDIR: // it was something else a moment ago
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

// up moves from w.at to its parent. The names of w.at are kept for that: a directory's ".."
// follows the directory when it is moved.
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

// within reports whether path is or is below dir.
func within(path, dir []string) bool {
	return len(path) >= len(dir) && slices.Equal(path[:len(dir)], dir)
}

// reopen makes w.dir the directory w.at. None of its names was a symlink; a name that is one
// now was swapped.
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

// follow puts the target of the symlink fd, which is in w.at, before the rest.
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
	p := &pathEnd{dir: w.dir, name: name, self: fd, stat: st, names: append(w.at, name)}
	w.dir = noFD
	return p
}

// endHere ends the walk at w.at.
func (w *walker) endHere() *pathEnd {
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

// end ends the walk because of err at name. The rest of the path is part of the real path
// unless it goes up: then the place of the failure must be covered, since the target is
// unknown.
func (w *walker) end(name string, err error) *pathEnd {
	p := &pathEnd{dir: w.dir, name: name, self: noFD, names: slices.Clone(w.at), err: err}
	w.dir = noFD
	if name != "" {
		p.names = append(p.names, name)
	}
	if slices.Contains(w.rest, "..") {
		return p
	}
	p.names = append(p.names, w.rest...)
	if errors.Is(err, unix.ENOENT) {
		p.lost = p.names[len(w.at):]
	}
	return p
}
