package artifact

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// committer is a records.Committer on a store.
type committer struct {
	store store.Store
	err   error // of every commit; nil: they succeed
}

func (c *committer) Commit(_ context.Context, w *store.Write, done func(error)) error {
	err := c.err
	if err == nil {
		results := make([]store.Result, 1)
		err = errors.Join(c.store.Commit([]*store.Write{w}, results), results[0].Err)
	}
	done(err)
	return err
}

// fixture is a Store with the parts that outlive it.
type fixture struct {
	*Store
	t       *testing.T
	rows    store.Store
	log     *committer
	content Content
	full    bool
	remote  bool           // see Options
	counts  map[string]int // operations by "operation result"
}

func newFixture(t *testing.T, content Content, l Limits) *fixture {
	rows := mem.Open(mem.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	f := &fixture{t: t, rows: rows, log: &committer{store: rows}, content: content}
	f.restart(l)
	return f
}

func (f *fixture) restart(l Limits) {
	f.t.Helper()
	f.counts = make(map[string]int)
	f.Store = NewStore(Options{Content: f.content, Remote: f.remote, Records: f.rows, Log: f.log, Full: func() bool { return f.full },
		Operation: func(operation, result string) { f.counts[operation+" "+result]++ }}, l)
	if err := f.Load(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) put(principal, text string) Row {
	f.t.Helper()
	return f.mustPut(Spec{Principal: principal, Session: "sess_1", MediaType: "text/plain"}, text)
}

// mustPut puts an artifact without an error. Any goroutine may call it.
func (f *fixture) mustPut(spec Spec, text string) Row {
	f.t.Helper()
	row, err := f.Put(f.t.Context(), spec, []byte(text))
	if err != nil {
		f.t.Error(err)
	}
	return row
}

func (f *fixture) wantCode(why string, err error, code arcp.Code) {
	f.t.Helper()
	if e, ok := arcp.AsError(err); !ok || e.Code != code {
		f.t.Errorf("%s: %v, want %s", why, err, code)
	}
}

func (f *fixture) wantContent(why, principal string, id arcp.ArtifactID, want string) {
	f.t.Helper()
	if _, data, err := f.Inline(principal, id); err != nil || string(data) != want {
		f.t.Errorf("%s: %q, %v; want %q", why, data, err, want)
	}
}

func TestPutDescribesTheContent(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{})
	row := f.put("alice", "hello")
	sum := sha256.Sum256([]byte("hello"))
	o := row.Object()
	if o.Size != 5 || o.SHA256 != hex.EncodeToString(sum[:]) || o.MediaType != "text/plain" ||
		o.URI != "arcp://session/sess_1/artifact/"+string(o.ArtifactID) {
		t.Errorf("Object = %+v", o)
	}
	f.wantContent("the owner reads it", "alice", row.ID, "hello")
	_, _, err := f.Open("bob", row.ID)
	f.wantCode("another principal does not find it", err, arcp.CodeNotFound)
}

func TestPutRefuses(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{Size: 5, PerPrincipal: 2 * minCounted})
	for _, tt := range []struct {
		name    string
		spec    Spec
		content string
		code    arcp.Code
	}{
		{"no media type", Spec{}, "", arcp.CodeInvalidArgument},
		{"an odd media type", Spec{MediaType: "a b"}, "", arcp.CodeInvalidArgument},
		{"a wrong digest", Spec{MediaType: "text/plain", SHA256: strings.Repeat("0", 64)}, "a", arcp.CodeInvalidArgument},
		{"a short digest", Spec{MediaType: "text/plain", SHA256: "00"}, "a", arcp.CodeInvalidArgument},
		{"too large", Spec{MediaType: "text/plain"}, "123456", arcp.CodeInvalidArgument},
	} {
		_, err := f.Put(t.Context(), tt.spec, []byte(tt.content))
		f.wantCode(tt.name, err, tt.code)
	}
	if n, bytes := f.Usage(); n != 0 || bytes != 0 {
		t.Errorf("refused puts count as %d artifacts of %d bytes", n, bytes)
	}
	f.put("alice", "1")
	f.put("alice", "2")
	_, err := f.Put(t.Context(), Spec{Principal: "alice", MediaType: "text/plain"}, []byte("3"))
	f.wantCode("the quota is for each principal", err, arcp.CodeResourceExhausted)
	f.put("bob", "1")
	f.full = true
	_, err = f.Put(t.Context(), Spec{Principal: "carol", MediaType: "text/plain"}, []byte("3"))
	f.wantCode("the disk is full", err, arcp.CodeResourceExhausted)
}

