//go:build unix

package access

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
)

// rootWalker resolves a path from the root directory with os.Root, for systems without O_PATH. It looks at an entry
// before it opens a directory, and then compares both, so a replaced entry is not followed. One goroutine uses a
// walker once.
type rootWalker struct {
	dir   *os.Root // at; nil: not open
	at    []string // the current directory, without symlinks
	rest  []string // names that remain
	home  []string // the directory of the last symlink; errors may reveal it and its parents
	links int
	steps int

	// through returns an error unless a link may lead through a directory and out again, which
	// reveals the existence of the directory.
	through func(path string) error
}

// rootEnd is the result of a walk. After an error dir and info may be nil.
type rootEnd struct {
	dir  *os.Root    // owned
	name string      // in dir; "." for dir itself
	info fs.FileInfo // of the entry; nil: no entry
	walked
}

func (p *rootEnd) close() {
	closeRoot(p.dir)
	p.dir = nil
}

func closeRoot(r *os.Root) {
	if r != nil {
		_ = r.Close() // nothing was written through it
	}
}

// rootWalk resolves a clean path. It follows a symlink at the end of the path if followLast is set.
func rootWalk(path string, followLast bool, through func(string) error) *rootEnd {
	w := &rootWalker{rest: split(path), through: through}
	defer func() { closeRoot(w.dir) }()
	for len(w.rest) > 0 {
		if p := w.step(followLast); p != nil {
			return p
		}
	}
	return w.endAtDirectory()
}

// step resolves the next name. It returns nil if the walk continues.
func (w *rootWalker) step(followLast bool) *rootEnd {
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
		var dir *os.Root
		if dir, err = openSame(w.dir, name, info); err == nil {
			w.down(name, dir)
			return nil
		}
	default:
		err = syscall.ENOTDIR
	}
	return w.end(name, err)
}

// count returns an error for a path with too many look-ups.
func (w *rootWalker) count() error {
	if w.steps++; w.steps > maxSteps {
		return syscall.ELOOP
	}
	return nil
}

func (w *rootWalker) lstat(name string) (fs.FileInfo, error) {
	if err := w.count(); err != nil {
		return nil, err
	}
	info, err := w.dir.Lstat(name)
	return info, cause(err)
}

// openSame opens a directory. It returns errEscape if the entry is not the one of info any more.
func openSame(dir *os.Root, name string, info fs.FileInfo) (*os.Root, error) {
	sub, err := dir.OpenRoot(name)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, cause(err)
	case err != nil:
		return nil, errEscape // the entry was replaced or removed
	}
	now, err := sub.Stat(".")
	if err != nil || !os.SameFile(info, now) {
		closeRoot(sub)
		return nil, errEscape
	}
	return sub, nil
}

func (w *rootWalker) down(name string, dir *os.Root) {
	closeRoot(w.dir)
	w.dir, w.at = dir, append(w.at, name)
}

// up moves from w.at to its parent. It uses the names of w.at, because ".." of a moved directory leads to the new
// parent.
func (w *rootWalker) up() *rootEnd {
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
	closeRoot(w.dir)
	w.dir, w.at = nil, w.at[:len(w.at)-1]
	return nil
}

// reopen opens w.at as w.dir. A name of w.at that is not a directory now was replaced during the walk.
func (w *rootWalker) reopen() (err error) {
	if w.dir != nil {
		return nil
	}
	if w.dir, err = os.OpenRoot("/"); err != nil {
		return cause(err)
	}
	for _, name := range w.at {
		info, err := w.lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return errEscape
		}
		if err != nil {
			return err
		}
		dir, err := openSame(w.dir, name, info)
		if err != nil {
			return err
		}
		closeRoot(w.dir)
		w.dir = dir
	}
	return nil
}

// follow inserts the target of the symlink name in w.at before the rest.
func (w *rootWalker) follow(name string) error {
	if w.links++; w.links > maxLinks {
		return syscall.ELOOP
	}
	target, err := w.dir.Readlink(name)
	if err != nil {
		return errEscape // the link was replaced
	}
	w.home = slices.Clone(w.at)
	w.rest = append(split(target), w.rest...)
	if strings.HasPrefix(target, "/") {
		closeRoot(w.dir)
		w.dir, w.at = nil, nil
	}
	return nil
}

// found ends the walk at name in w.dir.
func (w *rootWalker) found(name string, info fs.FileInfo) *rootEnd {
	p := &rootEnd{dir: w.dir, name: name, info: info, walked: walked{names: append(w.at, name)}}
	w.dir = nil
	return p
}

// endAtDirectory ends the walk at w.at.
func (w *rootWalker) endAtDirectory() *rootEnd {
	if err := w.reopen(); err != nil {
		return w.end("", err)
	}
	info, err := w.dir.Stat(".")
	if err != nil {
		return w.end("", cause(err))
	}
	p := w.found(".", info)
	p.names = w.at
	return p
}

// end ends the walk with err at name.
func (w *rootWalker) end(name string, err error) *rootEnd {
	p := &rootEnd{dir: w.dir, name: name, walked: walked{names: slices.Clone(w.at), err: err}}
	w.dir = nil
	p.finish(name, w.rest, errors.Is(err, fs.ErrNotExist))
	return p
}
