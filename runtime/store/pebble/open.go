package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// format is the format that this version reads and writes. In format 3 the row of a job has no start. In
// format 2 every event has a whole body. In format 1 there are fewer indexes.
const format = 4

// Open opens the store in a directory, which it creates if there is none. It returns
// store.ErrLocked if another process has the store open, and store.ErrFormat if a newer
// version has written it. A store of an older version is migrated. A store that cannot be
// opened is not changed.
func Open(dir string, opts Options) (store.Store, error) {
	opts.setDefaults()
	s, err := open(dir, &opts)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

// open locks the directory, opens its database and loads the state. After an error the directory
// is unlocked.
func open(dir string, opts *Options) (_ *Store, err error) {
	if err := prepare(dir, opts.fs); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir, opts.fs)
	if err != nil {
		return nil, err
	}
	s := &Store{lock: lock, fs: opts.fs}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	if s.db, err = openDB(dir, lock, opts); err != nil {
		return nil, err
	}
	if err := (opener{s}).load(dir, opts); err != nil {
		return nil, joinClose(err, s.db)
	}
	s.reclaim = startReclaimer(s.db, opts.reclaimPause, opts.rewriteAge)
	return s, nil
}

func joinClose(err error, c interface{ Close() error }) error { return errors.Join(err, c.Close()) }

// prepare creates the directory if there is none.
func prepare(dir string, f vfs.FS) error {
	info, err := f.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is a file, not a directory", dir)
	case errors.Is(err, fs.ErrNotExist):
		return makeDir(dir, f)
	}
	return err
}

// makeDir creates a directory and its parents, and syncs them.
func makeDir(dir string, f vfs.FS) error {
	parent := f.PathDir(dir)
	if _, err := f.Stat(parent); errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := makeDir(parent, f); err != nil {
			return err
		}
	}
	if err := f.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(parent, f)
}

func lockDir(dir string, f vfs.FS) (*pdb.Lock, error) {
	if f == vfs.Default {
		f = processLocks{f}
	}
	lock, err := pdb.LockDirectory(dir, f)
	switch {
	case err == nil:
		return lock, nil
	case isHeld(err):
		return nil, fmt.Errorf("lock %s: %w", dir, store.ErrLocked)
	}
	return nil, fmt.Errorf("lock %s: %w", dir, err)
}

// lockedFiles are the files that this process has locked. The operating system does not refuse a second lock of the
// same process, and closing the second releases both.
var lockedFiles sync.Map

// processLocks is a file system that refuses to lock a file that this process has locked.
type processLocks struct{ vfs.FS }

func (p processLocks) Unwrap() vfs.FS { return p.FS }

func (p processLocks) Lock(name string) (io.Closer, error) {
	if _, held := lockedFiles.LoadOrStore(name, true); held {
		return nil, errors.New("held by current process")
	}
	lock, err := p.FS.Lock(name)
	if err != nil {
		lockedFiles.Delete(name)
		return nil, err
	}
	return processLock{lock, name}, nil
}

// processLock is a lock of processLocks.
type processLock struct {
	io.Closer
	name string
}

func (l processLock) Close() error {
	defer lockedFiles.Delete(l.name)
	return l.Closer.Close()
}

// isHeld reports whether locking failed because another process holds the lock. An error
// with a path has the same numbers if the file cannot be created.
func isHeld(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return false
	}
	held := func(number syscall.Errno) bool { return errors.Is(err, number) }
	return slices.ContainsFunc(heldErrors, held) || strings.Contains(err.Error(), "held by current process")
}