func TestReleaseIsForTheOwner(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{})
	row := f.put("alice", "hello")
	if err := f.Release(t.Context(), "bob", row.ID); err != nil {
		t.Error(err)
	}
	f.wantContent("bob cannot release it", "alice", row.ID, "hello")
	f.log.err = errors.New("the store fails")
	if err := f.Release(t.Context(), "alice", row.ID); err == nil {
		t.Error("a release that is not stored succeeds")
	}
	f.wantContent("the release has failed", "alice", row.ID, "hello")
	f.log.err = nil
	for range 2 {
		if err := f.Release(t.Context(), "alice", row.ID); err != nil {
			t.Error(err)
		}
	}
	_, err := f.Get("alice", row.ID)
	f.wantCode("after the release", err, arcp.CodeNotFound)
	if _, err := f.content.Open(row.ID); err == nil {
		t.Error("the content is still stored")
	}
	if n, bytes := f.Usage(); n != 0 || bytes != 0 {
		t.Errorf("%d artifacts of %d bytes are counted", n, bytes)
	}
}

func TestPutThatIsNotStoredLeavesNothing(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{})
	f.log.err = errors.New("the store fails")
	if _, err := f.Put(t.Context(), Spec{MediaType: "text/plain"}, []byte("hello")); err == nil {
		t.Fatal("a put that is not stored succeeds")
	}
	if err := f.Sweep(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	if n, bytes := f.Usage(); n != 0 || bytes != 0 || len(f.content.(*Memory).byID) != 0 {
		t.Errorf("%d artifacts of %d bytes, %d contents are left", n, bytes, len(f.content.(*Memory).byID))
	}
}

func TestArtifactsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, new(Memory), Limits{})
		put := func(retain time.Duration) Row {
			row, err := f.Put(t.Context(), Spec{Principal: "alice", MediaType: "text/plain", Retain: retain}, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			return row
		}
		short, def, held, longest := put(time.Minute), put(0), put(time.Minute), put(1000*24*time.Hour)
		jobs := map[string]arcp.Raw{"alice": arcp.Raw(`{"in":{"artifact_id":"` + held.ID + `"}}`), "bob": arcp.Raw(`["` + short.ID + `"]`)}
		f.opts.Live = func(fn func(string, arcp.JobID, arcp.Raw) bool) {
			for principal, args := range jobs {
				if !fn(principal, "job_1", args) {
					return
				}
			}
		}
		f.opts.IsLive = func(arcp.JobID) bool { return jobs["alice"] != nil }
		want := func(why string, after time.Duration, want ...arcp.ArtifactID) {
			t.Helper()
			time.Sleep(after)
			for _, r := range []Row{short, def, held, longest} {
				if _, err := f.Get("alice", r.ID); (err == nil) != slices.Contains(want, r.ID) {
					t.Errorf("%s: %s before the sweep: %v", why, r.ID, err)
				}
			}
			if err := f.Sweep(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
			if n, _ := f.Usage(); n != len(want) {
				t.Errorf("%s: %d artifacts after the sweep, want %d", why, n, len(want))
			}
		}
		want("before its end", time.Minute-1, short.ID, def.ID, held.ID, longest.ID)
		want("a job holds one", 1, def.ID, held.ID, longest.ID)
		delete(jobs, "alice")
		want("the job has ended", 0, def.ID, longest.ID)
		want("the default", DefaultRetention-time.Minute, longest.ID)
		want("the maximum", MaxRetention-DefaultRetention)
		if f.counts["expire ok"] != 4 {
			t.Errorf("counted operations: %v", f.counts)
		}
	})
}

// waitingContent is a Memory whose Create waits.
type waitingContent struct {
	Memory
	created chan struct{} // receives at each Create
	next    chan struct{} // Create returns after it receives from next
}

func (c *waitingContent) Create(principal string, id arcp.ArtifactID) (Writer, error) {
	c.created <- struct{}{}
	<-c.next
	return c.Memory.Create(principal, id)
}

