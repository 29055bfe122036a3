//go:build linux

package access

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// readPortable returns the content of a file.
func readPortable(f portableFiles, name string) ([]byte, error) {
	file, err := f.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// The portable walk has the results of the walk with descriptors, but for links on a proc file system, which other
// systems do not have, and existing files, which are not opened for writing.
func TestPortablePathTricksStayInTheLease(t *testing.T) {
	b := newTree(t)
	b.traps()
	files := portableFiles{b.files()}
	for _, c := range pathTricks {
		if strings.Contains(c.path, "proc") || strings.HasPrefix(c.path, "//dev") {
			continue
		}
		name := b.dir + "/" + c.path
		if rest, ok := strings.CutPrefix(c.path, "//"); ok {
			name = "/" + rest
		} else if c.path == "/" {
			name = "/"
		}
		data, err := readPortable(files, name)
		want(t, err, c.read, "read "+c.path)
		if err == nil && string(data) == "secret" && c.path != "ws/hard" {
			t.Errorf("read %s: got the secret", c.path)
		}
		wantOnlyPath(t, err, name)
		_, err = files.OpenFile(name, os.O_RDWR, 0)
		if c.write == "ok" || c.path == "ws/hard" {
			want(t, err, "unimplemented", "write "+c.path)
		} else {
			want(t, err, c.write, "write "+c.path)
		}
		_, err = files.Stat(name)
		wantOnlyPath(t, err, name)
	}
	b.wantUnchanged()
}

func TestPortableFilesChange(t *testing.T) {
	b := newTree(t)
	b.traps()
	files := portableFiles{b.files()}
	f, err := files.OpenFile(b.at("ws/new"), os.O_WRONLY|os.O_CREATE, 0o640)
	b.must(err)
	_, err = f.WriteString("new")
	b.must(errors.Join(err, f.Close()))
	b.must(os.Chmod(b.at("ws/f"), 0o600))
	b.must(files.WriteFile(b.at("ws/f"), []byte("replaced"), 0o644))
	b.must(files.WriteFile(b.at("ws/dangling"), []byte("target"), 0o644)) // creates or replaces ws/new
	b.must(files.Mkdir(b.at("ws/d"), 0o755))
	b.must(files.MkdirAll(b.at("ws/deep/er/est"), 0o755))
	b.must(files.Rename(b.at("ws/d"), b.at("ws/e")))
	b.must(files.Rename(b.at("ws/e"), b.at("ws/empty/e")))
	b.must(files.Remove(b.at("ws/empty/e")))
	b.must(files.Remove(b.at("ws/out"))) // the link
	for name, text := range map[string]string{"ws/f": "replaced", "ws/new": "target"} {
		if data, err := readPortable(files, b.at(name)); err != nil || string(data) != text {
			t.Errorf("%s has %q, %v, want %q", name, data, err, text)
		}
	}
	info, err := files.Stat(b.at("ws/f"))
	if err != nil || info.Mode() != 0o600 || info.Name() != "f" {
		t.Errorf("Stat = %v, %v, want the old mode", info, err)
	}
	list, err := files.ReadDir(b.at("ws/dirlink"))
	if err != nil || len(list) != 2 || list[0].Name() != "b" {
		t.Errorf("ReadDir = %v, %v, want b and f", list, err)
	}
	if _, err := list[1].Info(); err != nil {
		t.Errorf("Info: %v", err)
	}
	b.wantUnchanged()
}

func TestPortableFilesRefuse(t *testing.T) {
	b := newTree(t)
	b.traps()
	files := portableFiles{b.files()}
	for text, c := range map[string]struct {
		err  error
		want string
	}{
		"mkdir of a link":        {files.Mkdir(b.at("ws/outdir"), 0o755), "exists"},
		"mkdir outside":          {files.Mkdir(b.at("ws/outdir/x"), 0o755), "denied"},
		"mkdir all outside":      {files.MkdirAll(b.at("ws/outdir/x/y"), 0o755), "denied"},
		"mkdir all over a file":  {files.MkdirAll(b.at("ws/f"), 0o755), "not a directory"},
		"write outside":          {files.WriteFile(b.at("ws/out"), nil, 0o644), "denied"},
		"write of a fifo":        {files.WriteFile(b.at("ws/fifo"), nil, 0o644), "denied"},
		"write without a parent": {files.WriteFile(b.at("ws/nothing/x"), nil, 0o644), "missing"},
		"remove outside":         {files.Remove(b.at("ws/outdir/f")), "denied"},
		"move out":               {files.Rename(b.at("ws/f"), b.at("out/x")), "denied"},
		"move without a parent":  {files.Rename(b.at("ws/f"), b.at("ws/nothing/x")), "missing"},
	} {
		want(t, c.err, c.want, text)
	}
	_, err := files.ReadDir(b.at("ws/f"))
	want(t, err, "not a directory", "list a file")
	_, err = files.ReadDir(b.at("ws/outdir"))
	want(t, err, "denied", "list outside")
	_, err = files.OpenFile(b.at("ws/f"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	want(t, err, "exists", "create a file that exists")
	b.wantUnchanged()
	if len(b.names("ws/a")) != 2 {
		t.Errorf("ws/a has %v", b.names("ws/a"))
	}
}

func (t tree) names(dir string) (names []string) {
	list, err := os.ReadDir(t.at(dir))
	t.must(err)
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// One process swaps directories, files, links and fifos while others read and write. Nothing outside is read or
// changed.
func TestPortableSwapsWhileOpening(t *testing.T) {
	b := newTree(t)
	for name, target := range map[string]string{"ws/dirtrap": b.at("out"), "ws/filetrap": b.at("out/f")} {
		b.link(target, name)
	}
	b.must(os.MkdirAll(b.at("ws/d"), 0o755))
	for _, name := range []string{"ws/d/f", "ws/x"} {
		b.must(os.WriteFile(b.at(name), []byte("inside"), 0o644))
	}
	b.must(unix.Mkfifo(b.at("ws/fifo"), 0o644))
	stop := make(chan struct{})
	var attackers, users sync.WaitGroup
	for _, pair := range [][2]string{{"ws/d", "ws/dirtrap"}, {"ws/x", "ws/filetrap"}, {"ws/fifo", "ws/d"}, {"ws/fifo", "ws/x"}} {
		attackers.Go(func() { b.exchange(stop, pair[0], pair[1]) })
	}
	files := portableFiles{b.files()}
	var read, wrote int
	users.Go(func() {
		for range 3000 {
			for _, name := range []string{"ws/x", "ws/d/f"} {
				data, err := readPortable(files, b.at(name))
				if strings.Contains(string(data), "secret") {
					t.Errorf("%s: got the secret", name)
				}
				if err == nil {
					read++
				}
			}
		}
	})
	users.Go(func() {
		for range 1000 {
			for _, name := range []string{"ws/x", "ws/d/f"} {
				if files.WriteFile(b.at(name), []byte("inside"), 0o644) == nil {
					wrote++
				}
			}
			_ = files.MkdirAll(b.at("ws/d/deep/er"), 0o755) // it may be replaced meanwhile
			_ = files.Remove(b.at("ws/d/deep/er"))          // the other goroutine may have moved it
			if f, err := files.OpenFile(b.at("ws/d/new"), os.O_WRONLY|os.O_CREATE, 0o644); err == nil {
				_ = f.Close()
			}
			_ = files.Remove(b.at("ws/d/new"))
		}
	})
	users.Wait()
	close(stop)
	attackers.Wait()
	b.wantUnchanged()
	if read == 0 || wrote == 0 {
		t.Errorf("%d reads and %d writes succeeded: the test tests nothing", read, wrote)
	}
}

var _ fs.DirEntry = portableEntry{}
