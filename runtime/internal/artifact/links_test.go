package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/interop"
)

const linkPrefix = "https://arcp.example/artifacts"

// linkFixture has Links with their store.
type linkFixture struct {
	*fixture
	links *Links
	log   *bytes.Buffer

	mu     sync.Mutex
	counts map[string]int // links by result
}

func newLinkFixture(t *testing.T, content Content) *linkFixture {
	f := &linkFixture{fixture: newFixture(t, content, Limits{}), counts: make(map[string]int), log: new(bytes.Buffer)}
	f.links = NewLinks(LinkOptions{Prefix: linkPrefix, Store: f.Store, Logger: zerolog.New(f.log), Count: func(result string) {
		f.mu.Lock()
		f.counts[result]++
		f.mu.Unlock()
	}})
	return f
}

// allowed is the rights of a principal that keeps them.
func allowed() error { return nil }

func (f *linkFixture) create(principal string, id arcp.ArtifactID) string {
	return f.links.Create(LinkTarget{Principal: principal, Artifact: id, Allowed: allowed}).Reveal()
}

// wantCounts compares the links by result.
func (f *linkFixture) wantCounts(want string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var got []string
	for _, r := range LinkResults {
		if n := f.counts[r]; n > 0 {
			got = append(got, fmt.Sprint(r, " ", n))
		}
	}
	if got := strings.Join(got, ", "); got != want {
		f.t.Errorf("links: %s; want %s", got, want)
	}
}

func tokenOf(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

func (f *linkFixture) usable(link string) bool {
	_, done, ok := f.links.use(tokenOf(link))
	if ok {
		done()
	}
	return ok
}

func TestLinksExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLinkFixture(t, new(Memory))
		early, late := f.create("alice", "art_1"), f.create("alice", "art_1")
		if !strings.HasPrefix(early, linkPrefix+"/") || len(tokenOf(early)) < 26 || early == late {
			t.Fatalf("links are %s and %s", early, late)
		}
		time.Sleep(LinkLifetime - time.Nanosecond)
		if !f.usable(early) {
			t.Error("a link is not valid before its end")
		}
		time.Sleep(time.Nanosecond)
		if _, ok := f.links.find(tokenOf(late)); ok || f.usable(late) {
			t.Error("a link is valid after its end")
		}
		if n := len(f.links.byToken) + f.links.unused.Len() + len(f.links.principals); n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

func TestLinksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLinkFixture(t, new(Memory))
		var links []string
		for range maxLinksPerPrincipal {
			links = append(links, f.create("alice", "art_1"))
		}
		if links[maxLinksPerPrincipal-1] == "" || f.create("alice", "art_1") != "" {
			t.Errorf("a principal has not %d links", maxLinksPerPrincipal)
		}
		f.wantCounts("issued 64, not_issued 1")
		_, done, _ := f.links.use(tokenOf(links[0]))
		if f.create("alice", "art_1") != "" {
			t.Error("a download does not count")
		}
		done()
		if f.create("alice", "art_1") == "" {
			t.Error("a download counts after its end")
		}
		for i := range maxLinks - maxLinksPerPrincipal {
			if f.create(fmt.Sprint("principal ", i), "art_1") == "" {
				t.Fatalf("link %d is refused", i)
			}
		}
		if f.create("bob", "art_1") != "" {
			t.Errorf("there are more than %d links", maxLinks)
		}
		time.Sleep(LinkLifetime)
		if f.create("alice", "art_1") == "" {
			t.Error("expired links count")
		}
		if n := len(f.links.byToken); n != 1 || f.links.unused.Len() != 1 || len(f.links.principals) != 1 {
			t.Errorf("%d links, want 1", n)
		}
	})
}

func TestLinkIsUsedOnce(t *testing.T) {
	f := newLinkFixture(t, new(Memory))
	link := f.create("alice", "art_1")
	var used atomic.Int32
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if f.usable(link) {
				used.Add(1)
			}
		})
	}
	wg.Wait()
	if n := used.Load(); n != 1 {
		t.Errorf("a link was used %d times", n)
	}
}

// response is the answer to a request.
type response struct {
	*http.Response
	body string
	err  error // of reading the body
}