// A put that is repeated returns the artifact of the first one, also at the same time.
func TestPutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := &waitingContent{created: make(chan struct{}, 8), next: make(chan struct{})}
		f := newFixture(t, content, Limits{})
		spec := Spec{Principal: "alice", Session: "sess_1", MediaType: "text/plain", Key: "key"}
		rows := make(chan Row, 2)
		for range 2 {
			go func() { rows <- f.mustPut(spec, "hello") }()
		}
		synctest.Wait()
		if n := len(content.created); n != 1 {
			t.Errorf("%d puts have begun, want 1", n)
		}
		close(content.next)
		first := <-rows
		if second := <-rows; second.ID != first.ID {
			t.Errorf("two artifacts: %s, %s", first.ID, second.ID)
		}
		_, err := f.Put(t.Context(), spec, []byte("other"))
		f.wantCode("the key was used with other content", err, arcp.CodeDuplicateKey)

		spec.Key, spec.Request = "", "msg_1"
		request := f.mustPut(spec, "hello")
		if again := f.mustPut(spec, "hello"); again.ID != request.ID || again.ID == first.ID {
			t.Errorf("a repeated request puts %s, first %s; with the key %s", again.ID, request.ID, first.ID)
		}
		if other := f.mustPut(spec, "other"); other.ID == request.ID {
			t.Error("other content has the artifact of an earlier request")
		}
	})
}

func TestPutOnceAfterARestart(t *testing.T) {
	files, err := OpenFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, files, Limits{})
	spec := Spec{Principal: "alice", MediaType: "text/plain", Key: "key"}
	first := f.mustPut(spec, "hello")
	f.restart(Limits{})
	if again := f.mustPut(spec, "hello"); again.ID != first.ID {
		t.Errorf("after the restart the key is of %s, want %s", again.ID, first.ID)
	}
	if err := f.Release(t.Context(), "alice", first.ID); err != nil {
		t.Fatal(err)
	}
	if again := f.mustPut(spec, "hello"); again.ID == first.ID {
		t.Error("a released artifact is the answer of a new put")
	}
}

func TestDamagedContentIsNotSent(t *testing.T) {
	dir := t.TempDir()
	files, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, files, Limits{})
	row := f.put("alice", "hello")
	if err := os.WriteFile(filepath.Join(dir, string(row.ID)), []byte("jello"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = f.Inline("alice", row.ID)
	f.wantCode("the file was changed", err, arcp.CodeDataLoss)
	if err := os.Truncate(filepath.Join(dir, string(row.ID)), 2); err != nil {
		t.Fatal(err)
	}
	_, _, err = f.Inline("alice", row.ID)
	f.wantCode("the file was cut", err, arcp.CodeDataLoss)
	if err := os.Remove(filepath.Join(dir, string(row.ID))); err != nil {
		t.Fatal(err)
	}
	_, _, err = f.Open("alice", row.ID)
	f.wantCode("the file is gone", err, arcp.CodeDataLoss)
}

// Content is compared with its digest at its first fetch, and again at the first one after checkInterval.
func TestContentIsCheckedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		files, err := OpenFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		f := newFixture(t, files, Limits{})
		row := f.put("alice", "hello")
		fetch := func() (string, error) {
			_, content, err := f.Inline("alice", row.ID)
			return string(content), err
		}
		if got, err := fetch(); got != "hello" || err != nil {
			t.Fatalf("the first fetch returns %q, %v", got, err)
		}
		if err := os.WriteFile(filepath.Join(dir, string(row.ID)), []byte("jello"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := fetch(); got != "jello" || err != nil {
			t.Errorf("within %s a fetch returns %q, %v: the content is compared too often", checkInterval, got, err)
		}
		time.Sleep(checkInterval)
		_, err = fetch()
		f.wantCode("the content was changed", err, arcp.CodeDataLoss)
	})
}

