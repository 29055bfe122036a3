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

// Directories creates and removes directories below a root. It removes symbolic links without following them. Many
// goroutines may call the methods.
type Directories struct {
	root *os.Root
}

// OpenDirectories opens the root. It creates a missing root, with access for its owner only.
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

// Close closes the root without removing its content.
func (d *Directories) Close() error { return d.root.Close() }

const directoryPrefix = "dir_"

// NewName returns a unique name for Make, so that a lease can precede the directory.
func NewName() string { return arcp.NewID(directoryPrefix) }

// check returns an error for a name that NewName cannot return, such as a path.
func check(name string) error {
	body, ok := strings.CutPrefix(name, directoryPrefix)
	if _, valid := arcp.ParseIDBody(body); !ok || !valid {
		return errNoSuchName(Directory, name)
	}
	return nil
}

// Path returns the path of a directory.
func (d *Directories) Path(name string) string { return filepath.Join(d.root.Name(), name) }

// Make creates a directory, with access for its owner only.
func (d *Directories) Make(name string) (path string, err error) {
	if err := check(name); err != nil {
		return "", err
	}
	if err := d.root.Mkdir(name, 0o700); err != nil {
		return "", fmt.Errorf("make a leased directory: %w", err)
	}
	return d.Path(name), nil
}

// Bounds of a removal.
const (
	maxDepth  = 64  // names of a path; deeper directories are moved to the top first
	someNames = 256 // names of a directory that are read at once
)

// Remove removes a directory with its content. A missing directory is no error. Remove checks ctx before each
// entry.
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
		if err := ignoreNotExist(d.empty(ctx, name)); err != nil { // another goroutine may remove it too
			return err
		}
	}
	return ignoreNotExist(d.root.Remove(name))
}

// ignoreNotExist returns the error of a removal, or nil if the entry does not exist.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// empty removes the content of a directory. It opens all entries relative to the directory, so that links that
// are created meanwhile do not lead outside.
func (d *Directories) empty(ctx context.Context, name string) error {
	unlock(d.root, name)
	top, err := d.root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }() // a directory has no write error
	was, err := d.root.Lstat(name)
	if err != nil {
		return err
	}
	if is, err := top.Stat("."); err != nil || !os.SameFile(was, is) {
		return errors.Join(fmt.Errorf("the leased directory %s is a link by now", name), err)
	}
	return empty(ctx, top, ".", 0)
}

// empty removes the content of a directory below top; depth is the depth of its path.
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

// remove removes an entry. It moves a directory deeper than maxDepth to the top first.
func remove(ctx context.Context, top *os.Root, path string, depth int) error {
	info, err := top.Lstat(path)
	if err != nil {
		return ignoreNotExist(err)
	}
	if info.IsDir() {
		unlock(top, path)
		if depth >= maxDepth {
			return ignoreNotExist(top.Rename(path, "x-"+rand.Text()))
		}
		if err := empty(ctx, top, path, depth); err != nil {
			return ignoreNotExist(err)
		}
	}
	return ignoreNotExist(top.Remove(path))
}

// list returns up to someNames of a directory.
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

// unlock adds write access for the owner of a directory. The next operation reports an error.
func unlock(root *os.Root, path string) {
	info, err := root.Lstat(path)
	if err == nil && info.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
		_ = root.Chmod(path, 0o700)
	}
}
