package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Directories are those under one root, which nothing here leaves: symbolic links
// are removed, not followed. Its methods may be called by many goroutines.
type Directories struct {
	root *os.Root
}

// OpenDirectories makes the root, for its owner alone, unless it exists.
func OpenDirectories(root string) (*Directories, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("directory of leased resources: %w", err)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("directory of leased resources: %w", err)
	}
	return &Directories{r}, nil
}

// Close gives the root back. What is in it stays.
func (d *Directories) Close() error { return d.root.Close() }

const directoryPrefix = "dir_"

// NewName mints the name of a directory, so that it can be leased before it is made.
func NewName() string { return arcp.NewID(directoryPrefix) }

// check refuses what is not exactly a name that NewName makes: no path, no other
// file.
func check(name string) error {
	body, ok := strings.CutPrefix(name, directoryPrefix)
	if _, valid := arcp.ParseIDBody(body); !ok || !valid {
		return broken(Directory, name)
	}
	return nil
}

// Path is where the directory of a name is.
func (d *Directories) Path(name string) string { return filepath.Join(d.root.Name(), name) }

// Make makes the directory of a name, for its owner alone.
func (d *Directories) Make(name string) (path string, err error) {
	if err := check(name); err != nil {
		return "", err
	}
	if err := d.root.Mkdir(name, 0o700); err != nil {
		return "", fmt.Errorf("make a leased directory: %w", err)
	}
	return d.Path(name), nil
}

// Bounds of a removal, whatever a tree looks like.
const (
	maxDepth  = 64  // of a path; what is deeper is moved up first
	someNames = 256 // of a directory, read in one go
)

// Remove removes the directory of a name with all it has. One that is not there is
// removed. ctx is asked before each thing that it has.
func (d *Directories) Remove(ctx context.Context, name string) error {
	if err := check(name); err != nil {
		return err
	}
	info, err := d.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		if err := gone(d.empty(ctx, name)); err != nil { // another may remove it, too
			return err
		}
	}
	return gone(d.root.Remove(name))
}

// gone is the error of removing something that may be gone.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// empty removes what the directory of a name has. All of that is looked up below the
// directory itself: whoever puts links there meanwhile leads to nobody else's.
func (d *Directories) empty(ctx context.Context, name string) error {
	unlock(d.root, name)
	top, err := d.root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }() // nothing was written to it
	was, err := d.root.Lstat(name)
	if err != nil {
		return err
	}
	if is, err := top.Stat("."); err != nil || !os.SameFile(was, is) {
		return errors.Join(fmt.Errorf("the leased directory %s is a link by now", name), err)
	}
	return empty(ctx, top, ".", 0)
}

// empty removes what a directory below top has; depth is that of its path.
func empty(ctx context.Context, top *os.Root, path string, depth int) error {
	for {
		names, err := list(top, path)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := remove(ctx, top, filepath.Join(path, name), depth+1); err != nil {
				return err
			}
		}
	}
}

// remove removes what is at a path. A directory that is too deep is moved to the top,
// where it comes up again.
func remove(ctx context.Context, top *os.Root, path string, depth int) error {
	info, err := top.Lstat(path)
	if err != nil {
		return gone(err)
	}
	if info.IsDir() {
		unlock(top, path)
		if depth >= maxDepth {
			return gone(top.Rename(path, "x-"+rand.Text()))
		}
		if err := empty(ctx, top, path, depth); err != nil {
			return gone(err)
		}
	}
	return gone(top.Remove(path))
}

// list reads some names of a directory. No descriptor is kept.
func list(top *os.Root, path string) (names []string, err error) {
	f, err := top.Open(path)
	if err != nil {
		return nil, err
	}
	names, err = f.Readdirnames(someNames)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, errors.Join(err, f.Close())
}

// unlock has a directory be its owner's to change. That it cannot is said by what is
// tried next, if that needs it.
func unlock(root *os.Root, path string) {
	info, err := root.Lstat(path)
	if err == nil && info.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
		_ = root.Chmod(path, 0o700)
	}
}