// The content of one large Write in memory is not copied for a fetch, and content in parts is the same.
func TestContentInMemory(t *testing.T) {
	f := newFixture(t, &Memory{}, Limits{})
	large := bytes.Repeat([]byte("0123456789abcdef"), MaxInline/16)
	for _, sizes := range [][]int{{0}, {1}, {MaxInline}, {10, blockSize, 10}, {blockSize, 1, blockSize}, {blockSize - 1, 1, 1, 2 * blockSize}} {
		u, err := f.Begin(Spec{Principal: "alice", Session: "sess_1", MediaType: "text/plain"})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, size := range sizes {
			if _, err := u.Write(large[n : n+size]); err != nil {
				t.Fatal(err)
			}
			n += size
		}
		row, err := u.put(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, content, err := f.Inline("alice", row.ID); err != nil || !bytes.Equal(content, large[:n]) {
			t.Errorf("%v: %d bytes, %v; want the %d bytes of the content", sizes, len(content), err, n)
		}
		for at := range min(n, 3) {
			for _, length := range []int{1, 100, blockSize, n} {
				_, part, err := f.ReadChunk("alice", row.ID, int64(n/(at+1)-1), length)
				if want := large[n/(at+1)-1 : min(n, n/(at+1)-1+length)]; err != nil || !bytes.Equal(part, want) {
					t.Errorf("%v: part of %d bytes: %d bytes, %v", sizes, length, len(part), err)
				}
			}
		}
	}
	one := f.put("alice", string(large))
	_, first, err := f.Inline("alice", one.ID)
	_, second, again := f.Inline("alice", one.ID)
	if err != nil || again != nil || &first[0] != &second[0] {
		t.Errorf("a fetch copies the content; %v, %v", err, again)
	}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("in a tool") }

// A reader that panics leaves nothing behind.
func TestReaderPanics(t *testing.T) {
	files, err := OpenFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, files, Limits{})
	u, err := f.Begin(Spec{Principal: "alice", MediaType: "text/plain"})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of the reader is hidden")
			}
		}()
		err := u.Copy(t.Context(), panicking{})
		t.Errorf("Copy = %v, want a panic", err)
	}()
	if _, bytes := f.Usage(); bytes != 0 {
		t.Errorf("%d bytes are counted", bytes)
	}
	if names, err := files.fs.Names(); err != nil || len(names) != 0 {
		t.Errorf("files %q, %v", names, err)
	}
}

// After the store has failed the row may be durable: the content stays until the next start.
func TestContentStaysAfterTheStoreHasFailed(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{})
	u, err := f.Begin(Spec{Principal: "alice", MediaType: "text/plain"})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Copy(t.Context(), strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	row, _, err := u.Finish()
	if err != nil {
		t.Fatal(err)
	}
	u.Committed(fmt.Errorf("commit: %w", store.ErrBroken))
	if err := f.Sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	content, err := f.opts.Content.Open(row.ID)
	if err != nil {
		t.Fatalf("the content is gone: %v", err)
	}
	if err := content.Close(); err != nil {
		t.Error(err)
	}
	if _, bytes := f.Usage(); bytes != 0 {
		t.Errorf("%d bytes are counted", bytes)
	}
}