// serve serves the links of the fixture over HTTP.
func (f *linkFixture) serve() func(method, link string) response {
	s := httptest.NewServer(f.links)
	f.t.Cleanup(s.Close)
	return func(method, link string) response {
		f.t.Helper()
		req, err := http.NewRequestWithContext(f.t.Context(), method, s.URL+"/any/"+tokenOf(link), nil)
		if err != nil {
			f.t.Fatal(err)
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			f.t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return response{resp, string(body), err}
	}
}

func TestDownload(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", downloadChunk/8+1)
	for name, size := range map[string]int{"empty": 0, "one chunk": downloadChunk, "several": len(content) - 3} {
		t.Run(name, func(t *testing.T) {
			f := newLinkFixture(t, new(Memory))
			want := content[:size]
			row := f.put("alice", want)
			link, request := f.create("alice", row.ID), f.serve()
			head := request(http.MethodHead, link)
			got := request(http.MethodGet, link)
			if got.StatusCode != http.StatusOK || got.body != want || got.err != nil {
				t.Errorf("GET = %s with %d bytes, %v", got.Status, len(got.body), got.err)
			}
			for _, r := range []response{head, got} {
				for header, want := range map[string]string{
					"Content-Type":           "text/plain",
					"Content-Length":         fmt.Sprint(size),
					"Content-Disposition":    `attachment; filename="` + string(row.ID) + `"`,
					"Cache-Control":          "no-store",
					"X-Content-Type-Options": "nosniff",
					"Referrer-Policy":        "no-referrer",
					"Accept-Ranges":          "none",
				} {
					if got := r.Header.Get(header); got != want {
						t.Errorf("%s of %s is %q, want %q", header, r.Request.Method, got, want)
					}
				}
				if d := r.Header.Get("Digest"); r.Header.Get("Repr-Digest") != strings.Replace(d, "=", "=:", 1)+":" || !strings.HasPrefix(d, "sha-256=") {
					t.Errorf("digests are %q and %q", d, r.Header.Get("Repr-Digest"))
				}
			}
			request(http.MethodGet, link)
			f.wantCounts("issued 1, downloaded 1, refused 1")
			if strings.Contains(f.log.String(), tokenOf(link)) {
				t.Errorf("the log has the token: %s", f.log)
			}
			if f.links.downloads != 0 || len(f.links.principals) != 0 {
				t.Errorf("%d downloads are left", f.links.downloads)
			}
		})
	}
}

// Each Content is streamed.
func TestDownloadOfEachContent(t *testing.T) {
	whole := strings.Repeat("0123456789abcdef", 2*minRange/16+1) // more than one range of an object
	download := func(t *testing.T, content Content) {
		f := newLinkFixture(t, content)
		got := f.serve()(http.MethodGet, f.create("alice", f.put("alice", whole).ID))
		if got.StatusCode != http.StatusOK || got.body != whole || got.err != nil {
			t.Errorf("GET = %s with %d bytes, %v", got.Status, len(got.body), got.err)
		}
		f.wantCounts("issued 1, downloaded 1")
	}
	t.Run("files", func(t *testing.T) {
		files, err := OpenFiles(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		download(t, files)
	})
	t.Run("bucket", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts a server process")
		}
		s := openS3(t, interop.Moto(t, "artifacts"))
		defer s.Close()
		download(t, s)
	})
}

// A stranger learns nothing from the answer to a request that is refused.
func TestRefusedDownloadsHaveTheSameAnswer(t *testing.T) {
	f := newLinkFixture(t, new(Memory))
	row, released := f.put("alice", "hello"), f.put("alice", "gone")
	request := f.serve()
	used := f.create("alice", row.ID)
	request(http.MethodGet, used)
	links := map[string]string{
		"unknown":                 linkPrefix + "/AAAAAAAAAAAAAAAAAAAAAAAAAA",
		"none":                    linkPrefix + "/",
		"used":                    used,
		"of another principal":    f.create("bob", row.ID),
		"of a released artifact":  f.create("alice", released.ID),
		"of an unknown principal": f.links.Create(LinkTarget{"alice", row.ID, func() error { return errors.New("revoked") }}).Reveal(),
	}
	if err := f.Release(t.Context(), "alice", released.ID); err != nil {
		t.Fatal(err)
	}
	var first *response
	for name, link := range links {
		for _, method := range []string{http.MethodHead, http.MethodGet} {
			got := request(method, link)
			if got.StatusCode != http.StatusNotFound {
				t.Errorf("%s of a link that is %s: %s", method, name, got.Status)
			}
			if method == http.MethodHead {
				continue
			}
			got.Header.Del("Date")
			if first == nil {
				first = &got
			}
			if got.body != first.body || fmt.Sprint(got.Header) != fmt.Sprint(first.Header) {
				t.Errorf("the answer to a link that is %s is another: %v %q", name, got.Header, got.body)
			}
		}
	}
	f.wantCounts(fmt.Sprintf("issued 4, downloaded 1, refused %d", 2*len(links)))
}

