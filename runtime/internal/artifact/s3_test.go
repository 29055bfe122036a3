package artifact

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/interop"
)

// openS3 opens an S3 with the bucket "artifacts".
func openS3(t *testing.T, endpoint string) *S3 {
	t.Helper()
	s, err := OpenS3(S3Config{Endpoint: endpoint, Region: "us-east-1", Bucket: "artifacts", Prefix: "arcp/one/",
		AccessKey: interop.MotoAccessKey, SecretKey: interop.MotoSecretKey})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestS3(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server process")
	}
	endpoint := interop.Moto(t, "artifacts")
	other := openS3(t, endpoint)
	other.prefix = "arcp/other/"
	(&contentTest{t, other}).put("art_other", []byte("kept"))

	testContent(t, func() Content { return openS3(t, endpoint) }, true)

	(&contentTest{t, other}).want("the content of another prefix", "art_other", []byte("kept"))
	s := openS3(t, endpoint)
	if n := uploads(t, s); n != 0 {
		t.Errorf("after Recover the parts of %d uploads are left", n)
	}
}

// Recover leaves the uploads of its own process.
func TestS3RecoverDuringAnUpload(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server process")
	}
	s := openS3(t, interop.Moto(t, "artifacts"))
	c := contentTest{t, s}
	id := arcp.ArtifactID(arcp.NewID(arcp.ArtifactPrefix))
	w, err := s.Create("alice", id)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, partSize+1)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if ids, err := s.Recover(); err != nil || len(ids) != 0 {
		t.Errorf("Recover = %v, %v; want nothing", ids, err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	c.want("the upload goes on", id, content)
}

// Abort and Remove discard the parts that are written.
func TestS3DiscardsParts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server process")
	}
	s := openS3(t, interop.Moto(t, "artifacts"))
	for name, discard := range map[string]func(Writer) error{
		"Abort":  func(w Writer) error { w.Abort(); return nil },
		"Remove": func(Writer) error { return s.Remove("art_a") },
	} {
		w, err := s.Create("alice", "art_a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, partSize+1)); err != nil {
			t.Fatal(err)
		}
		if n := uploads(t, s); n != 1 {
			t.Errorf("before %s there are %d uploads, want 1", name, n)
		}
		if err := discard(w); err != nil {
			t.Error(err)
		}
		if n := uploads(t, s); n != 0 {
			t.Errorf("after %s there are %d uploads", name, n)
		}
	}
}

// uploads returns the number of uploads in the bucket that have not ended.
func uploads(t *testing.T, s *S3) (n int) {
	t.Helper()
	for u := range s.api.ListIncompleteUploads(t.Context(), s.bucket, "", true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		n++
	}
	return n
}

// fakeS3 answers every request in the way that a test chooses.
func fakeS3(t *testing.T, answer http.HandlerFunc) *S3 {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	return openS3(t, srv.URL)
}

// Storage that refuses requests is unavailable, also without its bucket; only an object that is not there
// does not exist.
func TestS3ErrorsAreUnavailable(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound} {
		t.Run(http.StatusText(status), func(t *testing.T) { testUnavailable(t, status) })
	}
}

// testUnavailable checks the errors of storage that answers every request with a status without a body.
func testUnavailable(t *testing.T, status int) {
	s := fakeS3(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	want := func(operation string, err error) {
		t.Helper()
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s = %v, want %v", operation, err, ErrUnavailable)
		}
	}
	_, err := s.Open("art_a")
	want("Open", err)
	want("Remove", s.Remove("art_a"))
	_, err = s.Recover()
	want("Recover", err)
	for _, size := range []int{1, partSize + 1} {
		w, err := s.Create("alice", "art_a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = w.Write(make([]byte, size)); err != nil {
			w.Abort()
		} else {
			err = w.Commit()
		}
		want("a put", err)
	}
	if s.buffered != 0 {
		t.Errorf("%d bytes are counted for parts after all puts have ended", s.buffered)
	}
}

// roundTripper answers requests in the process.
type roundTripper http.HandlerFunc

func (rt roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	rt(rec, r)
	return rec.Result(), nil
}

