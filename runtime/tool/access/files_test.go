//go:build linux

package access

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"golang.org/x/sys/unix"
)

// tree is a directory with a workspace, ws, which a lease covers, and files outside of the
// workspace.
type tree struct {
	*testing.T
	dir string
}

func newTree(t *testing.T) tree {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := tree{t, dir}
	for _, d := range []string{"ws/a/b", "ws/empty", "ws/ünïcode", "ws2", "out/dir", "shared"} {
		b.must(os.MkdirAll(b.at(d), 0o755))
	}
	for _, f := range []string{"ws/f", "ws/a/f", "ws/a/b/f", "ws/ünïcode/f", "ws/%2e%2e", "ws/sp ace", "ws/a*", "shared/f"} {
		b.must(os.WriteFile(b.at(f), []byte("inside"), 0o644))
	}
	for _, f := range []string{"ws2/f", "out/f", "out/dir/f", "wsf"} {
		b.must(os.WriteFile(b.at(f), []byte("secret"), 0o644))
	}
	return b
}

func (t tree) at(name string) string { return filepath.Join(t.dir, name) }

func (t tree) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (t tree) link(target, name string) { t.Helper(); t.must(os.Symlink(target, t.at(name))) }

func (t tree) files() *Files {
	places := []string{t.at("ws"), t.at("shared"), "/proc/self", "/dev/fd", "/dev/null"}
	return NewFiles(lease{arcp.NamespaceFSRead: places, arcp.NamespaceFSWrite: places}.check)
}

// wantUnchanged fails if something outside of the workspace has changed.
func (t tree) wantUnchanged() {
	t.Helper()
	for _, f := range []string{"ws2/f", "out/f", "out/dir/f", "wsf"} {
		if data, err := os.ReadFile(t.at(f)); err != nil || string(data) != "secret" {
			t.Errorf("%s is %q, %v: it is outside and must not change", f, data, err)
		}
	}
	for dir, n := range map[string]int{"ws2": 1, "out": 2, "out/dir": 1} {
		if list, _ := os.ReadDir(t.at(dir)); len(list) != n {
			t.Errorf("%s has %v: nothing may be made or removed there", dir, list)
		}
	}
}

