package pebble

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)

func mustOpen(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	st, err := Open(dir, opts)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() { _ = st.Close() }) // may be closed already
	return st.(*Store)
}

func commit(t testing.TB, st store.Store, writes ...*store.Write) {
	t.Helper()
	results := make([]store.Result, len(writes))
	if err := st.Commit(writes, results); err != nil {
		t.Fatalf("Commit = %v", err)
	}
	for i := range results {
		if results[i].Err != nil {
			t.Fatalf("write %d: %v", i, results[i].Err)
		}
	}
}

const (
	sess = arcp.SessionID("sess_1")
	job  = arcp.JobID("job_1")
)

func newSession(id arcp.SessionID) *store.Write {
	return store.NewWrite(&store.PutSession{Row: &store.Session{ID: id, Principal: "ann", CreatedAt: t0}})
}

func newJob(id arcp.JobID) *store.Write {
	return store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: id, Principal: "ann", Session: sess, SubmitID: "m1", CreatedAt: t0, State: arcp.StateAccepted}})
}

func events(id arcp.JobID, types ...arcp.Type) []*store.Event {
	var out []*store.Event
	for _, t := range types {
		out = append(out, store.NewEvent(t, t0, &store.JobContext{JobID: id}, "", []byte(`{"text":"`+strings.Repeat("x", 100)+`"}`)))
	}
	return out
}

func emit(id arcp.JobID, n int) *store.Write {
	types := make([]arcp.Type, n)
	for i := range types {
		types[i] = arcp.Log
	}
	return store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, Events: events(id, types...)})
}

func count(t testing.TB, s *Store, id arcp.SessionID, from uint64) (n int) {
	t.Helper()
	if err := s.SessionEvents(context.Background(), id, from, func(store.Delivery) bool { n++; return true }); err != nil {
		t.Fatalf("SessionEvents = %v", err)
	}
	return n
}

// testFS calls a hook at syncs of the log.
type testFS struct {
	vfs.FS
	onSync func()
	lock   error
}

type testFile struct {
	vfs.File
	fs *testFS
}

func (f *testFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(name)(f.FS.Create(name, c))
}

func (f *testFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(to)(f.FS.ReuseForWrite(from, to, c))
}

func (f *testFS) wrap(name string) func(vfs.File, error) (vfs.File, error) {
	return func(file vfs.File, err error) (vfs.File, error) {
		if err != nil || !strings.HasSuffix(name, ".log") {
			return file, err
		}
		return testFile{file, f}, nil
	}
}

func (f *testFS) Lock(name string) (io.Closer, error) {
	if f.lock != nil {
		return nil, f.lock
	}
	return f.FS.Lock(name)
}

func (f testFile) Sync() error {
	if f.fs.onSync != nil {
		f.fs.onSync()
	}
	return f.File.Sync()
}

func (f testFile) SyncData() error {
	if f.fs.onSync != nil {
		f.fs.onSync()
	}
	return f.File.SyncData()
}

// TestAcknowledgedWritesSurvivePowerLoss checks that acknowledged writes survive the loss of all
// unsynced data.
func TestAcknowledgedWritesSurvivePowerLoss(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, "data/store", Options{fs: mem})
	commit(t, s, newSession(sess), newJob(job))
	for n := 1; n <= 20; n++ {
		commit(t, s, emit(job, 3))
		commit(t, s, &store.Write{Ops: []store.Op{&store.TrimSession{Session: sess, Seq: uint64(n)}}, NoSync: true})
		after := mustOpen(t, "data/store", Options{fs: mem.CrashClone(vfs.CrashCloneCfg{})})
		row, err := after.Session(context.Background(), sess)
		if err != nil || row.LastSeq != uint64(3*n) {
			t.Fatalf("after %d commits LastSeq is %d, %v", n, row.LastSeq, err)
		}
		if got := count(t, after, sess, row.TrimmedTo); got != 3*n-int(row.TrimmedTo) {
			t.Fatalf("after %d commits %d events are left", n, got)
		}
		if err := after.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
	}
}

