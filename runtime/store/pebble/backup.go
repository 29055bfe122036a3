package pebble

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Backup writes a copy into a directory that does not exist yet. The copy is written
// beside it, with the suffix .partial, and renamed when it is complete; the next backup
// replaces an incomplete one. Files that never change are linked if the file system can.
// When ctx ends, or the store is closed, Backup ends without a copy. It waits for
// copying that has begun.
func (s *Store) Backup(ctx context.Context, dir string) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.users.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()
	if err := s.backup(ctx, dir); err != nil {
		return fmt.Errorf("back up to %s: %w", dir, err)
	}
	return nil
}

// backup writes a copy of the store to dir. It returns fs.ErrExist if dir exists.
func (s *Store) backup(ctx context.Context, dir string) error {
	switch _, err := s.fs.Stat(dir); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return fs.ErrExist
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	// The checkpoint's own directory is readable for all, so it is made inside a private one.
	private := dir + ".partial"
	if err := s.fs.RemoveAll(private); err != nil {
		return err
	}
	if err := makeDir(private, s.fs); err != nil {
		return err
	}
	made := s.fs.PathJoin(private, "store")
	if err := s.db.Checkpoint(made, pdb.WithFlushedWAL()); err != nil {
		return errors.Join(err, s.fs.RemoveAll(private))
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), s.fs.RemoveAll(private))
	}
	return s.publish(made, dir, private)
}

// publish renames a complete copy.
func (s *Store) publish(made, dir, private string) error {
	if err := chmod(s.fs, made); err != nil {
		return err
	}
	if err := s.fs.Rename(made, dir); err != nil {
		return err
	}
	if err := s.fs.RemoveAll(private); err != nil {
		return err
	}
	return syncDir(s.fs.PathDir(dir), s.fs)
}

func syncDir(dir string, f vfs.FS) error {
	d, err := f.OpenDir(dir)
	if err != nil {
		return err
	}
	return joinClose(d.Sync(), d)
}

// chmod sets the permissions of the store's directory: only the owner may enter.
func chmod(f vfs.FS, dir string) error {
	if f != vfs.Default {
		return nil // a test's file system has no permissions
	}
	return os.Chmod(dir, 0o700)
}
