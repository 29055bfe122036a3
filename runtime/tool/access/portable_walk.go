//go:build unix

package access

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// portableWalker resolves a path from the root directory, for systems without O_PATH. It looks at an entry before it
// opens a directory, and opens only directories, so a replaced entry is not followed. One goroutine uses a walker
// once.
type portableWalker struct {
	dir   *directory // at; nil: not open
	at    []string   // the current directory, without symlinks
	rest  []string   // names that remain
	home  []string   // the directory of the last symlink; errors may reveal it and its parents
	links int
	steps int

	// through returns an error unless a link may lead through a directory and out again, which
	// reveals the existence of the directory.
	through func(path string) error
}

// portableEnd is the result of a walk. After an error dir and info may be nil.
type portableEnd struct {
	dir  *directory // owned
	name string     // in dir; "." for dir itself
	info *statInfo  // of the entry; nil: no entry
	walked
}

func (p *portableEnd) close() {
	closeDirectory(p.dir)
	p.dir = nil
}

// portableWalk resolves a clean path. It follows a symlink at the end of the path if followLast is set.
func portableWalk(path string, followLast bool, through func(string) error) *portableEnd {
	w := &portableWalker{rest: split(path), through: through}
	defer func() { closeDirectory(w.dir) }()
	for len(w.rest) > 0 {
		if p := w.step(followLast); p != nil {
			return p
		}
	}
	return w.endAtDirectory()
}

// step resolves the next name. It returns nil if the walk continues.
func (w *portableWalker) step(followLast bool) *portableEnd {
	name := w.rest[0]
	w.rest = w.rest[1:]
	if name == ".." {
		return w.up()
	}
	if err := w.reopen(); err != nil {
		return w.end(name, err)
	}
	info, err := w.lstat(name)
	switch {
	case err != nil:
	case info.Mode().Type() == fs.ModeSymlink && (followLast || len(w.rest) > 0):
		err = w.follow(name)
		if err == nil {
			return nil
		}
	case len(w.rest) == 0:
		return w.found(name, info)
	case info.IsDir():
		var dir *directory
		if dir, err = openSame(w.dir, name); err == nil {
			w.down(name, dir)
			return nil
		}
	default:
		err = unix.ENOTDIR
	}
	return w.end(name, err)
}

// count returns an error for a path with too many look-ups.
func (w *portableWalker) count() error {
	if w.steps++; w.steps > maxSteps {
		return unix.ELOOP
	}
	return nil
}

func (w *portableWalker) lstat(name string) (*statInfo, error) {
	if err := w.count(); err != nil {
		return nil, err
	}
	return w.dir.lstat(name)
}

// openSame opens a directory. It returns errEscape if the entry is not a directory any more.
func openSame(dir *directory, name string) (*directory, error) {
	sub, err := dir.openDirectory(name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOENT) {
		return nil, errEscape
	}
	return sub, err
}

func (w *portableWalker) down(name string, dir *directory) {
	closeDirectory(w.dir)
	w.dir, w.at = dir, append(w.at, name)
}

// up moves from w.at to its parent. It uses the names of w.at, because ".." of a moved directory leads to the new
// parent.
func (w *portableWalker) up() *portableEnd {
	if err := w.count(); err != nil {
		return w.end("", err)
	}
	if len(w.at) == 0 {
		return nil
	}
	if !within(w.home, w.at) {
		if err := w.through(join(w.at)); err != nil {
			return w.end("", err)
		}
	}
	closeDirectory(w.dir)
	w.dir, w.at = nil, w.at[:len(w.at)-1]
	return nil
}

// reopen opens w.at as w.dir. A name of w.at that is not a directory now was replaced during the walk.
func (w *portableWalker) reopen() (err error) {
	if w.dir != nil {
		return nil
	}
	if w.dir, err = openSlashDirectory(); err != nil {
		return err
	}
	for _, name := range w.at {
		info, err := w.lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return errEscape
		}
		if err != nil {
			return err
		}
		dir, err := openSame(w.dir, name)
		if err != nil {
			return err
		}
		closeDirectory(w.dir)
		w.dir = dir
	}
	return nil
}

// follow inserts the target of the symlink name in w.at before the rest.
func (w *portableWalker) follow(name string) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	target, err := w.dir.readlink(name)
	if err != nil {
		return errEscape // the link was replaced
	}
	w.home = slices.Clone(w.at)
	w.rest = append(split(target), w.rest...)
	if strings.HasPrefix(target, "/") {
		closeDirectory(w.dir)
		w.dir, w.at = nil, nil
	}
	return nil
}

// found ends the walk at name in w.dir.
func (w *portableWalker) found(name string, info *statInfo) *portableEnd {
	p := &portableEnd{dir: w.dir, name: name, info: info, walked: walked{names: append(w.at, name)}}
	w.dir = nil
	return p
}

// endAtDirectory ends the walk at w.at.
func (w *portableWalker) endAtDirectory() *portableEnd {
	if err := w.reopen(); err != nil {
		return w.end("", err)
	}
	info, err := w.dir.lstat(".")
	if err != nil {
		return w.end("", err)
	}
	p := w.found(".", info)
	p.names = w.at
	return p
}

// end ends the walk with err at name.
func (w *portableWalker) end(name string, err error) *portableEnd {
	p := &portableEnd{dir: w.dir, name: name, walked: walked{names: slices.Clone(w.at), err: err}}
	w.dir = nil
	p.finish(name, w.rest, errors.Is(err, fs.ErrNotExist))
	return p
}
