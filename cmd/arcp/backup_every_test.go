package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func namesIn(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// Copies are made at each interval, the oldest are removed, and nothing else is. A failure removes
// nothing, and the next try is at the next interval.
func TestBackupEvery(t *testing.T) {
	dir := t.TempDir()
	other := []string{"20000101T000000Z.tar", "20009901T000000Z", "notes", "readme"}
	for _, name := range other[:3] {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "readme"), "mine")
	write(t, filepath.Join(dir, "19991231T235959Z.partial", "half"), "of a killed server")
	write(t, filepath.Join(dir, "20300101T000000Z.partial", "half"), "of another command")
	other = append(other, "20300101T000000Z.partial")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tries := 0
		var failing atomic.Bool
		var done, failed []string
		r := rotation{dir: dir, every: time.Hour, copies: 2,
			copyTo: func(_ context.Context, path string) (backupAnswer, error) {
				tries++
				if failing.Load() {
					return backupAnswer{}, errors.New("disk full")
				}
				return backupAnswer{Bytes: 1}, os.Mkdir(path, 0o700)
			},
			done:   func(b backupAnswer) error { done = append(done, filepath.Base(b.Dir)); return nil },
			failed: func(err error) { failed = append(failed, err.Error()) },
		}
		ended := make(chan error, 1)
		go func() { ended <- r.run(ctx) }()
		want := func(why string, copies ...string) {
			t.Helper()
			synctest.Wait()
			list := append(slices.Clone(other), copies...)
			slices.Sort(list)
			if got := namesIn(t, dir); !slices.Equal(got, list) {
				t.Errorf("%s: the directory has %q, want %q", why, got, list)
			}
		}
		want("the first copy is made at once, and the older half of a copy is removed", "20000101T000000Z")
		time.Sleep(time.Hour)
		want("one interval later", "20000101T000000Z", "20000101T010000Z")
		failing.Store(true)
		time.Sleep(time.Hour)
		want("a failure", "20000101T000000Z", "20000101T010000Z")
		failing.Store(false)
		time.Sleep(time.Hour)
		want("the third copy replaces the first", "20000101T010000Z", "20000101T030000Z")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run = %v, want no error at the end of its context", err)
		}
		if tries != 4 || !slices.Equal(failed, []string{"disk full"}) || len(done) != 3 || done[2] != "20000101T030000Z" {
			t.Errorf("%d tries, failures %q, copies %q; want 4, 1 and 3", tries, failed, done)
		}
	})
}

// A copy with problems keeps its incomplete name, and the older copies stay.
func TestBackupEveryKeepsOldCopiesOfBadOnes(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "20000101T000000Z", "file"), "good")
	printed := 0
	r := rotation{dir: dir, copies: 1,
		copyTo: func(_ context.Context, path string) (backupAnswer, error) {
			report := &copyReport{Dir: path, Problems: []string{"bad"}}
			return backupAnswer{Verified: report}, errors.Join(os.Mkdir(path, 0o700), report.failure())
		},
		done: func(backupAnswer) error { printed++; return nil },
	}
	if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be relied on") || printed != 1 {
		t.Errorf("run = %v after %d reports, want one report and the failure", err, printed)
	}
	if got := namesIn(t, dir); len(got) != 2 || got[0] != "20000101T000000Z" || !strings.HasSuffix(got[1], partial) {
		t.Errorf("the directory has %q, want the old copy and the incomplete one", got)
	}
}

// Of the copies with problems and those of killed processes, only the newest incomplete one stays.
func TestBackupEveryBoundsIncompleteCopies(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "19990101T000000Z", "file"), "good")
	for _, name := range []string{"19990102T000000Z.partial", "19990103T000000Z.partial", "19990104T000000Z.partial"} {
		write(t, filepath.Join(dir, name, "half"), "of a killed process")
	}
	synctest.Test(t, func(t *testing.T) {
		var before []string // names when the copy begins
		made := true
		r := rotation{dir: dir, copies: 2,
			copyTo: func(_ context.Context, path string) (backupAnswer, error) {
				before = namesIn(t, dir)
				if !made {
					return backupAnswer{}, errors.New("no server")
				}
				report := &copyReport{Dir: path, Problems: []string{"bad"}}
				return backupAnswer{Verified: report}, errors.Join(os.Mkdir(path, 0o700), report.failure())
			},
			done: func(backupAnswer) error { return nil },
		}
		want := func(why string, wantBefore, wantAfter []string) {
			t.Helper()
			if err := r.run(t.Context()); err == nil {
				t.Errorf("%s: no error", why)
			}
			if after := namesIn(t, dir); !slices.Equal(before, wantBefore) || !slices.Equal(after, wantAfter) {
				t.Errorf("%s: before the copy %q, after it %q; want %q and %q", why, before, after, wantBefore, wantAfter)
			}
		}
		const good = "19990101T000000Z"
		killed, first, second := "19990104T000000Z.partial", "20000101T000000Z.partial", "20000101T010000Z.partial"
		want("after killed processes", []string{good, killed}, []string{good, first})
		time.Sleep(time.Hour)
		want("after a failure", []string{good, first}, []string{good, second})
		made = false
		time.Sleep(time.Hour)
		want("a failure without a copy", []string{good, second}, []string{good, second})
	})
}

func TestBackupEveryRefusesItsFlags(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--every", "1ms"}, "--every 1ms: give at least 1s"},
		{[]string{"--every", "-1h"}, `--every: "-1h" is not a duration`},
		{[]string{"--every", "1h", "--keep", "0"}, "--keep 0: give at least 1"},
		{[]string{"--every", "1h", "--data", "x"}, "leave out one of them"},
	} {
		wantRefusal(t, cli(t, append([]string{"backup", dir}, c.args...)...), exitUsage, c.want)
	}
	wantRefusal(t, cli(t, "backup", filepath.Join(dir, "none"), "--every", "1h"), exitUsage, "is not a directory: copies are made below it")
}

// The command makes copies of a server until a signal, and ends with 0.
func TestBackupEveryOfAServer(t *testing.T) {
	t.Parallel()
	p := demoServer(t, "--data", filepath.Join(t.TempDir(), "data"))
	p.detach("demo.echo", `{"a":1}`)
	dir := t.TempDir()
	loop := start(t, nil, "backup", dir, "--admin", p.admin, "--every", "1s", "--keep", "1", "--verify")
	first := <-loop.first
	until(t, "a second copy replaces the first", func() bool {
		list := namesIn(t, dir)
		return len(list) == 1 && !strings.Contains(first, list[0]) && !strings.HasSuffix(list[0], partial)
	})
	loop.signal(syscall.SIGTERM)
	if code := loop.wait(); code != exitOK {
		t.Errorf("exit code after SIGTERM = %d, want 0; log:\n%s", code, loop.errs)
	}
	o := cli(t, "backup", dir, "--admin", p.admin, "--keep", "2")
	wantOutcome(t, "one copy below the directory", o, exitOK, dir, "")
	list := namesIn(t, dir)
	wantOutcome(t, "the last copy", cli(t, "backup", "verify", filepath.Join(dir, list[len(list)-1])), exitOK, "1 job,", "")
}
