package artifact

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "artifacts")
	testContent(t, func() Content {
		files, err := OpenFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}, true)
}

func TestMemory(t *testing.T) {
	testContent(t, func() Content { return new(Memory) }, false)
}

// testContent is the suite of every Content. open returns the Content of a process that has
// started; durable says that it has the content of earlier processes.
func testContent(t *testing.T, open func() Content, durable bool) {
	const a, b, c = "art_a", "art_b", "art_c"
	content := open()
	large := make([]byte, 2*chunkSize+7)
	for i := range large {
		large[i] = byte(i / 251)
	}
	put := func(id arcp.ArtifactID, parts ...[]byte) {
		t.Helper()
		w, err := content.Create(id)
		for _, p := range parts {
			if err == nil {
				_, err = w.Write(p)
			}
		}
		if err == nil {
			err = w.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(why string, id arcp.ArtifactID, want []byte) {
		t.Helper()
		r, err := content.Open(id)
		if err != nil {
			t.Fatalf("%s: %v", why, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", why, len(got), err, len(want))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	missing := func(why string, id arcp.ArtifactID) {
		t.Helper()
		if _, err := content.Open(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: Open = %v, want %v", why, err, fs.ErrNotExist)
		}
	}

	put(a, []byte("hel"), []byte("lo"))
	put(b)
	put(c, large[:chunkSize-1], large[chunkSize-1:])
	want("two writes", a, []byte("hello"))
	want("no content", b, nil)
	want("more than a chunk", c, large)
	missing("another id", "art_d")

	r, err := content.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Seek(chunkSize-2, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 5)
	if _, err := io.ReadFull(r, part); err != nil || !bytes.Equal(part, large[chunkSize-2:chunkSize+3]) {
		t.Errorf("a read after Seek gave %v, %v", part, err)
	}
	if err := errors.Join(content.Remove(c), content.Remove(c)); err != nil {
		t.Errorf("Remove twice = %v", err)
	}
	missing("after Remove", c)
	if rest, err := io.ReadAll(r); err != nil || !bytes.Equal(rest, large[chunkSize+3:]) {
		t.Errorf("content that was opened before Remove has %d more bytes, %v", len(rest), err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}

	aborted, err := content.Create("art_e")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = aborted.Write([]byte("x")) // discarded
	missing("before Commit", "art_e")
	aborted.Abort()
	missing("after Abort", "art_e")
	if _, err := content.Create("art_f"); err != nil { // neither committed nor aborted: the process is killed
		t.Fatal(err)
	}

	content = open()
	ids, err := content.Recover()
	slices.Sort(ids)
	var kept []arcp.ArtifactID
	if durable {
		kept = []arcp.ArtifactID{a, b}
	}
	if err != nil || !slices.Equal(ids, kept) {
		t.Errorf("the next process finds %v, %v; want %v", ids, err, kept)
	}
	put("art_f", []byte("again"))
	want("unfinished content is not in the way", "art_f", []byte("again"))
}

func TestFilesIgnoresOtherFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lost+found"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := files.Recover(); err != nil || len(ids) != 0 {
		t.Errorf("Recover = %v, %v, want nothing", ids, err)
	}
}