// A link does not outlive its artifact.
func TestLinkToAnExpiredArtifact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLinkFixture(t, new(Memory))
		row := f.mustPut(Spec{Principal: "alice", MediaType: "text/plain", Retain: time.Second}, "hello")
		link := f.create("alice", row.ID)
		time.Sleep(time.Second)
		w := httptest.NewRecorder()
		f.links.ServeHTTP(w, httptest.NewRequest(http.MethodGet, link, nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("status %d", w.Code)
		}
		f.wantCounts("issued 1, refused 1")
	})
}

// Other methods do not use a link.
func TestOtherMethodsDoNotUseLinks(t *testing.T) {
	f := newLinkFixture(t, new(Memory))
	link, request := f.create("alice", f.put("alice", "hello").ID), f.serve()
	for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodOptions} {
		if got := request(method, link); got.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", method, got.Status)
		}
	}
	if got := request(http.MethodGet, link); got.body != "hello" {
		t.Errorf("GET = %q", got.body)
	}
}

// failingContent is content that cannot be opened or read to its end.
type failingContent struct {
	Content
	open, read error
	rest       string // what is read before the error
}

func (c *failingContent) Open(id arcp.ArtifactID) (io.ReadSeekCloser, error) {
	if c.open != nil {
		return nil, c.open
	}
	content, err := c.Content.Open(id)
	if c.read != nil && err == nil {
		return struct {
			io.Reader
			io.Seeker
			io.Closer
		}{io.MultiReader(strings.NewReader(c.rest), iotest.ErrReader(c.read)), content, content}, nil
	}
	return content, err
}

func TestDownloadOfContentThatFails(t *testing.T) {
	whole := strings.Repeat("x", 4*downloadChunk)
	for name, tt := range map[string]struct {
		content failingContent
		status  int
		body    string
	}{
		"open":           {failingContent{open: ErrUnavailable}, http.StatusServiceUnavailable, ""},
		"lost":           {failingContent{open: fs.ErrNotExist}, http.StatusServiceUnavailable, ""},
		"first chunk":    {failingContent{read: io.ErrUnexpectedEOF, rest: "x"}, http.StatusServiceUnavailable, ""},
		"in the content": {failingContent{read: io.ErrUnexpectedEOF, rest: whole[:2*downloadChunk]}, http.StatusOK, whole[:2*downloadChunk]},
	} {
		t.Run(name, func(t *testing.T) {
			tt.content.Content = new(Memory)
			f := newLinkFixture(t, &tt.content)
			link, request := f.create("alice", f.put("alice", whole).ID), f.serve()
			got := request(http.MethodGet, link)
			if got.StatusCode != tt.status || tt.body != "" && (got.err == nil || got.body != tt.body) {
				t.Errorf("GET = %s with %d bytes, %v", got.Status, len(got.body), got.err)
			}
			if tt.status != http.StatusOK && got.Header.Get("Retry-After") == "" {
				t.Error("the answer does not say when to try again")
			}
			f.wantCounts("issued 1, failed 1")
		})
	}
}

// slowWriter is a connection to a client that does not read.
type slowWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	writes   int
}

func (w *slowWriter) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

func (w *slowWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes == 1 {
		return w.ResponseRecorder.Write(p)
	}
	time.Sleep(time.Until(w.deadline))
	return 0, context.DeadlineExceeded
}

// A client that does not read holds nothing for longer than the time of a chunk.
func TestSlowDownloadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLinkFixture(t, new(Memory))
		link := f.create("alice", f.put("alice", strings.Repeat("x", 4*downloadChunk)).ID)
		start := time.Now()
		f.links.ServeHTTP(&slowWriter{ResponseRecorder: httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, link, nil))
		if d := time.Since(start); d != chunkTimeout {
			t.Errorf("the download takes %v, want %v", d, chunkTimeout)
		}
		f.wantCounts("issued 1, interrupted 1")
		if f.links.downloads != 0 {
			t.Error("the download still counts")
		}
	})
}
