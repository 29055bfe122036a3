package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/arcpd/arcpd/runtime/store"
)

// Copy is a directory that Backup has written, opened to be checked. Nothing in the directory is changed.
type Copy struct {
	s    *Store
	dir  string
	opts *Options
}

// Contents counts the rows of a Copy.
type Contents struct {
	Sessions int
	Jobs     map[string]int // by the name of their tool
	Events   uint64         // of jobs
}

// OpenCopy opens a copy. It returns store.ErrLocked if another process has opened it as a store, and
// store.ErrFormat if a newer version has written it. A copy of an older format is refused, too.
func OpenCopy(dir string, opts Options) (_ *Copy, err error) {
	opts.setDefaults()
	lock, err := lockCopy(dir, opts.fs)
	if err != nil {
		return nil, err
	}
	opts.fs = readOnly{opts.fs}
	c := &Copy{s: &Store{fs: opts.fs, lock: lock}, dir: dir, opts: &opts}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open copy: %w", err), lock.Close())
	}
	return c, nil
}

// lockCopy locks the directory of a copy against its opening as a store. It neither creates nor changes the file
// of the lock: a directory without this file was never opened.
func lockCopy(dir string, f vfs.FS) (*pdb.Lock, error) {
	info, err := f.Stat(dir)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is a file, not a directory", dir)
	}
	if _, err := f.Stat(f.PathJoin(dir, "LOCK")); errors.Is(err, fs.ErrNotExist) {
		f = readOnly{f}
	} else if f == vfs.Default {
		f = processLocks{sharedLocks{f}}
	}
	return lockDir(dir, f)
}

func (c *Copy) open() (err error) {
	defer recoverDamage(&err)
	desc, err := pdb.Peek(c.dir, c.opts.fs)
	switch {
	case err != nil && strings.Contains(err.Error(), "unknown format major version"):
		return fmt.Errorf("%s: %w: %w; use the version that wrote it, or a newer one", c.dir, store.ErrFormat, err)
	case err != nil:
		return fmt.Errorf("%s: %w", c.dir, err)
	case !desc.Exists:
		return fmt.Errorf("%s: there is no store: the list of its files is missing", c.dir)
	}
	if err := checkManifest(desc.ManifestFilename, c.opts.fs); err != nil {
		return fmt.Errorf("%s: %w", c.dir, err)
	}
	if err := checkWALs(c.dir, c.opts.fs); err != nil {
		return fmt.Errorf("%s: %w", c.dir, err)
	}
	p := c.opts.locked(c.s.lock)
	p.ReadOnly = true
	if c.s.db, err = pdb.Open(c.dir, p); err != nil {
		return fmt.Errorf("%s: %w", c.dir, err)
	}
	if err := c.checkFormat(); err != nil {
		return errors.Join(err, c.s.db.Close())
	}
	return nil
}

// checkManifest refuses a list of files that does not end after a complete record. Pebble ignores an
// incomplete record, as after a crash.
func checkManifest(path string, f vfs.FS) error {
	file, err := f.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	r, n := record.NewReader(file, 0), 0
	for ; ; n++ {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			break
		}
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		if err != nil {
			return fmt.Errorf("%s: the list of files is damaged at byte %d: %w", f.PathBase(path), r.Offset(), err)
		}
	}
	info, err := file.Stat()
	if err == nil && info.Size() != r.Offset() {
		err = fmt.Errorf("%s: the list of files is damaged at byte %d", f.PathBase(path), r.Offset())
	}
	return err
}

func (c *Copy) checkFormat() error {
	n, err := (opener{c.s}).readFormat()
	switch {
	case err != nil:
		return fmt.Errorf("%s: format: %w", c.dir, err)
	case n > format:
		return fmt.Errorf("%s: %w: it is format %d, this version knows up to %d; use the version that wrote it, or a newer one",
			c.dir, store.ErrFormat, n, format)
	case n < format:
		return fmt.Errorf("%s: it is format %d, and this version checks format %d; check it with the version that wrote it", c.dir, n, format)
	}
	return nil
}

// Get returns a record; Rev is 0 if there is none.
func (c *Copy) Get(ctx context.Context, key string) (store.Record, error) { return c.s.Get(ctx, key) }

