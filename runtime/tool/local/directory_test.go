package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func directories(t *testing.T) (*Directories, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	d, err := OpenDirectories(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, root
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestRemoveDeletesTree(t *testing.T) {
	d, root := directories(t)
	name := NewName()
	path, err := d.Make(name)
	must(t, err)
	if path != filepath.Join(root, name) {
		t.Errorf("path of the directory = %s, want %s", path, filepath.Join(root, name))
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory = %v, want 0700", info.Mode())
	}
	must(t, os.MkdirAll(path+"/a/b/c", 0o700), os.WriteFile(path+"/a/b/f", []byte("x"), 0o400), os.Chmod(path+"/a/b", 0o500), os.Chmod(path+"/a", 0o100))
	must(t, d.Remove(t.Context(), name))
	if exists(path) {
		t.Error("the directory exists after Remove")
	}
	must(t, d.Remove(t.Context(), name)) // removing a missing directory is no error
	if _, err := d.Make(name); err != nil {
		t.Errorf("made again: %v", err)
	}
	if _, err := d.Make(name); err == nil {
		t.Error("Make of an existing name = nil, want an error")
	}
}

// Links are removed; their targets stay.
func TestLinksAreNotFollowed(t *testing.T) {
	d, root := directories(t)
	outside := filepath.Join(filepath.Dir(root), "outside")
	other, err := d.Make(NewName())
	must(t, err)
	must(t, os.MkdirAll(outside, 0o700), os.WriteFile(outside+"/f", nil, 0o600), os.WriteFile(other+"/f", nil, 0o600))
	name := NewName()
	path, err := d.Make(name)
	must(t, err)
	must(t, os.Symlink(outside, path+"/out"), os.Symlink(other, path+"/other"), os.Symlink("/", path+"/all"), os.Symlink("../..", path+"/up"))
	must(t, os.Mkdir(path+"/sub", 0o700), os.Symlink(outside, path+"/sub/out"), os.Chmod(path+"/sub", 0o500))
	must(t, d.Remove(t.Context(), name))
	if exists(path) || !exists(outside+"/f") || !exists(other+"/f") {
		t.Error("want only the links to be gone")
	}
	linked := NewName()
	must(t, os.Symlink(outside, filepath.Join(root, linked)))
	must(t, d.Remove(t.Context(), linked))
	if exists(filepath.Join(root, linked)) || !exists(outside+"/f") {
		t.Error("a directory that is a link: want only that to be gone")
	}
}

func TestInvalidDirectoryNames(t *testing.T) {
	d, root := directories(t)
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	for _, bad := range []string{"", ".", "..", "file", "../root", "/", "dir_", "dir_../../x", "dir_" + "/" + NewName(), NewName() + "/x", NewName() + "/..", "DIR_" + NewName()[4:]} {
		if err := d.Remove(t.Context(), bad); err == nil {
			t.Errorf("%q was removed", bad)
		}
		if _, err := d.Make(bad); err == nil {
			t.Errorf("%q was made", bad)
		}
	}
	if !exists(filepath.Join(root, "file")) {
		t.Error("something else is gone")
	}
}

func TestRemoveStopsAtCancel(t *testing.T) {
	d, _ := directories(t)
	name := NewName()
	path, err := d.Make(name)
	must(t, err)
	must(t, os.WriteFile(path+"/f", nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Remove(ctx, name); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if !exists(path + "/f") {
		t.Error("Remove went on after the end of its context")
	}
}

// A directory that is replaced by a link before it is opened is not followed.
func TestReplacedDirectoryIsNotFollowed(t *testing.T) {
	d, root := directories(t)
	other, name, linked := NewName(), NewName(), NewName()
	otherPath, err := d.Make(other)
	must(t, err, os.WriteFile(otherPath+"/f", nil, 0o600), os.Symlink(other, filepath.Join(root, linked)))
	path, err := d.Make(name)
	must(t, err, os.Symlink("../"+other, path+"/sub"))
	top, err := d.root.OpenRoot(name)
	must(t, err)
	if err := empty(t.Context(), top, "sub", 1); err == nil {
		t.Error("a link below is followed to another's directory")
	}
	must(t, top.Close())
	if err := d.empty(t.Context(), linked); err == nil {
		t.Error("a link in place of the directory is followed to another's")
	}
	if !exists(otherPath + "/f") {
		t.Error("another's file is gone")
	}
}
