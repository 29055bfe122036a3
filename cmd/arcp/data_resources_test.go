package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A server in memory removes the directory of one that was killed, and no other one.
func TestStaleResourcesAreRemoved(t *testing.T) {
	parent := t.TempDir()
	mkdir := func(name string) string {
		path := filepath.Join(parent, name)
		if err := os.MkdirAll(filepath.Join(path, "leased"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stale, other := mkdir(tempResources+"stale"), mkdir("other")
	link := filepath.Join(parent, tempResources+"link")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	first, removeFirst, err := openTempResources(parent)
	if err != nil {
		t.Fatal(err)
	}
	second, removeSecond, err := openTempResources(parent)
	if err != nil {
		t.Fatal(err)
	}
	want := func(why, path string, there bool) {
		t.Helper()
		if _, err := os.Lstat(path); (err == nil) != there {
			t.Errorf("%s: %s exists is %t, want %t", why, path, err == nil, there)
		}
	}
	want("its server was killed", stale, false)
	want("it has another name", filepath.Join(other, "leased"), true)
	want("it is no directory", link, true)
	want("its server runs", first, true)
	want("its server runs", second, true)
	for _, remove := range []func() error{removeFirst, removeSecond} {
		if err := remove(); err != nil {
			t.Errorf("removing the temporary resources: %v", err)
		}
	}
	want("its server has stopped", first, false)
	want("its server has stopped", second, false)
}

// A server does not start on a full disk, and says how much is missing.
func TestFullDiskIsRefused(t *testing.T) {
	if err := checkStartSpace("/var/lib/arcp", minStartSpace); err != nil {
		t.Errorf("enough space is refused: %v", err)
	}
	err := checkStartSpace("/var/lib/arcp", minStartSpace-1<<20)
	if want := "data directory /var/lib/arcp: its disk has 7 MiB free, and a start needs 8 MiB: make room"; err == nil || err.Error() != want {
		t.Errorf("a full disk: %v, want %s", err, want)
	}
}