// Records calls fn for the records whose key begins with prefix and is > after, in the order of the
// keys, until fn returns false.
func (c *Copy) Records(ctx context.Context, prefix, after string, fn func(store.Record) bool) error {
	return c.s.Records(ctx, prefix, after, fn)
}

// Close closes the copy.
func (c *Copy) Close() error { return errors.Join(c.s.db.Close(), c.s.lock.Close()) }

// Check reads every block of every table with its checksum, decodes every row, and reads the rows
// as Open does. It calls problem for each problem that it finds. It fails only when ctx ends.
func (c *Copy) Check(ctx context.Context, problem func(error)) (Contents, error) {
	whole := true
	report := func(err error) {
		whole = false
		problem(readable(err))
	}
	if err := c.checkTables(ctx, report); err != nil {
		return Contents{}, err
	}
	rows := rowChecker{c: c, report: report}
	if err := rows.run(ctx); err != nil {
		return rows.found, err
	}
	if whole { // otherwise the same problem would be reported twice
		rows.references(ctx)
	}
	return rows.found, context.Cause(ctx)
}

// checkTables reads every block of the files of tables, and compares the files with the list.
func (c *Copy) checkTables(ctx context.Context, problem func(error)) error {
	names, err := c.opts.fs.List(c.dir)
	if err != nil {
		problem(err)
		return nil
	}
	listed, err := c.listed()
	if err != nil {
		problem(err)
	}
	slices.Sort(names)
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, ".sst")
		if !ok {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if n, err := strconv.ParseUint(digits, 10, 64); err == nil && listed != nil && !listed[n] {
			problem(fmt.Errorf("%s: the list of files does not name it: the list is not of the same copy, or a server has run here", name))
		}
		if err := c.checkTable(name); err != nil {
			problem(fmt.Errorf("%s: %w", name, readable(err)))
		}
	}
	return nil
}

// listed returns the numbers of the tables in the list of files.
func (c *Copy) listed() (map[uint64]bool, error) {
	levels, err := c.s.db.SSTables()
	if err != nil {
		return nil, err
	}
	listed := make(map[uint64]bool)
	for _, level := range levels {
		for i := range level {
			listed[uint64(level[i].BackingSSTNum)] = true
		}
	}
	return listed, nil
}

// checkTable reads every block of a table.
func (c *Copy) checkTable(name string) (err error) {
	defer recoverDamage(&err)
	file, err := c.opts.fs.Open(c.opts.fs.PathJoin(c.dir, name))
	if err != nil {
		return err
	}
	from, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return joinClose(err, file)
	}
	opts := c.opts.pebble()
	opts.EnsureDefaults()
	r, err := sstable.NewReader(context.Background(), from, opts.MakeReaderOptions())
	if err != nil {
		return joinClose(err, from)
	}
	return joinClose(r.ValidateBlockChecksums(), r)
}

// sharedLocks is a file system whose locks are shared: they exclude only processes that write. The file of a
// lock must exist. It is opened for reading, so the file system may be read-only.
type sharedLocks struct{ vfs.FS }

func (sharedLocks) Lock(name string) (io.Closer, error) { return lockShared(name) }
func (s sharedLocks) Unwrap() vfs.FS                    { return s.FS }

// readOnly is a file system that refuses every change. Its locks are without effect.
type readOnly struct{ vfs.FS }

// errReadOnly is the error of a change.
var errReadOnly = fmt.Errorf("a copy is opened for reading: %w", fs.ErrPermission)

type noLock struct{}

func (noLock) Close() error { return nil }

func (readOnly) Lock(string) (io.Closer, error)                         { return noLock{}, nil }
func (readOnly) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnly }
func (readOnly) Link(string, string) error                              { return errReadOnly }
func (readOnly) Remove(string) error                                    { return errReadOnly }
func (readOnly) RemoveAll(string) error                                 { return errReadOnly }
func (readOnly) Rename(string, string) error                            { return errReadOnly }
func (readOnly) MkdirAll(string, os.FileMode) error                     { return errReadOnly }
func (r readOnly) Unwrap() vfs.FS                                       { return r.FS }
func (readOnly) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly
}
func (readOnly) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnly
}