func TestUploadOfALargeArtifact(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{})
	data := bytes.Repeat([]byte("0123456789abcdef"), MaxInline/16)
	u, err := f.Begin(Spec{Principal: "alice", MediaType: "application/octet-stream"})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Copy(t.Context(), io.MultiReader(bytes.NewReader(data), strings.NewReader("!"))); err != nil {
		t.Fatal(err)
	}
	row, rec, err := u.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.log.Commit(t.Context(), store.NewWrite().Put(rec), u.Committed); err != nil {
		t.Fatal(err)
	}
	if _, bytes := f.Usage(); bytes != MaxInline+1 {
		t.Errorf("%d bytes are counted", bytes)
	}
	_, _, err = f.Inline("alice", row.ID)
	f.wantCode("one byte too many for a message", err, arcp.CodeFailedPrecondition)
	_, content, err := f.Open("alice", row.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(content); err != nil || len(got) != MaxInline+1 {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}

// PutOnce writes the content of a result once, also for concurrent callers and after a restart. A writer that
// fails leaves nothing.
func TestResultIsPutOnce(t *testing.T) {
	files, err := OpenFiles(filepath.Join(t.TempDir(), "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, files, Limits{})
	spec := Spec{Principal: "alice", MediaType: "text/plain", Result: "job_1"}
	failed := errors.New("failed")
	if _, err := f.PutOnce(t.Context(), spec, func(w io.Writer) error {
		_, err := io.WriteString(w, "part")
		return errors.Join(err, failed)
	}); !errors.Is(err, failed) {
		t.Errorf("PutOnce = %v, want %v", err, failed)
	}
	if n, bytes := f.Usage(); n != 0 || bytes != 0 {
		t.Errorf("a writer that failed has left %d artifacts of %d bytes", n, bytes)
	}
	var writes atomic.Int32
	put := func(spec Spec) Row {
		row, err := f.PutOnce(t.Context(), spec, func(w io.Writer) error {
			writes.Add(1)
			_, err := io.WriteString(w, "result")
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return row
	}
	rows := make(chan Row, 2)
	for range 2 {
		go func() { rows <- put(spec) }()
	}
	first := <-rows
	if second := <-rows; second.ID != first.ID {
		t.Errorf("two callers have %s and %s", first.ID, second.ID)
	}
	f.restart(Limits{})
	if again := put(spec); again.ID != first.ID || writes.Load() != 1 {
		t.Errorf("after a restart %s, written %d times; want %s, once", again.ID, writes.Load(), first.ID)
	}
	f.wantContent("the result", "alice", first.ID, "result")
	spec.Result = "job_2"
	if other := put(spec); other.ID == first.ID {
		t.Error("two jobs have one artifact")
	}
	keyed := f.mustPut(Spec{Principal: "alice", MediaType: "text/plain", Key: "job_3"}, "not the result")
	spec.Result = "job_3"
	if row := put(spec); row.ID == keyed.ID {
		t.Error("the key of a client names a result")
	}
}

// outage is a Content whose storage is not available for a time.
type outage struct {
	Content
	down     bool
	stuck    arcp.ArtifactID // cannot be removed
	requests int             // during the outage
}

func (o *outage) fails() error {
	if o.down {
		o.requests++
		return fmt.Errorf("request: %w", ErrUnavailable)
	}
	return nil
}

func (o *outage) Create(principal string, id arcp.ArtifactID) (Writer, error) {
	w, err := o.Content.Create(principal, id)
	return &outageWriter{o, w}, err
}

func (o *outage) Open(id arcp.ArtifactID) (io.ReadSeekCloser, error) {
	if err := o.fails(); err != nil {
		return nil, err
	}
	return o.Content.Open(id)
}

func (o *outage) Remove(id arcp.ArtifactID) error {
	if id == o.stuck {
		return fmt.Errorf("refused: %w", ErrUnavailable)
	}
	return cmp.Or(o.fails(), o.Content.Remove(id))
}

func (o *outage) Recover() ([]arcp.ArtifactID, error) {
	if err := o.fails(); err != nil {
		return nil, err
	}
	return o.Content.Recover()
}

type outageWriter struct {
	*outage
	Writer
}

func (w *outageWriter) Commit() error { return cmp.Or(w.fails(), w.Writer.Commit()) }

// A process that starts while the storage is not available knows its artifacts, deletes none, and
// recovers the content when the storage is available.
func TestOutageOfTheStorage(t *testing.T) {
	files, err := OpenFiles(filepath.Join(t.TempDir(), "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	content := &outage{Content: files}
	f := newFixture(t, content, Limits{})
	f.remote = true
	kept, lost, released := f.put("alice", "kept"), f.put("alice", "lost"), f.put("alice", "released")
	orphan := f.put("bob", "orphan")
	if err := errors.Join(files.Remove(lost.ID), f.rows.Commit([]*store.Write{store.NewWrite().Put(f.record(orphan.ID).Delete())}, make([]store.Result, 1))); err != nil {
		t.Fatal(err)
	}

	content.down = true
	f.restart(Limits{})
	_, _, err = f.Inline("alice", kept.ID)
	f.wantCode("a fetch during the outage", err, arcp.CodeUnavailable)
	_, err = f.Put(t.Context(), Spec{Principal: "alice", MediaType: "text/plain"}, []byte("x"))
	f.wantCode("a put during the outage", err, arcp.CodeUnavailable)
	if err := f.Release(t.Context(), "alice", released.ID); err != nil {
		t.Errorf("a release needs the row only: %v", err)
	}
	if f.counts["fetch failed"] != 1 || f.counts["put failed"] != 1 {
		t.Errorf("the operations are counted as %v", f.counts)
	}
	if err := f.Sweep(t.Context(), time.Now()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Sweep = %v, want %v", err, ErrUnavailable)
	}
	if n, _ := f.Usage(); n != 2 {
		t.Errorf("%d artifacts after the failed Sweep, want kept and lost", n)
	}

	content.down = false
	added := f.put("alice", "added")
	putting, err := f.Begin(Spec{Principal: "alice", MediaType: "text/plain"})
	if err != nil {
		t.Fatal(err)
	}
	row, _, err := putting.Finish()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Sweep(t.Context(), time.Now()); err != nil {
			t.Error(err)
		}
	}
	f.wantContent("an artifact of before the outage", "alice", kept.ID, "kept")
	f.wantContent("one that was put before the content was recovered", "alice", added.ID, "added")
	if r, err := files.Open(row.ID); err != nil {
		t.Errorf("content whose row is being committed: %v", err)
	} else if err := r.Close(); err != nil {
		t.Error(err)
	}
	putting.Committed(nil)
	_, err = f.Get("alice", lost.ID)
	f.wantCode("a row without content", err, arcp.CodeNotFound)
	for _, id := range []arcp.ArtifactID{orphan.ID, released.ID} {
		if r, err := files.Open(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the content of %s, which has no row, is there: %v, %v", id, r, err)
		}
	}
}

// Content that cannot be removed waits for the next time, and is not tried one by one.
func TestOutageStopsTheRemovalOfGarbage(t *testing.T) {
	content := &outage{Content: new(Memory)}
	f := newFixture(t, content, Limits{})
	ids := []arcp.ArtifactID{f.put("alice", "a").ID, f.put("alice", "b").ID, f.put("alice", "c").ID}
	content.down = true
	for _, id := range ids {
		if err := f.Release(t.Context(), "alice", id); err != nil {
			t.Fatal(err)
		}
	}
	content.requests = 0
	if err := f.Sweep(t.Context(), time.Now()); err != nil || content.requests != 1 {
		t.Errorf("Sweep = %v after %d requests, want one", err, content.requests)
	}
	content.down = false
	if err := f.Sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := content.Open(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the content of a released artifact is there: %v", err)
		}
	}
}

// Content that cannot be removed does not keep the rest.
func TestGarbageIsRemovedAroundStuckContent(t *testing.T) {
	content := &outage{Content: new(Memory)}
	f := newFixture(t, content, Limits{})
	f.opts.Remote = true // only Sweep removes
	stuck, other := f.put("alice", "a"), f.put("alice", "b")
	content.stuck = stuck.ID
	for _, row := range []Row{stuck, other} {
		if err := f.Release(t.Context(), "alice", row.ID); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := f.Sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := content.Open(other.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open = %v: the content behind the stuck one is there", err)
	}
}

// Artifacts expire while their storage does not answer.
func TestArtifactsExpireDuringAnOutage(t *testing.T) {
	content := &outage{Content: new(Memory)}
	f := newFixture(t, content, Limits{})
	row := f.put("alice", "a")
	content.down, f.remote = true, true
	f.restart(Limits{})
	if err := f.Sweep(t.Context(), row.ExpiresAt); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Sweep = %v, want %v", err, ErrUnavailable)
	}
	if n, _ := f.Usage(); n != 0 {
		t.Errorf("%d artifacts after their expiry", n)
	}
}

// A list without an object that is there does not delete its row.
func TestIncompleteListDeletesNoRow(t *testing.T) {
	content := &forgetful{new(Memory)}
	f := newFixture(t, content, Limits{})
	kept, lost := f.put("alice", "kept"), f.put("alice", "lost")
	f.remote = true
	f.restart(Limits{})
	if err := content.Remove(lost.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.Sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	f.wantContent("not in the list", "alice", kept.ID, "kept")
	_, err := f.Get("alice", lost.ID)
	f.wantCode("not in the storage", err, arcp.CodeNotFound)
}

// forgetful is a Content whose list is empty.
type forgetful struct{ *Memory }

func (forgetful) Recover() ([]arcp.ArtifactID, error) { return nil, nil }

// record returns the record of an artifact.
func (f *fixture) record(id arcp.ArtifactID) records.Row[Row] {
	f.t.Helper()
	rec, err := f.rows.Get(f.t.Context(), recordPrefix+string(id))
	if err != nil {
		f.t.Fatal(err)
	}
	return records.Row[Row]{Key: rec.Key, Rev: rec.Rev}
}
