package pebble

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/runtime/store"
)

// makeCopy makes a copy of a store whose data is in tables, in files of values and in a log.
func makeCopy(t *testing.T) (dir string) {
	t.Helper()
	s := reopen(t, t.TempDir())
	defer s.Close()
	commit(t, s, newSession(sess), newJob(job), emit(job, 50), newJob("job_2"), emit("job_2", 3000))
	commit(t, s, store.NewWrite().Put(store.Record{Key: "identity", Value: []byte(strings.Repeat("v", 2*separateBytes))}))
	s.flush()
	commit(t, s, emit(job, 1)) // stays in the log
	dir = filepath.Join(t.TempDir(), "copy")
	if err := s.Backup(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*.sst", "*.blob", "*.log"} {
		if names, _ := filepath.Glob(filepath.Join(dir, pattern)); len(names) == 0 {
			t.Fatalf("the copy has no %s", pattern)
		}
	}
	return dir
}

func reopen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*Store)
}

// problems returns what OpenCopy and Check find.
func problems(t *testing.T, dir string) (found []string, c Contents) {
	t.Helper()
	cp, err := OpenCopy(dir, Options{})
	if err != nil {
		return []string{err.Error()}, c
	}
	defer cp.Close()
	c, err = cp.Check(t.Context(), func(err error) { found = append(found, err.Error()) })
	if err != nil {
		t.Errorf("Check = %v", err)
	}
	return found, c
}

// files returns the content of the files of a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, e := range must2(os.ReadDir(dir)) {
		all[e.Name()] = string(must2(os.ReadFile(filepath.Join(dir, e.Name()))))
	}
	return all
}

func must2[T any](v T, err error) T {
	must(err)
	return v
}

// A whole copy has no problems, and the check changes none of its bytes.
func TestCheckWholeCopy(t *testing.T) {
	dir := makeCopy(t)
	before := files(t, dir)
	found, c := problems(t, dir)
	if len(found) > 0 {
		t.Errorf("problems of a whole copy: %q", found)
	}
	if want := (Contents{Sessions: 1, Jobs: map[string]int{"": 2}, Events: 3051}); !reflect.DeepEqual(c, want) {
		t.Errorf("contents = %+v, want %+v", c, want)
	}
	if !maps.Equal(before, files(t, dir)) {
		t.Error("the check has changed the copy")
	}
	cp := must2(OpenCopy(dir, Options{}))
	defer cp.Close()
	if rec, err := cp.Get(t.Context(), "identity"); err != nil || rec.Rev == 0 {
		t.Errorf("Get = %+v, %v, want the record", rec, err)
	}
	n := 0
	if err := cp.Records(t.Context(), "ident", "", func(store.Record) bool { n++; return true }); err != nil || n != 1 {
		t.Errorf("Records = %d records, %v, want 1", n, err)
	}
}

// Each damage of a file is found.
func TestCheckDamagedCopy(t *testing.T) {
	whole := makeCopy(t)
	flip := func(at func(size int) int) func(text []byte) []byte {
		return func(text []byte) []byte {
			text[at(len(text))] ^= 0x20
			return text
		}
	}
	begin, middle := func(int) int { return 20 }, func(size int) int { return size / 2 }
	for _, c := range []struct {
		name, pattern string
		change        func(text []byte) []byte
		want          string
	}{
		{"first block of a table", "*.sst", flip(begin), "checksum"},
		{"middle of a table", "*.sst", flip(middle), ""},
		{"end of a table", "*.sst", flip(func(size int) int { return size - 3 }), ""},
		{"short table", "*.sst", func(text []byte) []byte { return text[:len(text)/2] }, ""},
		{"no table", "*.sst", nil, ""},
		{"values", "*.blob", flip(middle), ""},
		{"no values", "*.blob", nil, ""},
		{"list of files", "MANIFEST-*", flip(middle), "the list of files is damaged"},
		{"short list of files", "MANIFEST-*", func(text []byte) []byte { return text[:len(text)-5] }, "the list of files is damaged"},
		{"empty list of files", "MANIFEST-*", func([]byte) []byte { return nil }, "the list of files is damaged"},
		{"no list of files", "MANIFEST-*", nil, ""},
		{"no name of the list of files", "marker.manifest.*", nil, "there is no store"},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		must(os.CopyFS(dir, os.DirFS(whole)))
		names, _ := filepath.Glob(filepath.Join(dir, c.pattern))
		if len(names) == 0 {
			t.Fatalf("%s: there is no %s", c.name, c.pattern)
		}
		if c.change == nil {
			must(os.Remove(names[0]))
		} else {
			must(os.WriteFile(names[0], c.change(must2(os.ReadFile(names[0]))), 0o600))
		}
		before := files(t, dir)
		found, _ := problems(t, dir)
		if len(found) == 0 || !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s: problems %q, want one with %q", c.name, found, c.want)
		}
		if !maps.Equal(before, files(t, dir)) {
			t.Errorf("%s: the check has changed the copy", c.name)
		}
	}
}