// TestLaterSyncKeepsUnsyncedWrites checks that the loss of all unsynced data undoes a write with NoSync, and
// that the next other batch makes it durable, also one without operations.
func TestLaterSyncKeepsUnsyncedWrites(t *testing.T) {
	unsynced := newSession(sess)
	unsynced.NoSync = true
	for name, c := range map[string]struct {
		next *store.Write
		want error
	}{
		"nothing":            {nil, store.ErrNotFound},
		"an unsynced write":  {&store.Write{NoSync: true}, store.ErrNotFound},
		"a job":              {newJob(job), nil},
		"no operations":      {new(store.Write), nil},
		"a write of another": {newSession("sess_2"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			s := mustOpen(t, "data/store", Options{fs: mem})
			commit(t, s, unsynced)
			if c.next != nil {
				commit(t, s, c.next)
			}
			after := mustOpen(t, "data/store", Options{fs: mem.CrashClone(vfs.CrashCloneCfg{})})
			if _, err := after.Session(context.Background(), sess); !errors.Is(err, c.want) {
				t.Errorf("Session = %v, want %v", err, c.want)
			}
		})
	}
}

// TestReadersSeeOnlySyncedBatches checks that no reader opens a view while a batch is visible but not
// synced.
func TestReadersSeeOnlySyncedBatches(t *testing.T) {
	f := &testFS{FS: vfs.NewMem()}
	s := mustOpen(t, "store", Options{fs: f})
	commit(t, s, newSession(sess), newJob(job))
	syncs := 0
	f.onSync = func() {
		syncs++
		if s.gate.TryRLock() {
			t.Error("a reader could open a view before the batch was synced")
			s.gate.RUnlock()
		}
	}
	commit(t, s, emit(job, 1))
	if syncs == 0 {
		t.Error("Commit did not sync")
	}
	f.onSync = nil
}

func TestBatchWithoutSyncIsNotSynced(t *testing.T) {
	f := &testFS{FS: vfs.NewMem()}
	s := mustOpen(t, "store", Options{fs: f})
	commit(t, s, newSession(sess), newJob(job), emit(job, 5))
	f.onSync = func() { t.Error("a batch that needs no sync was synced") }
	commit(t, s, &store.Write{Ops: []store.Op{&store.TrimSession{Session: sess, Seq: 2}}, NoSync: true}, &store.Write{Ops: []store.Op{&store.ReadPosition{Session: sess}}, NoSync: true})
	f.onSync = nil
}

func TestOpenStoreIsLocked(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	_, err := Open(dir, Options{})
	wantError(t, err, store.ErrLocked, "open store: lock "+dir)
	if err := s.Close(); err != nil {
		t.Fatalf("Close = %v", err)
	}

	stop := openInChild(t, dir)
	_, err = Open(dir, Options{})
	wantError(t, err, store.ErrLocked, "open store: lock "+dir)
	stop()
	mustOpen(t, dir, Options{})
}

const lockDirEnv = "STORE_TEST_LOCK_DIR"

// openInChild opens the store in another process until stop is called.
func openInChild(t *testing.T, dir string) (stop func()) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLockedChild$")
	cmd.Env = append(os.Environ(), lockDirEnv+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return func() {
		_ = in.Close() // ends the child
		_ = cmd.Wait()
	}
}

func TestLockedChild(t *testing.T) {
	dir := os.Getenv(lockDirEnv)
	if dir == "" {
		t.Skip("only as a child of TestOpenStoreIsLocked")
	}
	mustOpen(t, dir, Options{})
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
}

func wantError(t *testing.T, err, want error, text string) {
	t.Helper()
	if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error = %v, want %v with %q", err, want, text)
	}
}

func TestDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(file, Options{})
	wantError(t, err, nil, file+" is a file, not a directory")
	_, err = Open(filepath.Join(file, "store"), Options{})
	wantError(t, err, syscall.ENOTDIR, file)
	if b, err := os.ReadFile(file); err != nil || string(b) != "x" {
		t.Errorf("the file has become %q, %v", b, err)
	}

	denied := &fs.PathError{Op: "open", Path: "store/LOCK", Err: syscall.EACCES}
	_, err = Open("store", Options{fs: &testFS{FS: vfs.NewMem(), lock: denied}})
	wantError(t, err, fs.ErrPermission, "open store: lock store: ")
	if errors.Is(err, store.ErrLocked) {
		t.Errorf("a directory without permission is reported as locked: %v", err)
	}

	nested := filepath.Join(t.TempDir(), "a", "b", "store")
	mustOpen(t, nested, Options{})
	if info, err := os.Stat(nested); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("made %v, %v", info, err)
	}
}

