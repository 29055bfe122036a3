//go:build unix

package osfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/arcpd/arcpd/internal/osfile"
)

func TestShared(t *testing.T) {
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode]bool{0o600: false, 0o400: false, 0o700: false, 0o640: true, 0o604: true, 0o620: true, 0o601: true} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := osfile.Shared(info); got != want {
			t.Errorf("Shared(%04o) = %v, want %v", mode, got, want)
		}
	}
}

func TestSyncDir(t *testing.T) {
	dir := t.TempDir()
	if err := osfile.SyncDir(dir); err != nil {
		t.Errorf("sync %s: %v", dir, err)
	}
	if err := osfile.SyncDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("sync of a missing directory: %v, want %v", err, fs.ErrNotExist)
	}
}

// A file is replaced with its mode, and a failure leaves no other file.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, content := range []string{"one", "two"} {
		if err := osfile.Replace(file, []byte(content)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != content {
			t.Errorf("the file has %q, %v, want %q", got, err, content)
		}
	}
	if info, err := os.Stat(file); err != nil || osfile.Shared(info) {
		t.Errorf("the file is %v, %v, want one that only its owner can read", info, err)
	}
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := osfile.Replace(taken, nil); err == nil {
		t.Error("a directory with content was replaced")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("the directory has %v, %v, want the file and the directory", list, err)
	}
}
