package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

var errStopped = errors.New("the process has stopped")

// disk is a fileSystem that stops before or after one of its operations, as a killed process does.
type disk struct {
	names   map[string]*inode
	durable map[string]*inode // the names that survive a loss of power
	journal bool              // names are durable at once
	left    int               // operations until the stop; negative: it does not stop
	after   bool              // the last operation happens
	stopped bool
}

type inode struct {
	data   []byte
	synced int // bytes that survive a loss of power
}

func newDisk() *disk {
	return &disk{names: make(map[string]*inode), durable: make(map[string]*inode), left: -1}
}

// step performs an operation, or stops.
func (d *disk) step(operation func() error) error {
	if d.stopped {
		return errStopped
	}
	if d.left == 0 {
		d.stopped = true
		if d.after {
			_ = operation() // the process does not learn the result
		}
		return errStopped
	}
	d.left--
	return operation()
}

// restart continues after a stop. After a loss of power only durable names and synced data are left.
func (d *disk) restart(powerLoss bool) {
	d.stopped, d.left = false, -1
	if !powerLoss {
		return
	}
	if !d.journal {
		d.names = maps.Clone(d.durable)
	}
	for _, n := range d.names {
		n.data = n.data[:n.synced]
	}
}

func (d *disk) Create(name string) (file, error) {
	n := new(inode)
	return diskFile{d, n}, d.step(func() error {
		if d.names[name] != nil {
			return fs.ErrExist
		}
		d.names[name] = n
		return nil
	})
}

func (d *disk) Open(name string) (io.ReadSeekCloser, error) {
	n := d.names[name]
	if n == nil {
		return nil, fs.ErrNotExist
	}
	return struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(n.data), io.NopCloser(nil)}, nil
}

func (d *disk) Rename(from, to string) error {
	return d.step(func() error {
		d.names[to] = d.names[from]
		delete(d.names, from)
		return nil
	})
}

func (d *disk) Remove(name string) error {
	return d.step(func() error {
		if d.names[name] == nil {
			return fs.ErrNotExist
		}
		delete(d.names, name)
		return nil
	})
}

func (d *disk) Names() ([]string, error) { return slices.Collect(maps.Keys(d.names)), nil }

func (d *disk) Sync() error {
	return d.step(func() error {
		d.durable = maps.Clone(d.names)
		return nil
	})
}

type diskFile struct {
	*disk
	*inode
}

func (f diskFile) Write(p []byte) (int, error) {
	return len(p), f.step(func() error {
		f.data = append(f.data, p...)
		return nil
	})
}

func (f diskFile) Sync() error {
	return f.step(func() error {
		f.synced = len(f.data)
		return nil
	})
}

func (f diskFile) Close() error { return nil }

// diskCommitter is a records.Committer whose commits are operations of a disk.
type diskCommitter struct {
	*disk
	committer
}

func (c *diskCommitter) Commit(ctx context.Context, w *store.Write, done func(error)) error {
	err := c.step(func() error { return c.committer.Commit(ctx, w, func(error) {}) })
	done(err)
	return err
}

// Rows and content agree after a stop at any operation of a put and a release.
func TestRowsAndContentAgreeAfterACrash(t *testing.T) {
	for bits := range 16 {
		c := crash{powerLoss: bits&1 > 0, after: bits&2 > 0, renamesOpen: bits&4 > 0, journal: bits&8 > 0}
		for c.operation = 0; crashAt(t, c); c.operation++ {
		}
		if c.operation < 9 { // create, write, write, rename, sync, sync, commit; commit, remove
			t.Errorf("%+v: the processes stopped at %d operations only", c, c.operation)
		}
	}
}

// crash is the stop of a process at an operation.
type crash struct {
	operation   int
	after       bool // the operation happens
	powerLoss   bool
	renamesOpen bool // a file gets its name before it is synced
	journal     bool // names are durable at once
}

// crashAt puts an artifact and releases another one in a process that stops at an operation. It reports
// whether the process has stopped.
func crashAt(t *testing.T, c crash) bool {
	t.Helper()
	d := newDisk()
	d.journal = c.journal
	f := newFixture(t, &Files{d, c.renamesOpen}, Limits{})
	log := &diskCommitter{disk: d, committer: committer{store: f.rows}}
	f.opts.Log = log
	kept, released := f.put("alice", "kept"), f.put("alice", "released")
	d.left, d.after = c.operation, c.after
	added, putErr := f.putChunks("alice", "ad", "ded")
	releaseErr := f.Release(t.Context(), "alice", released.ID)
	stopped := d.stopped
	d.restart(c.powerLoss)
	f.restart(Limits{})

	var rows []arcp.ArtifactID
	f.List("alice", "", func(r *Row) bool {
		rows = append(rows, r.ID)
		return true
	})
	var files []arcp.ArtifactID
	for name := range d.names {
		files = append(files, arcp.ArtifactID(name))
	}
	slices.Sort(files)
	slices.Sort(rows)
	if !slices.Equal(rows, files) {
		t.Errorf("%+v: rows %v, files %v", c, rows, files)
	}
	for _, id := range rows {
		if want := map[arcp.ArtifactID]string{kept.ID: "kept", released.ID: "released"}[id]; want != "" {
			f.wantContent("after the stop", "alice", id, want)
		} else {
			f.wantContent("after the stop", "alice", id, "added")
		}
	}
	if !slices.Contains(rows, kept.ID) {
		t.Errorf("%+v: an artifact is lost", c)
	}
	if putErr == nil && !slices.Contains(rows, added.ID) {
		t.Errorf("%+v: a put that was answered is lost", c)
	}
	if releaseErr == nil && slices.Contains(rows, released.ID) {
		t.Errorf("%+v: a released artifact is back", c)
	}
	return stopped
}