// Recover that cannot abort an upload leaves no goroutine. The bubble fails if one stays.
func TestS3RecoverEndsTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openS3(t, "http://storage.test")
		api, err := minio.NewCore("storage.test", &minio.Options{
			Creds:  credentials.NewStaticV4("key", "secret", ""),
			Region: "us-east-1",
			Transport: roundTripper(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodDelete:
					w.WriteHeader(http.StatusForbidden)
				case r.URL.Query().Has("uploads"):
					_, _ = io.WriteString(w, "<ListMultipartUploadsResult>"+
						strings.Repeat("<Upload><Key>arcp/one/art_00A</Key><UploadId>u</UploadId></Upload>", 5)+"</ListMultipartUploadsResult>")
				default:
					_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
				}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		s.api = *api
		if _, err := s.Recover(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Recover = %v, want %v", err, ErrUnavailable)
		}
	})
}

// Close ends a request that storage does not answer.
func TestS3CloseEndsRequests(t *testing.T) {
	asked, ended := make(chan struct{}), make(chan struct{})
	s := fakeS3(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(ended)
	})
	failed := make(chan error, 1)
	go func() {
		_, err := s.Recover()
		failed <- err
	}()
	<-asked
	s.Close()
	if err := <-failed; !errors.Is(err, ErrUnavailable) {
		t.Errorf("Recover = %v, want %v", err, ErrUnavailable)
	}
	<-ended
}

// Storage that breaks all connections is unavailable: the content is not damaged.
func TestS3BrokenConnectionsAreUnavailable(t *testing.T) {
	s := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.Header().Set("Last-Modified", "Fri, 27 Nov 2026 12:00:00 GMT")
		w.Header().Set("ETag", `"e"`)
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusPartialContent)
			_ = http.NewResponseController(w).Flush() // the client sees the broken connection
			panic(http.ErrAbortHandler)
		}
	})
	r, err := s.Open("art_a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(r)
	o := &Options{Logger: zerolog.Nop()}
	if e, ok := arcp.AsError(o.damaged("art_a", err)); !ok || e.Code != arcp.CodeUnavailable {
		t.Errorf("a read gave %v, want %s", err, arcp.CodeUnavailable)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A connection that breaks in the middle of an object is replaced.
func TestS3ReadsOnAfterABrokenConnection(t *testing.T) {
	const content = "hello"
	var ranges []string
	s := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.Header().Set("Last-Modified", "Fri, 27 Nov 2026 12:00:00 GMT")
		w.Header().Set("ETag", `"e"`)
		if r.Method == http.MethodHead {
			return
		}
		ranges = append(ranges, r.Header.Get("Range"))
		if len(ranges) == 1 {
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, content[:2])
			_ = http.NewResponseController(w).Flush() // the client sees the broken connection
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Length", "3")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, content[2:])
	})
	(&contentTest{t, s}).want("after a broken connection", "art_a", []byte(content))
	if got := strings.Join(ranges, " "); got != "bytes=0-4 bytes=2-4" {
		t.Errorf("the reader has requested %s", got)
	}
}

// Parts have a bounded memory, which is free again after Abort. A principal has a quarter of it, and large
// artifacts leave a quarter to small ones.
func TestS3BoundsTheMemoryOfParts(t *testing.T) {
	s := openS3(t, "http://127.0.0.1:9") // no request is sent
	var open []Writer
	put := func(principal string, size int) error {
		w, _ := s.Create(principal, "art_a") // never fails
		_, err := w.Write(make([]byte, size))
		open = append(open, w)
		return err
	}
	fill := func(principal string, size, want int) {
		t.Helper()
		n, err := 0, error(nil)
		for err = put(principal, size); err == nil; err = put(principal, size) {
			n++
		}
		if e, ok := arcp.AsError(err); !ok || e.Code != arcp.CodeResourceExhausted || n != want {
			t.Errorf("%s has %d parts of %d bytes, and then %v; want %d", principal, n, size, err, want)
		}
	}
	for _, principal := range []string{"alice", "bob", "carol"} {
		fill(principal, partSize, maxShare/partSize)
	}
	fill("dave", partSize, 0)
	fill("dave", smallPart, maxShare/smallPart)
	fill("erin", 1, 0)
	for _, w := range open {
		w.Abort()
	}
	if s.buffered != 0 || len(s.shares) != 0 {
		t.Errorf("%d bytes of %v are counted after Abort", s.buffered, s.shares)
	}
}

func TestS3NeedsAnEndpoint(t *testing.T) {
	for _, endpoint := range []string{"", "s3.example.com", "ftp://s3.example.com", "https://s3.example.com/path", "https://key:secret@s3.example.com"} {
		if _, err := OpenS3(S3Config{Endpoint: endpoint, Bucket: "artifacts"}); err == nil || strings.Contains(err.Error(), "secret@") {
			t.Errorf("OpenS3 with the endpoint %q: %v", endpoint, err)
		}
	}
}