func (t tree) traps() {
	d := t.dir
	for name, target := range map[string]string{
		"rel": "a/f", "abs": d + "/ws/a/f", "dirlink": "a", "self": ".", "parent": "..", "root": "/",
		"out": d + "/out/f", "outdir": d + "/out", "outrel": "../out/f", "gone": d + "/out/nothing", "gonedeep": d + "/nowhere/x/y",
		"dangling": "new", "danglingdir": "nodir/new", "sibling": d + "/ws2/f", "sibdir": "../ws2",
		"c1": "c2", "c2": "c3", "c3": "a/b/f", "o1": "o2", "o2": "o3", "o3": "../out/f",
		"l1": "l2", "l2": "l1", "selfloop": "selfloop", "deeploop": "deeploop/x",
		"viaout": d + "/out/dir/../../ws/f", "vianowhere": d + "/nowhere/dir/../../ws/f", "viain": "a/b/../f",
		"updown": "../ws/f", "slashes": "a//b///f", "dot": "./a/./f", "trail": "a/b/", "trailfile": "f/",
		"shared": "../shared/f", "shareddir": "../shared", "notdir": "f/x", "outfile": d + "/out/f/x",
		"proc": "/proc/self/root" + d + "/out/f", "proccwd": "/proc/self/cwd", "null": "/dev/null", "zero": "/dev/zero",
		"control": "a\nb", "outloop": d + "/outloop", "manyup": strings.Repeat("../", 200) + "etc/passwd",
	} {
		t.link(target, "ws/"+name)
	}
	t.link("outloop", "outloop")
	t.link(d+"/ws/f", "back") // outside, leads in
	t.link("../back", "ws/there-and-back")
	for i := range 45 {
		t.link("chain"+strconv.Itoa(i+1), "ws/chain"+strconv.Itoa(i))
	}
	t.link("f", "ws/chain45")
	t.must(unix.Mkfifo(t.at("ws/fifo"), 0o644))
	t.link("fifo", "ws/fifolink")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	t.must(err)
	t.Cleanup(func() { unix.Close(fd) })
	t.Chdir(t.at("ws")) // the path of a socket is short
	t.must(unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"}))
	t.must(os.Link(t.at("out/f"), t.at("ws/hard")))
}

// pathTricks are paths below the tree with the results of reading and of writing without
// creating.
var pathTricks = []struct{ path, read, write string }{
	// Allowed paths.
	{"ws/f", "ok", "ok"},
	{"ws/a/b/f", "ok", "ok"},
	{"ws/ünïcode/f", "ok", "ok"},
	{"ws/sp ace", "ok", "ok"},
	{"ws/a*", "ok", "ok"},
	{"ws/%2e%2e", "ok", "ok"},
	{"ws/./a/./f", "ok", "ok"},
	{"ws//a///f", "ok", "ok"},
	{"ws/f/", "ok", "ok"},
	{"ws/a/../f", "ok", "ok"},
	{"ws/a/b/../../f", "ok", "ok"},
	{"ws/nothing/../f", "ok", "ok"}, // cleaned as text
	{"out/../ws/f", "ok", "ok"},
	{"shared/f", "ok", "ok"},
	{"ws/rel", "ok", "ok"},
	{"ws/abs", "ok", "ok"},
	{"ws/dirlink/f", "ok", "ok"},
	{"ws/dirlink/b/f", "ok", "ok"},
	{"ws/self/f", "ok", "ok"},
	{"ws/self/self/self/f", "ok", "ok"},
	{"ws/c1", "ok", "ok"},
	{"ws/viain", "ok", "ok"},
	{"ws/updown", "ok", "ok"},
	{"ws/slashes", "ok", "ok"},
	{"ws/dot", "ok", "ok"},
	{"ws/trail/f", "ok", "ok"},
	{"ws/trailfile", "ok", "ok"},
	{"ws/shared", "ok", "ok"},
	{"ws/shareddir/f", "ok", "ok"},
	{"ws/chain6", "ok", "ok"}, // 40 links
	{"ws/there-and-back", "ok", "ok"},
	{"ws/parent/ws/f", "ok", "ok"},
	{"ws/root/../f", "ok", "ok"},
	{"ws/hard", "ok", "denied"},

	// Missing files.
	{"ws/nothing", "missing", "missing"},
	{"ws/nothing/f", "missing", "missing"},
	{"ws/F", "missing", "missing"},
	{"ws/ｆ", "missing", "missing"},
	{"ws/f ", "missing", "missing"},
	{"ws/f.", "missing", "missing"},
	{"ws/u\u0308nïcode/f", "missing", "missing"}, // decomposed
	{"ws/a／f", "missing", "missing"},
	{"ws/a∕f", "missing", "missing"},
	{"ws/‥/out/f", "missing", "missing"},
	{"ws/...", "missing", "missing"},
	{"ws/a\\f", "missing", "missing"},
	{"ws/..\\out\\f", "missing", "missing"},
	{"ws/%2e%2e/out/f", "not a directory", "not a directory"},
	{"ws/dangling", "missing", "missing"},
	{"ws/danglingdir", "missing", "missing"},
	{"ws/f/x", "not a directory", "not a directory"},
	{"ws/notdir", "not a directory", "not a directory"},
	{"ws/f/../f", "ok", "ok"},
	{"ws/l1", "too many levels of symbolic links", "too many levels of symbolic links"},
	{"ws/selfloop", "too many levels of symbolic links", "too many levels of symbolic links"},
	{"ws/selfloop/x", "too many levels of symbolic links", "too many levels of symbolic links"},
	{"ws/deeploop", "too many levels of symbolic links", "too many levels of symbolic links"},
	{"ws/chain5", "too many levels of symbolic links", "too many levels of symbolic links"},
	{"ws/a", "is a directory", "is a directory"},
	{"ws", "is a directory", "is a directory"},
	{"ws/trail", "is a directory", "is a directory"},
	{"ws/self", "is a directory", "is a directory"},

	// Out of the workspace by text.
	{"", "denied", "denied"},
	{"/", "denied", "denied"},
	{"ws/..", "denied", "denied"},
	{"ws/../out/f", "denied", "denied"},
	{"ws/a/../../out/f", "denied", "denied"},
	{"ws/a/b/../../../ws2/f", "denied", "denied"},
	{"out/f", "denied", "denied"},
	{"out/nothing", "denied", "denied"},
	{"ws2/f", "denied", "denied"},
	{"wsf", "denied", "denied"},
	{"WS/f", "denied", "denied"},
	{"ws /f", "denied", "denied"},
	{"ws./f", "denied", "denied"},
	{"ｗｓ/f", "denied", "denied"},
	{"ws*/f", "denied", "denied"},

	// Links that lead out of the workspace.
	{"ws/out", "denied", "denied"},
	{"ws/out/", "denied", "denied"},
	{"ws/outdir", "denied", "denied"},
	{"ws/outdir/f", "denied", "denied"},
	{"ws/outdir/dir/f", "denied", "denied"},
	{"ws/outdir/nothing", "denied", "denied"},
	{"ws/outdir/nothing/x", "denied", "denied"},
	{"ws/outdir/f/x", "denied", "denied"},
	{"ws/outrel", "denied", "denied"},
	{"ws/gone", "denied", "denied"},
	{"ws/gonedeep", "denied", "denied"},
	{"ws/outfile", "denied", "denied"},
	{"ws/outloop", "denied", "denied"},
	{"ws/sibling", "denied", "denied"},
	{"ws/sibdir/f", "denied", "denied"},
	{"ws/o1", "denied", "denied"},
	{"ws/parent", "denied", "denied"},
	{"ws/parent/out/f", "denied", "denied"},
	{"ws/parent/ws2/f", "denied", "denied"},
	{"ws/parent/wsf", "denied", "denied"},
	{"ws/root/etc/passwd", "denied", "denied"},
	{"ws/self/parent/out/f", "denied", "denied"},
	{"ws/dirlink/../outdir/f", "denied", "denied"},
	{"ws/manyup", "denied", "denied"},
	{"ws/viaout", "denied", "denied"},     // would reveal that out/dir exists
	{"ws/vianowhere", "denied", "denied"}, // and this that it does not
	{"ws/outdir/" + strings.Repeat("x", 300), "denied", "denied"},

	// Special files and links.
	{"ws/fifo", "denied", "denied"},
	{"ws/fifolink", "denied", "denied"},
	{"ws/socket", "denied", "denied"},
	{"ws/null", "denied", "denied"},
	{"ws/zero", "denied", "denied"},
	{"ws/proc", "denied", "denied"},
	{"ws/proccwd", "denied", "denied"},
	{"ws/proccwd/f", "denied", "denied"},
	{"//proc/self/root", "denied", "denied"},
	{"//proc/self/cwd/f", "denied", "denied"},
	{"//proc/self/exe", "denied", "denied"},
	{"//proc/self/fd/0", "denied", "denied"},
	{"//proc/self/environ", "denied", "denied"},
	{"//dev/fd/0", "denied", "denied"},
	{"//dev/null", "denied", "denied"},
	{"//etc/passwd", "denied", "denied"},

	// Malformed.
	{"ws/f\x00", "malformed", "malformed"},
	{"ws/f\x00/../../out/f", "malformed", "malformed"},
	{"ws/f\n", "malformed", "malformed"},
	{"ws/\x1b[2J", "malformed", "malformed"},
	{"ws/\x7f", "malformed", "malformed"},
	{"ws/\u0085", "malformed", "malformed"},
	{"ws/\xff\xfe", "malformed", "malformed"},
	{"ws/" + strings.Repeat("x/", 2500) + "f", "malformed", "malformed"},
	{"ws/control", "denied", "denied"}, // by a link only
	{"ws/" + strings.Repeat("x", 300), "file name too long", "file name too long"},
	{"ws/" + strings.Repeat("self/", 39) + "f", "ok", "ok"},
	{"ws/" + strings.Repeat("self/", 41) + "f", "too many levels of symbolic links", "too many levels of symbolic links"},
}

func TestPathTricksStayInTheLease(t *testing.T) {
	b := newTree(t)
	b.traps()
	files := b.files()
	if len(pathTricks) < 100 {
		t.Errorf("only %d tricks", len(pathTricks))
	}
	for _, c := range pathTricks {
		name := b.dir + "/" + c.path
		if rest, ok := strings.CutPrefix(c.path, "//"); ok {
			name = "/" + rest
		} else if c.path == "/" {
			name = "/"
		}
		data, err := files.ReadFile(name, 100)
		want(t, err, c.read, "read "+c.path)
		if err == nil && string(data) == "secret" && c.path != "ws/hard" {
			t.Errorf("read %s: got the secret", c.path)
		}
		wantOnlyPath(t, err, name)
		f, err := files.OpenFile(name, os.O_RDWR, 0)
		want(t, err, c.write, "write "+c.path)
		if err == nil {
			f.Close()
		}
		_, err = files.Stat(name)
		wantOnlyPath(t, err, name)
	}
	b.wantUnchanged()
}

// wantOnlyPath fails if a refusal contains more than the requested path.
func wantOnlyPath(t *testing.T, err error, asked string) {
	t.Helper()
	if err == nil {
		return
	}
	for _, hint := range []string{"secret", "nowhere", "/out/nothing", "/out/f"} {
		if strings.Contains(err.Error(), hint) && !strings.Contains(filepath.Clean(asked), hint) {
			t.Errorf("%q: the error tells of %s: %v", asked, hint, err)
		}
	}
}

func TestRelativePathIsMalformed(t *testing.T) {
	b := newTree(t)
	t.Chdir(b.at("ws"))
	for _, name := range []string{"", ".", "f", "./f", "../out/f", "~/f", "file:///etc/passwd", "C:\\f", "\\etc"} {
		_, err := b.files().Open(name)
		want(t, err, "malformed", strconv.Quote(name))
	}
}

func TestErrorsOutsideAllowedPathsAreEqual(t *testing.T) {
	b := newTree(t)
	var texts []string
	for _, target := range []string{"/out/f", "/out/nothing", "/nowhere/x", "/out/f/x", "/out/dir", "/out/dir/../../ws/f", "/nowhere/../ws/f"} {
		b.link(b.dir+target, "ws/x")
		for _, op := range []func(string) error{
			func(p string) error { _, err := b.files().Open(p); return err },
			func(p string) error { _, err := b.files().Stat(p); return err },
			func(p string) error { _, err := b.files().ReadDir(p); return err },
			func(p string) error { _, err := b.files().Create(p); return err },
			func(p string) error { return b.files().WriteFile(p, nil, 0o644) },
			func(p string) error { return b.files().MkdirAll(p, 0o755) },
			func(p string) error { return b.files().Remove(p + "/y") },
		} {
			err := op(b.at("ws/x"))
			if err == nil {
				t.Fatalf("a link to %s was followed", target)
			}
			texts = append(texts, strings.Replace(err.Error(), "/y", "", 1))
		}
		b.must(os.Remove(b.at("ws/x")))
	}
	slices.Sort(texts)
	if texts = slices.Compact(texts); len(texts) != 1 {
		t.Errorf("what is outside can be told from the refusals: %q", texts)
	}
	b.wantUnchanged()
}

func TestCreatedFilesStayInTheLease(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	for _, c := range []struct{ path, create, write, mkdir string }{
		{"ws/new", "ok", "ok", "ok"},
		{"ws/a/new", "ok", "ok", "ok"},
		{"ws/dirlink/new", "ok", "ok", "ok"},
		{"ws/shareddir/new", "ok", "ok", "ok"},
		{"ws/dangling", "ok", "ok", "exists"},
		{"ws/f", "ok", "ok", "exists"},
		{"ws/rel", "ok", "ok", "exists"},
		{"ws/hard", "denied", "ok", "exists"}, // a new file in its place is no other's
		{"ws/nothing/new", "missing", "missing", "missing"},
		{"ws/danglingdir", "missing", "missing", "exists"},
		{"ws/f/new", "not a directory", "not a directory", "not a directory"},
		{"ws/a", "is a directory", "is a directory", "exists"},
		{"ws/fifo", "denied", "denied", "exists"},
		{"ws/socket", "denied", "denied", "exists"},
		{"ws/null", "denied", "denied", "exists"},
		{"ws/out", "denied", "denied", "exists"},
		{"ws/gone", "denied", "denied", "exists"},
		{"ws/gonedeep", "denied", "denied", "exists"},
		{"ws/outdir/new", "denied", "denied", "denied"},
		{"ws/sibdir/new", "denied", "denied", "denied"},
		{"ws/parent/new", "denied", "denied", "denied"},
		{"ws/../new", "denied", "denied", "denied"},
		{"ws/viaout", "denied", "denied", "exists"},
		{"ws/vianowhere", "denied", "denied", "exists"},
		{"out/new", "denied", "denied", "denied"},
		{"ws/new\x00", "malformed", "malformed", "malformed"},
	} {
		for op, result := range map[string]string{"create": c.create, "write": c.write, "mkdir": c.mkdir} {
			t.Run(op+" "+strings.TrimRight(c.path, "\x00"), func(t *testing.T) {
				b := newTree(t)
				b.traps()
				files, err, path := b.files(), error(nil), b.dir+"/"+c.path
				switch op {
				case "create":
					var f *os.File
					if f, err = files.Create(path); err == nil {
						f.Close()
					}
				case "write":
					err = files.WriteFile(path, []byte("new"), 0o644)
				case "mkdir":
					err = files.Mkdir(path, 0o755)
				}
				want(t, err, result, op)
				b.wantUnchanged()
			})
		}
	}
}

func TestWriteFileIsAtomic(t *testing.T) {
	b := newTree(t)
	files := b.files()
	b.must(os.Chmod(b.at("ws/f"), 0o600))
	old, err := files.Open(b.at("ws/f"))
	b.must(err)
	defer old.Close()
	b.must(files.WriteFile(b.at("ws/f"), []byte("new"), 0o644))
	if data, err := files.ReadFile(b.at("ws/f"), 3); err != nil || string(data) != "new" {
		t.Errorf("the file has %q, %v", data, err)
	}
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(old); err != nil || buf.String() != "inside" {
		t.Errorf("a reader of the old file sees %q, %v", buf.String(), err)
	}
	if info, err := files.Stat(b.at("ws/f")); err != nil || info.Mode() != 0o600 || info.Name() != "f" || info.Size() != 3 {
		t.Errorf("Stat = %v, %v; the mode stays", info, err)
	}
	list, err := files.ReadDir(b.at("ws"))
	b.must(err)
	for _, e := range list {
		if strings.HasPrefix(e.Name(), ".arcp-") {
			t.Errorf("%s is left", e)
		}
	}
}

func TestReadDirListsWithinTheLease(t *testing.T) {
	b := newTree(t)
	b.link(b.at("out/f"), "ws/a/leak")
	only := lease{arcp.NamespaceFSRead: {b.at("ws/a")}}
	list, err := NewFiles(only.check).ReadDir(b.at("ws/a"))
	b.must(err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
		info, err := e.Info()
		if err != nil || info.Name() != e.Name() || info.Mode().Type() != e.Type() {
			t.Errorf("Info of %s = %v, %v", e.Name(), info, err)
		}
	}
	if !slices.Equal(names, []string{"b", "f", "leak"}) {
		t.Errorf("ReadDir = %v", names)
	}
	exact := func(_, target string) error {
		if target == b.at("ws/a") {
			return nil
		}
		return only.check(arcp.NamespaceFSRead, "/elsewhere")
	}
	list, err = NewFiles(exact).ReadDir(b.at("ws/a"))
	b.must(err)
	_, err = list[0].Info()
	want(t, err, "denied", "the directory is covered, its entries are not")
	_, err = b.files().ReadDir(b.at("ws/f"))
	want(t, err, "not a directory", "a file is not listed")
}

func TestReadFileLimit(t *testing.T) {
	b := newTree(t)
	for limit, result := range map[int64]string{-1: "toolarge", 0: "toolarge", 5: "toolarge", 6: "ok", 7: "ok"} {
		_, err := b.files().ReadFile(b.at("ws/f"), limit)
		want(t, err, result, "six bytes against "+strconv.FormatInt(limit, 10))
	}
}

func TestReadAndWriteNeedTheirNamespace(t *testing.T) {
	b := newTree(t)
	r, w := NewFiles(lease{arcp.NamespaceFSRead: {b.at("ws")}}.check), NewFiles(lease{arcp.NamespaceFSWrite: {b.at("ws")}}.check)
	for _, c := range []struct {
		flag        int
		read, write string
	}{
		{os.O_RDONLY, "ok", "denied"},
		{os.O_WRONLY, "denied", "ok"},
		{os.O_RDWR, "denied", "denied"},
		{os.O_WRONLY | os.O_APPEND, "denied", "ok"},
		{os.O_WRONLY | os.O_CREATE | os.O_EXCL, "denied", "exists"},
		{os.O_RDONLY | os.O_CREATE, "malformed", "malformed"},
		{os.O_RDONLY | os.O_TRUNC, "malformed", "malformed"},
		{os.O_WRONLY | os.O_RDWR, "malformed", "malformed"},
		{os.O_RDONLY | unix.O_PATH, "malformed", "malformed"},
		{os.O_RDWR | unix.O_TMPFILE, "malformed", "malformed"},
	} {
		for f, result := range map[*Files]string{r: c.read, w: c.write} {
			file, err := f.OpenFile(b.at("ws/f"), c.flag, 0)
			want(t, err, result, "flag "+strconv.FormatInt(int64(c.flag), 8))
			if err == nil {
				file.Close()
			}
		}
	}
	if data, _ := os.ReadFile(b.at("ws/f")); string(data) != "inside" {
		t.Errorf("the file has %q: nothing was to be truncated", data)
	}
	_, err := (&Files{}).Open(b.at("ws/f"))
	want(t, err, "denied", "without a check nothing is allowed")
}

func TestRemoveAndRename(t *testing.T) {
	b := newTree(t)
	b.traps()
	files := b.files()
	want(t, files.Remove(b.at("ws/out")), "ok", "the link goes, not what it names")
	want(t, files.Remove(b.at("ws/outdir")), "ok", "likewise")
	want(t, files.Remove(b.at("ws/parent/out/f")), "denied", "outside")
	want(t, files.Remove(b.at("ws/sibdir/f")), "denied", "outside")
	want(t, files.Remove(b.at("ws/nothing")), "missing", "nothing there")
	want(t, files.Remove(b.at("ws/a")), "exists", "not empty")
	want(t, files.Remove(b.at("ws/empty")), "ok", "an empty directory")
	want(t, files.Remove(b.at("ws/fifo")), "ok", "a fifo")
	want(t, files.Remove("/"), "denied", "the root")
	want(t, files.Rename(b.at("ws/f"), b.at("ws/g")), "ok", "within")
	want(t, files.Rename(b.at("ws/g"), b.at("out/g")), "denied", "out")
	want(t, files.Rename(b.at("out/f"), b.at("ws/g")), "denied", "in")
	want(t, files.Rename(b.at("ws/g"), b.at("ws/sibdir/g")), "denied", "out by a link")
	want(t, files.Rename(b.at("ws/sibdir/f"), b.at("ws/h")), "denied", "in by a link")
	want(t, files.Rename(b.at("ws/g"), b.at("ws/sibling")), "ok", "a link is replaced, not followed")
	want(t, files.Rename(b.at("ws/nothing"), b.at("ws/h")), "missing", "nothing there")
	want(t, files.Rename(b.at("ws/a"), b.at("ws/no/h")), "missing", "nowhere to go")
	b.wantUnchanged()
	all := NewFiles(func(_, _ string) error { return nil })
	if err := all.Remove("/"); err == nil {
		t.Error("the root was removed")
	}
}

func TestMkdirAllStaysInTheLease(t *testing.T) {
	b := newTree(t)
	b.traps()
	files := b.files()
	for path, result := range map[string]string{
		"ws/x/y/z": "ok", "ws/a/b": "ok", "ws/dirlink/q/r": "ok", "ws/f": "not a directory", "ws/f/x": "not a directory",
		"ws/gonedeep": "denied", "ws/outdir/x/y": "denied", "ws/sibdir/x": "denied", "out/x": "denied", "ws/vianowhere": "denied",
	} {
		want(t, files.MkdirAll(b.at(path), 0o755), result, path)
	}
	if info, err := os.Stat(b.at("ws/x/y/z")); err != nil || !info.IsDir() {
		t.Errorf("ws/x/y/z: %v, %v", info, err)
	}
	only := NewFiles(lease{arcp.NamespaceFSWrite: {b.at("ws/p/q/r")}}.check)
	want(t, only.MkdirAll(b.at("ws/p/q/r"), 0o755), "denied", "p and q are not covered")
	if _, err := os.Stat(b.at("ws/p")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ws/p: %v: nothing is made before all is checked", err)
	}
	b.wantUnchanged()
}

func TestOperationsCheckTheirPaths(t *testing.T) {
	b := newTree(t)
	b.link("a/f", "ws/rel")
	a := &asked{lease: lease{arcp.NamespaceFSRead: {b.at("ws")}, arcp.NamespaceFSWrite: {b.at("ws")}}}
	files := NewFiles(a.check)
	for path, questions := range map[string][]string{
		"ws/f":      {"fs.read " + b.at("ws/f")},
		"ws/a/../f": {"fs.read " + b.at("ws/f")},
		"ws/rel":    {"fs.read " + b.at("ws/rel"), "fs.read " + b.at("ws/a/f")},
	} {
		a.log = nil
		_, err := files.ReadFile(b.dir+"/"+path, 100)
		b.must(err)
		if !slices.Equal(a.log, questions) {
			t.Errorf("%s asks %q, want %q", path, a.log, questions)
		}
	}
}

func TestErrorsOfTheCheck(t *testing.T) {
	b := newTree(t)
	b.link("a/f", "ws/rel")
	own := arcp.Errorf(arcp.CodePermissionDenied, "no")
	if _, err := NewFiles(func(_, _ string) error { return own }).Open(b.at("ws/f")); err != error(own) {
		t.Errorf("Open = %v, want the error of the check", err)
	}
	ended := arcp.Errorf(arcp.CodeLeaseExpired, "the lease has ended")
	_, err := NewFiles(func(_, target string) error {
		if target == b.at("ws/a/f") {
			return ended
		}
		return nil
	}).Open(b.at("ws/rel"))
	want(t, err, "expired", "an end of the lease is no refusal of a place")
}

// A directory without permission to read is still a way.
func TestSearchableDirectoriesArePassed(t *testing.T) {
	b := newTree(t)
	b.must(os.Chmod(b.at("ws/a"), 0o711))
	want(t, func() error { _, err := b.files().Open(b.at("ws/a/b/f")); return err }(), "ok", "through a directory of mode 711")
}

func TestHostileLinksAreBounded(t *testing.T) {
	b := newTree(t)
	deep := "ws" + strings.Repeat("/d", 200)
	b.must(os.MkdirAll(b.at(deep), 0o755))
	b.link(strings.Repeat("../d/", 800)+"x", deep+"/up")
	_, err := b.files().Open(b.at(deep + "/up"))
	want(t, err, "too many levels of symbolic links", "160,000 steps")
}

// A refusal of a covered path is reported once. A refusal by the check is not reported: the
// check knows it.
func TestRefusalsAreReported(t *testing.T) {
	b := newTree(t)
	b.traps()
	b.must(os.Link(b.at("ws/f"), b.at("ws/secondname")))
	var told []string
	files := NewFiles(lease{arcp.NamespaceFSRead: {b.at("ws"), "/proc"}, arcp.NamespaceFSWrite: {b.at("ws")}}.check).OnRefusal(func(namespace string, err *arcp.Error) {
		told = append(told, namespace+" "+string(err.Code))
	})
	for _, c := range []struct {
		why  string
		open func() (*os.File, error)
		told []string
	}{
		{"a fifo", func() (*os.File, error) { return files.Open(b.at("ws/fifo")) }, []string{"fs.read PERMISSION_DENIED"}},
		{"a link that is more than its text", func() (*os.File, error) { return files.Open("/proc/self/exe") }, []string{"fs.read PERMISSION_DENIED"}},
		{"a file with two names", func() (*os.File, error) { return files.Create(b.at("ws/secondname")) }, []string{"fs.write PERMISSION_DENIED"}},
		{"another place", func() (*os.File, error) { return files.Open(b.at("out/f")) }, nil},
	} {
		told = nil
		_, err := c.open()
		want(t, err, "denied", c.why)
		if !slices.Equal(told, c.told) {
			t.Errorf("%s: told is %q, want %q", c.why, told, c.told)
		}
	}
}