func TestFormat(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	commit(t, s, newSession(sess))
	if err := s.db.Set([]byte(keyFormat), []byte{format + 1}, pdb.Sync); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, Options{})
	wantError(t, err, store.ErrFormat, "use the version that wrote it")

	markers, err := filepath.Glob(filepath.Join(dir, "marker.format-version.*"))
	if err != nil || len(markers) != 1 {
		t.Fatalf("markers: %v, %v", markers, err)
	}
	if err := os.Rename(markers[0], filepath.Join(dir, "marker.format-version.000099.999")); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, Options{})
	wantError(t, err, store.ErrFormat, "use the version that wrote it")
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	db, err := pdb.Open(dir, &pdb.Options{Logger: logger{&Options{}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("k"), []byte("v"), pdb.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, Options{})
	wantError(t, err, nil, dir+": it holds data of another program")
}

// A directory without the file that names the list of files is refused and not changed. After a crash while
// the directory is created there is no data: it is opened.
func TestMissingListOfFilesIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	commit(t, s, newSession(sess), newJob(job))
	must(s.Close())
	markers := must2(filepath.Glob(filepath.Join(dir, "marker.manifest.*")))
	if len(markers) != 1 {
		t.Fatalf("markers: %v", markers)
	}
	must(os.Remove(markers[0]))
	before := files(t, dir)
	_, err := Open(dir, Options{})
	wantError(t, err, nil, "the list of files is missing")
	if !maps.Equal(before, files(t, dir)) {
		t.Error("the directory was changed")
	}

	created := t.TempDir()
	must(os.WriteFile(filepath.Join(created, "MANIFEST-000001"), nil, 0o600))
	mustOpen(t, created, Options{})
}

