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
	large := make([]byte, 2*partSize+7)
	for i := range large {
		large[i] = byte(i / 251)
	}
	c := contentTest{t, open()}
	c.put("art_a", []byte("hel"), []byte("lo"))
	c.put("art_b")
	c.put("art_c", large[:blockSize-1], large[blockSize-1:])
	c.want("two writes", "art_a", []byte("hello"))
	c.want("no content", "art_b", nil)
	c.want("more than two parts", "art_c", large)
	c.missing("another id", "art_d")
	c.removeWhileOpen("art_c", large)
	c.leaveUnfinished("art_00E", "art_00F")

	c.Content = open()
	ids, err := c.Recover()
	slices.Sort(ids)
	var kept []arcp.ArtifactID
	if durable {
		kept = []arcp.ArtifactID{"art_a", "art_b"}
	}
	if err != nil || !slices.Equal(ids, kept) {
		t.Errorf("the next process finds %v, %v; want %v", ids, err, kept)
	}
	c.put("art_00F", []byte("again"))
	c.want("unfinished content is not in the way", "art_00F", []byte("again"))
}

// contentTest checks a Content.
type contentTest struct {
	*testing.T
	Content
}

func (c *contentTest) put(id arcp.ArtifactID, parts ...[]byte) {
	c.Helper()
	w, err := c.Create("alice", id)
	for _, p := range parts {
		if err == nil {
			_, err = w.Write(p)
		}
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *contentTest) want(why string, id arcp.ArtifactID, want []byte) {
	c.Helper()
	r, err := c.Open(id)
	if err != nil {
		c.Fatalf("%s: %v", why, err)
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, want) {
		c.Errorf("%s: %d bytes, %v; want %d", why, len(got), err, len(want))
	}
	if err := r.Close(); err != nil {
		c.Error(err)
	}
}

func (c *contentTest) missing(why string, id arcp.ArtifactID) {
	c.Helper()
	if _, err := c.Open(id); !errors.Is(err, fs.ErrNotExist) {
		c.Errorf("%s: Open = %v, want %v", why, err, fs.ErrNotExist)
	}
}

// removeWhileOpen reads from the middle of an artifact, and reads on after Remove.
func (c *contentTest) removeWhileOpen(id arcp.ArtifactID, data []byte) {
	r, err := c.Open(id)
	if err != nil {
		c.Fatal(err)
	}
	if _, err := r.Seek(blockSize-2, io.SeekStart); err != nil {
		c.Fatal(err)
	}
	part := make([]byte, 5)
	if _, err := io.ReadFull(r, part); err != nil || !bytes.Equal(part, data[blockSize-2:blockSize+3]) {
		c.Errorf("a read after Seek gave %v, %v", part, err)
	}
	if err := errors.Join(c.Remove(id), c.Remove(id)); err != nil {
		c.Errorf("Remove twice = %v", err)
	}
	c.missing("after Remove", id)
	for _, offset := range []int64{3, 1} { // in the middle of a request too
		if _, err := r.Seek(offset, io.SeekStart); err != nil {
			c.Error(err)
		}
		if _, err := io.ReadFull(r, part); err != nil || !bytes.Equal(part, data[offset:offset+5]) {
			c.Errorf("a read at %d gave %v, %v", offset, part, err)
		}
	}
	if _, err := r.Seek(blockSize+3, io.SeekStart); err != nil {
		c.Error(err)
	}
	if rest, err := io.ReadAll(r); err != nil || !bytes.Equal(rest, data[blockSize+3:]) {
		c.Errorf("content that was opened before Remove has %d more bytes, %v", len(rest), err)
	}
	if err := r.Close(); err != nil {
		c.Error(err)
	}
}

// leaveUnfinished aborts one artifact, and leaves another as a killed process does.
func (c *contentTest) leaveUnfinished(aborted, killed arcp.ArtifactID) {
	w, err := c.Create("alice", aborted)
	if err != nil {
		c.Fatal(err)
	}
	if _, err := w.Write(make([]byte, partSize+1)); err != nil {
		c.Fatal(err)
	}
	c.missing("before Commit", aborted)
	w.Abort()
	c.missing("after Abort", aborted)
	for range 2 {
		if err := c.Remove(killed); err != nil { // also what is unfinished
			c.Fatal(err)
		}
		w, err := c.Create("alice", killed)
		if err != nil {
			c.Fatal(err)
		}
		if _, err := w.Write(make([]byte, partSize+1)); err != nil {
			c.Fatal(err)
		}
	}
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
