package artifact

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// openUpload begins an upload of a text.
func (f *fixture) openUpload(principal string) arcp.ArtifactID {
	f.t.Helper()
	id, err := f.OpenUpload(Spec{Principal: principal, MediaType: "text/plain"})
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

// putChunks puts an artifact in chunks, as two calls of a client do.
func (f *fixture) putChunks(principal string, chunks ...string) (Row, error) {
	id, err := f.OpenUpload(Spec{Principal: principal, MediaType: "text/plain"})
	var offset int64
	for _, c := range chunks {
		if err == nil {
			offset, err = f.WriteChunk(principal, id, offset, []byte(c))
		}
	}
	if err != nil {
		return Row{}, err
	}
	return f.finish(principal, id, "")
}

// finish finishes an upload and commits its row.
func (f *fixture) finish(principal string, id arcp.ArtifactID, digest string) (Row, error) {
	row, recs, committed, err := f.FinishUpload(principal, id, digest)
	if err == nil {
		err = f.opts.Log.Commit(f.t.Context(), store.NewWrite().Put(recs...), committed)
	}
	return row, err
}

// wantNext writes a chunk and wants the offset of the next one.
func (f *fixture) wantNext(why string, id arcp.ArtifactID, offset int64, data string, want int64) {
	f.t.Helper()
	if next, err := f.WriteChunk("alice", id, offset, []byte(data)); err != nil || next != want {
		f.t.Errorf("%s: next = %d, %v; want %d", why, next, err, want)
	}
}

func TestChunksAreRepeatedAndResumed(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{})
	id := f.openUpload("alice")
	f.wantNext("the first chunk", id, 0, "hel", 3)
	f.wantNext("its answer was lost", id, 0, "hel", 3)
	for why, chunk := range map[string]struct {
		offset int64
		data   string
	}{
		"another chunk at the same offset": {0, "hal"},
		"a chunk that overlaps":            {1, "el"},
		"a gap":                            {4, "o"},
	} {
		_, err := f.WriteChunk("alice", id, chunk.offset, []byte(chunk.data))
		f.wantCode(why, err, arcp.CodeOutOfRange)
		e, _ := arcp.AsError(err)
		if want := fmt.Sprintf(`{"upload_id":%q,"offset":3}`, id); string(e.Details) != want {
			t.Errorf("%s: details %s, want %s", why, e.Details, want)
		}
	}
	_, err := f.WriteChunk("bob", id, 3, []byte("lo"))
	f.wantCode("another principal", err, arcp.CodeNotFound)
	_, _, _, err = f.FinishUpload("bob", id, "")
	f.wantCode("another principal", err, arcp.CodeNotFound)
	f.wantNext("the last chunk", id, 3, "lo", 5)
	row, err := f.finish("alice", id, "")
	if err != nil || row.ID != id {
		t.Fatalf("FinishUpload = %+v, %v", row, err)
	}
	f.wantContent("in order", "alice", id, "hello")

	f.wantNext("the answer to the last chunk was lost", id, 3, "lo", 5)
	again, recs, _, err := f.FinishUpload("alice", id, "")
	if err != nil || again != row || len(recs) != 0 {
		t.Errorf("the repetition = %+v, %d records, %v; want %+v and none", again, len(recs), err, row)
	}
	_, err = f.WriteChunk("alice", id, 5, []byte("!"))
	f.wantCode("more than the artifact has", err, arcp.CodeOutOfRange)
}

func TestUploadsThatFailLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	files, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, files, Limits{Size: 5})
	tooLarge := f.openUpload("alice")
	_, err = f.WriteChunk("alice", tooLarge, 0, []byte("123456"))
	f.wantCode("too large", err, arcp.CodeInvalidArgument)
	_, err = f.WriteChunk("alice", tooLarge, 0, []byte("1"))
	f.wantCode("the upload is gone", err, arcp.CodeNotFound)

	for _, digest := range []string{"2c", strings.Repeat("0", 64)} {
		id := f.openUpload("alice")
		f.wantNext("a chunk", id, 0, "hello", 5)
		_, err = f.finish("alice", id, digest)
		f.wantCode("the digest "+digest, err, arcp.CodeInvalidArgument)
	}

	notStored := f.openUpload("alice")
	f.log.err = errors.New("the store fails")
	if _, err := f.finish("alice", notStored, ""); err == nil {
		t.Error("an upload that is not stored succeeds")
	}
	f.log.err = nil
	f.DropUpload(f.openUpload("alice"))
	if err := f.Sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) != 0 {
		t.Errorf("files %q, %v", names, err)
	}
	if n, bytes := f.Usage(); n != 0 || bytes != 0 || len(f.principals) != 0 {
		t.Errorf("%d artifacts of %d bytes and %d principals are counted", n, bytes, len(f.principals))
	}
}

func TestUploadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, new(Memory), Limits{})
		var ids []arcp.ArtifactID
		for range maxUploads {
			ids = append(ids, f.openUpload("alice"))
		}
		_, err := f.OpenUpload(Spec{Principal: "alice", MediaType: "text/plain"})
		f.wantCode("one too many", err, arcp.CodeResourceExhausted)
		f.openUpload("bob")
		f.DropUpload(ids[0])
		f.openUpload("alice") // in its place

		time.Sleep(UploadIdle - 1)
		f.wantNext("it is used", ids[1], 0, "x", 1)
		time.Sleep(1 * time.Nanosecond)
		if err := f.Sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		f.wantNext("it was used", ids[1], 1, "y", 2)
		_, err = f.WriteChunk("alice", ids[2], 0, []byte("x"))
		f.wantCode("it was idle", err, arcp.CodeNotFound)
		if _, bytes := f.Usage(); bytes != minCounted {
			t.Errorf("%d bytes are counted, want those of one upload", bytes)
		}
		row, err := f.finish("alice", ids[1], "")
		if err != nil || !row.CreatedAt.Equal(time.Now()) {
			t.Errorf("created at %v, %v; the retention begins at the end of the upload", row.CreatedAt, err)
		}
	})
}

// The number of artifacts of a principal is bounded: each has a row in memory.
func TestNumberOfArtifactsIsBounded(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{})
	f.count("alice", MaxNumber-1, 0) // as if they were there
	row := f.put("alice", "the last")
	_, err := f.Begin(Spec{Principal: "alice", MediaType: "text/plain"})
	f.wantCode("one too many", err, arcp.CodeResourceExhausted)
	if err := f.Release(t.Context(), "alice", row.ID); err != nil {
		t.Fatal(err)
	}
	f.put("alice", "in its place")
}

func TestReadChunk(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{})
	row := f.put("alice", "hello")
	for _, tt := range []struct {
		offset int64
		length int
		want   string
	}{{0, 2, "he"}, {2, 2, "ll"}, {4, 2, "o"}, {5, 2, ""}} {
		if _, data, err := f.ReadChunk("alice", row.ID, tt.offset, tt.length); err != nil || string(data) != tt.want {
			t.Errorf("ReadChunk(%d, %d) = %q, %v; want %q", tt.offset, tt.length, data, err, tt.want)
		}
	}
	_, _, err := f.ReadChunk("alice", row.ID, 6, 1)
	f.wantCode("behind the end", err, arcp.CodeOutOfRange)
	_, _, err = f.ReadChunk("bob", row.ID, 0, 1)
	f.wantCode("another principal", err, arcp.CodeNotFound)
}

// A sweep reads the arguments of the live jobs once, however many artifacts have expired.
func TestSweepReadsTheJobsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, new(Memory), Limits{})
		for range 2*sweepBatch + 1 {
			f.put("alice", "")
		}
		time.Sleep(DefaultRetention)
		scans := 0
		f.opts.Live = func(func(string, arcp.JobID, arcp.Raw) bool) { scans++ }
		if err := f.Sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if n, _ := f.Usage(); n != 0 || scans != 1 {
			t.Errorf("%d artifacts are left after %d scans", n, scans)
		}
	})
}