// A table that the list of files does not name is reported: the list may be an old one.
func TestCheckUnlistedTable(t *testing.T) {
	dir := makeCopy(t)
	names, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
	must(os.WriteFile(filepath.Join(dir, "999999.sst"), must2(os.ReadFile(names[0])), 0o600))
	if found, _ := problems(t, dir); len(found) != 1 || !strings.Contains(found[0], "999999.sst: the list of files does not name it") {
		t.Errorf("problems = %q, want the table", found)
	}
}

// Rows that no version writes, and rows that are missing, are reported one by one.
func TestCheckRows(t *testing.T) {
	dir := t.TempDir()
	s := reopen(t, dir)
	commit(t, s, newSession(sess), newJob(job), emit(job, 3))
	b := s.db.NewBatch()
	must(b.Set([]byte("x/unknown"), nil, nil))
	must(b.Set(jobKey(nil, tJob, "job_9"), []byte("\xff"), nil))
	must(b.Set(jobKey(nil, tStatus, "job_9"), []byte("\xff"), nil))
	must(b.Set(chunkKey(nil, job, 9), []byte("\xff"), nil))
	must(b.Commit(nil))
	must(s.Close())
	found, _ := problems(t, dir)
	for _, want := range []string{`key "x/unknown": it has an unknown form`, `key "j/`, `key "jt/`, `key "je/`} {
		if !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("problems = %q, want one with %q", found, want)
		}
	}
}

// Missing events and a missing row of a live job are found.
func TestCheckMissingRows(t *testing.T) {
	dir := t.TempDir()
	s := reopen(t, dir)
	commit(t, s, newSession(sess), newJob(job), emit(job, 3))
	commit(t, s, emit(job, 3))
	must(s.db.Delete(chunkKey(nil, job, 1), nil))
	must(s.Close())
	if found, _ := problems(t, dir); len(found) != 1 || !strings.Contains(found[0], "the events from 1 to") {
		t.Errorf("problems = %q, want the missing events", found)
	}
	s = reopen(t, dir)
	err := s.JobEvents(t.Context(), job, 0, func(*store.Event) bool { return true })
	wantError(t, err, nil, `job "job_1": the events from 1 to 3 are missing`)
	must(s.db.Delete(jobKey(nil, tJob, job), nil))
	must(s.db.DeleteRange([]byte(tChunk), after([]byte(tChunk)), nil))
	must(s.Close())
	if found, _ := problems(t, dir); len(found) == 0 || !strings.Contains(found[0], `job "job_1"`) {
		t.Errorf("problems = %q, want the missing job", found)
	}
}

// The check of a copy that was opened as a store changes nothing, not even the time of its lock file. A store that
// is open in another process is not checked, and no store opens during the check.
func TestCheckLocksWithoutAChange(t *testing.T) {
	dir := makeCopy(t)
	must(reopen(t, dir).Close())
	lock := filepath.Join(dir, "LOCK")
	must(os.Chtimes(lock, time.Unix(1, 0), time.Unix(1, 0)))
	must(os.Chmod(lock, 0o400))
	before := must2(os.Stat(lock))
	cp := must2(OpenCopy(dir, Options{}))
	if after := must2(os.Stat(lock)); !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the check has set the time of the lock file to %v", after.ModTime())
	}
	if _, err := OpenCopy(dir, Options{}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a second OpenCopy in this process = %v, want ErrLocked", err)
	}
	must(os.Chmod(lock, 0o600))
	if err := openInChildFails(t, dir); !strings.Contains(err, "lock "+dir) {
		t.Errorf("another process opens the store during the check and prints %q, want a lock", err)
	}
	must(cp.Close())
	stop := openInChild(t, dir)
	defer stop()
	if _, err := OpenCopy(dir, Options{}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("OpenCopy of a store that another process has open = %v, want ErrLocked", err)
	}
}

// openInChildFails returns the output of another process that opens the store.
func openInChildFails(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLockedChild$")
	cmd.Env = append(os.Environ(), lockDirEnv+"="+dir)
	out, err := cmd.CombinedOutput() // its standard input is empty, so that it ends
	if err == nil {
		t.Error("another process has opened the store")
	}
	return string(out)
}

// A directory in use is not checked, and a check ends with its context.
func TestCheckRefusals(t *testing.T) {
	dir := t.TempDir()
	s := reopen(t, dir)
	defer s.Close()
	if _, err := OpenCopy(dir, Options{}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("OpenCopy of a store in use = %v, want ErrLocked", err)
	}
	if _, err := OpenCopy(filepath.Join(dir, "none"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenCopy of no directory = %v, want ErrNotExist", err)
	}
	cp := must2(OpenCopy(makeCopy(t), Options{}))
	defer cp.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cp.Check(ctx, func(err error) { t.Errorf("problem %v", err) }); !errors.Is(err, context.Canceled) {
		t.Errorf("Check = %v, want that it is cancelled", err)
	}
}