// TestCallsFailAfterAFailedCommit checks that all calls fail after a failed commit.
func TestCallsFailAfterAFailedCommit(t *testing.T) {
	s := mustOpen(t, t.TempDir(), Options{})
	commit(t, s, newSession(sess), newJob(job), emit(job, 3))
	if err := s.db.Set(chunkKey(nil, job, 1), []byte{1, 200}, pdb.Sync); err != nil {
		t.Fatal(err)
	}
	follow := []*store.Write{store.NewWrite(&store.Follow{Session: sess, Job: job, CorrelationID: "c"})}
	err := s.Commit(follow, make([]store.Result, 1))
	wantError(t, err, nil, `key "je/`)
	ctx := context.Background()
	_, jobErr := s.Job(ctx, job)
	_, getErr := s.Get(ctx, "k")
	for i, err := range []error{
		s.Commit([]*store.Write{newSession("sess_2")}, make([]store.Result, 1)), jobErr, getErr,
		s.SessionEvents(ctx, sess, 0, nil), s.LiveJobs(ctx, nil), s.Sessions(ctx, nil), s.Jobs(ctx, store.JobQuery{}, nil), s.JobEvents(ctx, job, 0, nil),
	} {
		if !errors.Is(err, store.ErrBroken) {
			t.Errorf("call %d after a failed commit = %v, want ErrBroken", i, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

func keys(t *testing.T, s *Store, name string) (n, bytes int) {
	t.Helper()
	it, err := s.db.NewIter(table(name))
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		n, bytes = n+1, bytes+len(it.Key())+len(it.Value())
	}
	return n, bytes
}

// TestUnneededKeysAreDeleted checks that keys are deleted when nothing needs them, and that there are
// few pointers.
func TestUnneededKeysAreDeleted(t *testing.T) {
	s := mustOpen(t, t.TempDir(), Options{})
	commit(t, s, newSession(sess), newSession("sess_2"), newJob(job))
	const batches, size = 50, 400
	for range batches {
		commit(t, s, emit(job, size/2), emit(job, size/2))
	}
	if n, _ := keys(t, s, tRuns); n != batches {
		t.Errorf("%d records of pointers after %d batches of one job", n, batches)
	}
	commit(t, s, store.NewWrite(&store.Follow{Session: "sess_2", Job: job, CorrelationID: "c"}))
	if n, bytes := keys(t, s, tRuns); n != batches+1 {
		t.Errorf("following a long history took %d records, %d bytes in all", n-batches, bytes)
	}
	for seq := uint64(100); seq <= batches*size; seq += 100 {
		commit(t, s, &store.Write{Ops: []store.Op{&store.TrimSession{Session: sess, Seq: seq}}, NoSync: true})
	}
	if n, _ := keys(t, s, tRuns); n > 1+2*trimStep/size {
		t.Errorf("%d records of pointers are left after trimming everything", n)
	}
	again := newSession(sess)
	store.Find[*store.PutSession](again).Row.Epoch = 1
	commit(t, s, again)
	if n, _ := keys(t, s, tRuns); n != 2 {
		t.Errorf("%d records of pointers are left after the row was written, want 2", n)
	}
	commit(t, s, store.NewWrite(&store.Unfollow{Session: sess, Job: job, CorrelationID: "m1"}))
	for name, want := range map[string]int{tFollow: 2, tLive: 1} {
		if n, _ := keys(t, s, name); n != want {
			t.Errorf("%d keys in %s, want %d", n, name, want)
		}
	}
	commit(t, s, store.NewWrite(&store.AppendEvents{Job: job, Attempt: 1, Events: events(job, arcp.JobCompleted), State: arcp.StateCompleted}))
	for _, name := range []string{tFollow, tLive} {
		if n, _ := keys(t, s, name); n != 0 {
			t.Errorf("%d keys in %s after the job has ended", n, name)
		}
	}
}

// TestDamagedDataIsAnError checks that a damaged table or log is an error, at the latest when it is
// read. It never ends the process, and all readable data is right. A log that ends early
// is no damage: it does so after a crash.
func TestDamagedDataIsAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	commit(t, s, newSession(sess), newJob(job))
	const batches, size = 40, 50
	for i := range batches {
		if i == batches/2 {
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		commit(t, s, emit(job, size))
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	noticed := map[string]bool{}
	for _, file := range files {
		for _, harm := range []func([]byte) []byte{flipMiddle, truncated} {
			copied := copyDir(t, dir)
			harmFile(t, filepath.Join(copied, file.Name()), harm)
			n, err := readAll(t, copied)
			if err != nil {
				noticed[filepath.Ext(file.Name())] = true
				wantError(t, err, nil, "")
			} else if n != batches*size && !strings.HasSuffix(file.Name(), ".log") {
				t.Errorf("with %s damaged, %d events are left and nobody notices", file.Name(), n)
			}
		}
	}
	for _, ext := range []string{".log", ".sst", ".blob"} {
		if !noticed[ext] {
			t.Errorf("no damage of a %s file is noticed", ext)
		}
	}
}

func flipMiddle(b []byte) []byte {
	if len(b) > 0 {
		b[len(b)/2] ^= 0x40
	}
	return b
}

func truncated(b []byte) []byte { return b[:len(b)/2] }

func harmFile(t *testing.T, name string, harm func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, harm(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(filepath.Join(to, "store"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(to, "store")
}

// readAll opens a store and reads all data.
func readAll(t *testing.T, dir string) (n int, err error) {
	t.Helper()
	opts := Options{Fatalf: func(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }}
	st, err := Open(dir, opts)
	if err != nil {
		return 0, err
	}
	defer st.Close()
	err = st.SessionEvents(context.Background(), sess, 0, func(d store.Delivery) bool {
		n++
		if d.Event.Type != arcp.Log || d.Event.JSeq != d.Seq || len(d.Event.Body) < 150 {
			t.Errorf("a damaged store gives %+v", d.Event)
		}
		return true
	})
	return n, err
}

// A store that was closed is opened without reading its log again.
func TestCloseLeavesNoLogToReplay(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	commit(t, s, newSession(sess), newJob(job), emit(job, 100))
	if err := s.Close(); err != nil {
		t.Fatalf("Close = %v", err)
	}
	s = mustOpen(t, dir, Options{})
	if n := s.db.Metrics().Levels[0].TablesFlushed; n != 0 {
		t.Errorf("Open has made %d tables of the log, want none", n)
	}
	if n := count(t, s, sess, 0); n != 100 {
		t.Errorf("%d events after Close, want 100", n)
	}
}