// openDB opens the database. A panic of Pebble because of damaged files is an error.
func openDB(dir string, lock *pdb.Lock, opts *Options) (db *pdb.DB, err error) {
	desc, err := pdb.Peek(dir, opts.fs)
	if err != nil {
		if strings.Contains(err.Error(), "unknown format major version") {
			return nil, fmt.Errorf("%s: %w: %w; use the version that wrote it, or a newer one", dir, store.ErrFormat, err)
		}
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := checkWALs(dir, opts.fs); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	defer recoverDamage(&err)
	if !desc.Exists { // the first log has an older form that checkWALs cannot read
		if err := checkUnused(dir, opts.fs); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		if err := create(dir, lock, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
	}
	if db, err = pdb.Open(dir, opts.locked(lock)); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return db, nil
}

// checkUnused refuses a directory with data but without the file that names the list of files. Pebble would
// create an empty database there, and delete the data. The file is older than the first log.
func checkUnused(dir string, f vfs.FS) error {
	names, err := f.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains([]string{".sst", ".blob", ".log"}, path.Ext(name)) {
			return fmt.Errorf("%s is here, but the list of files is missing; restore the directory from a copy", name)
		}
	}
	return nil
}

// create creates an empty database and closes it.
func create(dir string, lock *pdb.Lock, opts *Options) error {
	db, err := pdb.Open(dir, opts.locked(lock))
	if err != nil {
		return err
	}
	return db.Close()
}

func (o *Options) locked(lock *pdb.Lock) *pdb.Options {
	p := o.pebble()
	p.Lock = lock
	return p
}

// opener checks, migrates and loads a store while no other goroutine uses it.
type opener struct{ *Store }

// load reads the state that Commit has in memory.
func (o opener) load(dir string, opts *Options) error {
	if err := o.checkFormat(dir); err != nil {
		return err
	}
	src := &source{s: o.Store}
	src.key = []byte(keyState)
	_, err := src.get(func(v []byte) (err error) {
		o.enc.state, err = codec.DecodeState(v)
		return err
	})
	if err != nil {
		return err
	}
	opts.IDs.StartAfter(strings.TrimPrefix(string(o.enc.state.LastID), arcp.MessagePrefix))
	o.jobs.Store(int64(o.enc.state.Jobs))
	o.sessions.Store(int64(o.enc.state.Sessions))
	o.enc.deletedTo, o.enc.endedSessions = make(map[string]uint64), make(map[arcp.SessionID]struct{})
	o.core = sequence.New(src, opts.IDs, o.enc.state.Deleted)
	if err := o.loadLastJob(); err != nil {
		return err
	}
	return o.loadLive()
}

func (o opener) loadLastJob() error {
	it, err := o.db.NewIter(table(tJob + string(rune(codec.MintedID))))
	if err != nil {
		return err
	}
	if it.Last() {
		o.enc.lastJob = append(o.enc.lastJob, it.Key()...)
	}
	return readable(joinClose(it.Error(), it))
}

// checkFormat writes the format number into a new store. It migrates a store of an older
// format and refuses a newer one.
func (o opener) checkFormat(dir string) error {
	n, err := o.readFormat()
	switch {
	case errors.Is(err, store.ErrNotFound):
		return o.create(dir)
	case err != nil:
		return fmt.Errorf("%s: format: %w", dir, err)
	case n > format:
		return fmt.Errorf("%s: %w: it is format %d, this version knows up to %d; use the version that wrote it, or a newer one",
			dir, store.ErrFormat, n, format)
	case n == format:
		return nil
	}
	if err := o.migrate(dir, n); err != nil {
		return fmt.Errorf("%s: migrate from format %d: %w", dir, n, err)
	}
	return nil
}

func (o opener) readFormat() (n uint64, err error) {
	it, err := o.db.NewIter(nil)
	if err != nil {
		return 0, err
	}
	defer it.Close()
	err = lookup(it, []byte(keyFormat), func(v []byte) error {
		k := 0
		if n, k = binary.Uvarint(v); k <= 0 || k != len(v) {
			return errors.New("it is not a number")
		}
		return nil
	})
	return n, err
}

func (o opener) create(dir string) error {
	it, err := o.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	empty := !it.First()
	if err := readable(joinClose(it.Error(), it)); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if !empty {
		return fmt.Errorf("%s: it holds data of another program", dir)
	}
	return o.setFormat()
}

// loadLive loads the live jobs and their follows into the core, and builds the index of
// live jobs.
func (o opener) loadLive() error {
	follows, err := o.loadFollows()
	if err != nil {
		return err
	}
	it, rows, err := o.viewPair(table(tLive))
	if err != nil {
		return err
	}
	defer o.release(rows, it)
	o.liveJobs.byJob = make(map[arcp.JobID]string)
	for ok := it.First(); ok; ok = it.Next() {
		id, err := parseAfter(len(tLive), it.Key())
		if err != nil {
			return err
		}
		j, err := readJob(rows, id)
		if err != nil {
			return named(err, "job", string(id))
		}
		if err := o.core.Load(&j, follows[id]); err != nil {
			return err
		}
		o.live.Add(1)
		o.liveJobs.add(&j)
	}
	return readable(it.Error())
}

func (o opener) loadFollows() (map[arcp.JobID][]sequence.FollowChange, error) {
	it, err := o.db.NewIter(table(tFollow))
	if err != nil {
		return nil, err
	}
	defer it.Close()
	follows := make(map[arcp.JobID][]sequence.FollowChange)
	for ok := it.First(); ok; ok = it.Next() {
		f, err := readFollow(it)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", it.Key(), err)
		}
		follows[f.Job] = append(follows[f.Job], f)
	}
	return follows, readable(it.Error())
}

func readFollow(it *pdb.Iterator) (f sequence.FollowChange, err error) {
	k, err := parseFollow(it.Key())
	if err != nil {
		return f, err
	}
	v, err := value(it)
	if err != nil {
		return f, err
	}
	return codec.DecodeFollow(k, v)
}
