package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/pebble"
)

// linkServer is a runtime that issues links to artifacts.
type linkServer struct {
	*server
	web *httptest.Server // of the links
	set *auth.Set
	reg *prometheus.Registry
}

func startWithLinks(t *testing.T, st store.Store, change func(*runtime.Config)) *linkServer {
	t.Helper()
	s := &linkServer{web: httptest.NewUnstartedServer(nil), reg: prometheus.NewRegistry()}
	s.server = start(t, st, func(c *runtime.Config) {
		c.Artifacts.URL = "http://" + s.web.Listener.Addr().String() + "/artifacts"
		c.Metrics, s.set = s.reg, c.Auth
		if change != nil {
			change(c)
		}
	})
	s.web.Config.Handler = s.ArtifactHandler()
	s.web.Start()
	t.Cleanup(s.web.Close)
	return s
}

// linkClient is a client that remembers the links that it is sent.
type linkClient struct {
	*client.Client
	t *testing.T

	mu    sync.Mutex
	links []string
}

// connect opens a session that lists artifact_redirect.
func (s *linkServer) connect(t *testing.T, name string) *linkClient {
	t.Helper()
	c := &linkClient{t: t}
	var err error
	c.Client, err = client.Dial(t.Context(), s.url, client.Options{
		Auth:             client.Auth{Token: client.Secret(name + "-" + token)},
		ArtifactRedirect: true,
		OnEnvelope: func(env *arcp.Envelope) bool {
			if p, err := arcp.DecodePayload[arcp.ArtifactRefPayload](env); err == nil && env.Type == arcp.ArtifactRef && p.RedirectURI != "" {
				c.mu.Lock()
				c.links = append(c.links, p.RedirectURI)
				c.mu.Unlock()
			}
			return false
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	return c
}

func (c *linkClient) put(size int) arcp.ArtifactObject {
	c.t.Helper()
	ref, err := c.Artifacts().Put(c.t.Context(), client.PutArtifactParams{MediaType: "text/plain", Content: bytes.NewReader(make([]byte, size))})
	if err != nil {
		c.t.Fatal(err)
	}
	return ref
}

// link requests a link to an artifact.
func (c *linkClient) link(id arcp.ArtifactID) string {
	c.t.Helper()
	_, err := c.Artifacts().Fetch(c.t.Context(), id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || len(c.links) == 0 {
		c.t.Fatalf("artifact.fetch is answered without a link: %v", err)
	}
	return c.links[len(c.links)-1]
}

// get sends a GET; change may be nil.
func get(t *testing.T, link string, change func(*http.Request)) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, body
}

func wantStatus(t *testing.T, why, link string, change func(*http.Request), want int) {
	t.Helper()
	if got, body := get(t, link, change); got != want {
		t.Errorf("%s: status %d with %.100q, want %d", why, got, body, want)
	}
}

// wantLinks compares the counter of links.
func (s *linkServer) wantLinks(t *testing.T, want map[string]float64) {
	t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "arcp_artifact_links_total" {
			continue
		}
		if n := len(f.GetMetric()); n != 6 {
			t.Errorf("%d results of links, want 6", n)
		}
		for _, m := range f.GetMetric() {
			if result := m.GetLabel()[0].GetValue(); m.GetCounter().GetValue() != want[result] {
				t.Errorf("%v links are %s, want %v", m.GetCounter().GetValue(), result, want[result])
			}
		}
		return
	}
	t.Error("there is no counter of links")
}

const largeArtifact = 4<<20 + 1 // bytes: more than a message may have

func TestLargeArtifactsAreDownloaded(t *testing.T) {
	s := startWithLinks(t, memory(t), nil)
	s.wantLinks(t, nil) // they are there from the start
	c := s.connect(t, "alice")
	ref := c.put(largeArtifact)
	r, err := c.Artifacts().Get(t.Context(), ref.ArtifactID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, make([]byte, largeArtifact)) {
		t.Errorf("Get = %d bytes, %v", len(got), err)
	}
	s.wantLinks(t, map[string]float64{"issued": 1, "downloaded": 1})
	wantStatus(t, "a used link", c.links[0], nil, http.StatusNotFound)
	link := c.link(ref.ArtifactID)
	if status, body := get(t, link, nil); status != http.StatusOK || len(body) != largeArtifact {
		t.Errorf("GET = %d with %d bytes", status, len(body))
	}
	s.wantLinks(t, map[string]float64{"issued": 2, "downloaded": 2, "refused": 1})
}

// Only a session that lists artifact_redirect is sent a link, and only for a whole artifact over 4 MiB.
func TestLinksAreOnlyForThoseThatListThem(t *testing.T) {
	s := startWithLinks(t, memory(t), nil)
	c := s.connect(t, "alice")
	large, small := c.put(largeArtifact), c.put(largeArtifact-1)
	if got, err := c.Artifacts().Fetch(t.Context(), small.ArtifactID); err != nil || len(got.Content) != largeArtifact-1 {
		t.Errorf("Fetch of 4 MiB = %d bytes, %v", len(got.Content), err)
	}
	other := s.dial(t, "alice")
	_, err := other.Artifacts().Fetch(t.Context(), large.ArtifactID)
	if e := reported(err); e == nil || e.Code != arcp.CodeFailedPrecondition {
		t.Errorf("Fetch without artifact_redirect = %v, want %s", err, arcp.CodeFailedPrecondition)
	}
	r, err := other.Artifacts().Get(t.Context(), large.ArtifactID)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || len(got) != largeArtifact { // requests parts
		t.Errorf("Get = %d bytes, %v", len(got), err)
	}
	bob := s.connect(t, "bob")
	_, err = bob.Artifacts().Fetch(t.Context(), large.ArtifactID)
	if e := reported(err); e == nil || e.Code != arcp.CodeNotFound {
		t.Errorf("Fetch of another principal = %v, want %s", err, arcp.CodeNotFound)
	}
	s.wantLinks(t, nil)
}

// A runtime without a URL offers no links.
func TestLinksNeedAURL(t *testing.T) {
	s := &linkServer{server: start(t, memory(t), nil)}
	if s.ArtifactHandler() != nil {
		t.Error("there is a handler of links")
	}
	c := s.connect(t, "alice")
	if caps := c.Session().Capabilities; caps.Has(arcp.FeatureArtifactRedirect) {
		t.Error("artifact_redirect is offered")
	}
	_, err := client.Dial(t.Context(), s.url, client.Options{Auth: client.Auth{Token: "alice-" + token},
		Capabilities: arcp.Capabilities{Required: []string{string(arcp.FeatureArtifactRedirect)}}})
	if e := reported(err); e == nil || e.Code != arcp.CodeUnimplemented {
		t.Errorf("a session that requires it: %v, want %s", err, arcp.CodeUnimplemented)
	}
	for _, bad := range []string{"/artifacts", "ftp://arcp.example/", "https://", "https://a:b@arcp.example/", "https://arcp.example/?a", "https://arcp.example/#",
		"https://arcp.example/a/../b", "https://arcp.example/%2f", "https://arcp.example/{a}", "https://arcp.example:port/"} {
		if err := (&runtime.ArtifactStorage{URL: bad}).CheckURL(); err == nil || strings.Contains(err.Error(), "a:b") {
			t.Errorf("CheckURL of %s = %v, want an error without the URL", bad, err)
		}
	}
	cfg := runtime.Config{Store: memory(t), Auth: auth.NewSet(new(auth.Config)), Artifacts: runtime.ArtifactStorage{URL: "/artifacts"}}
	if _, err := runtime.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "Config.Artifacts.URL") {
		t.Errorf("New = %v", err)
	}
}

// The rights of a link are those of the time of its use.
func TestLinksEndWithTheirArtifactAndPrincipal(t *testing.T) {
	s := startWithLinks(t, memory(t), nil)
	c := s.connect(t, "alice")
	released, kept := c.put(largeArtifact), c.put(largeArtifact)
	link := c.link(released.ArtifactID)
	if err := c.Artifacts().Release(released.ArtifactID); err != nil {
		t.Fatal(err)
	}
	last := c.link(kept.ArtifactID) // after the release
	wantStatus(t, "a released artifact", link, nil, http.StatusNotFound)
	s.set.Reload(new(auth.Config))
	wantStatus(t, "a principal without rights", last, nil, http.StatusNotFound)
	s.wantLinks(t, map[string]float64{"issued": 2, "refused": 2})
}

// A web page of another origin, or under another name, does not use a link.
func TestLinksCheckTheHost(t *testing.T) {
	s := startWithLinks(t, memory(t), func(c *runtime.Config) { c.AllowOrigins = []string{"https://app.example"} })
	c := s.connect(t, "alice")
	link := c.link(c.put(largeArtifact).ArtifactID)
	wantStatus(t, "another host", link, func(r *http.Request) { r.Host = "evil.example" }, http.StatusMisdirectedRequest)
	wantStatus(t, "another origin", link, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, http.StatusForbidden)
	wantStatus(t, "an allowed origin", link, func(r *http.Request) { r.Header.Set("Origin", "https://app.example") }, http.StatusOK)
	s.wantLinks(t, map[string]float64{"issued": 1, "refused": 2, "downloaded": 1})
}

// safeBuffer is a buffer for concurrent use.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// A session that negotiated links is answered as others are after the runtime was started without them.
func TestResumedSessionWithoutLinks(t *testing.T) {
	st, dir := keptStore{memory(t)}, t.TempDir()
	s := startWithLinks(t, st, func(c *runtime.Config) { c.Artifacts.Dir = dir })
	c := s.connect(t, "alice")
	ref := c.put(largeArtifact)
	c.Abort()
	p := s.server.connect(t)
	p.send(arcp.SessionOpen, fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"},"capabilities":{"artifacts":true,"artifact_redirect":true}}`, token), "")
	accepted := p.expect(arcp.SessionAccepted)
	_ = p.conn.Abort() // the runtime sees the end
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := start(t, st, func(c *runtime.Config) { c.Artifacts.Dir = dir })
	p = again.connect(t)
	p.send(arcp.SessionResume, fmt.Sprintf(`{"resume_token":%q,"last_event_seq":0}`, resumeToken(t, accepted)), fmt.Sprintf(`"session_id":%q,`, accepted.SessionID))
	p.expect(arcp.SessionResumed)
	request := p.send(arcp.ArtifactFetch, fmt.Sprintf(`{"artifact_id":%q}`, ref.ArtifactID), "")
	if e := refusal(t, p.answer(request)); e.Code != arcp.CodeFailedPrecondition {
		t.Errorf("the fetch is refused with %v, want FAILED_PRECONDITION", e)
	}
}

// A link is neither logged nor stored, and ends with the process.
func TestLinksEndWithTheProcess(t *testing.T) {
	dir := t.TempDir()
	rows, content := filepath.Join(dir, "store"), filepath.Join(dir, "artifacts")
	var log safeBuffer
	run := func(use func(s *linkServer)) {
		t.Run("process", func(t *testing.T) {
			st, err := pebble.Open(rows, pebble.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s := startWithLinks(t, st, func(c *runtime.Config) {
				c.Artifacts.Dir, c.Log = content, zerolog.New(&log).Level(zerolog.TraceLevel)
			})
			use(s)
		})
	}
	var unused, used string
	run(func(s *linkServer) {
		c := s.connect(t, "alice")
		ref := c.put(largeArtifact)
		used, unused = c.link(ref.ArtifactID), c.link(ref.ArtifactID)
		wantStatus(t, "a link", used, nil, http.StatusOK)
		c.Abort()
	})
	tokenOf := func(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }
	run(func(s *linkServer) {
		wantStatus(t, "a link of an earlier process", s.web.URL+"/artifacts/"+tokenOf(unused), nil, http.StatusNotFound)
	})
	err := filepath.WalkDir(rows, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(tokenOf(used))) || bytes.Contains(text, []byte(tokenOf(unused))) {
			err = errors.Join(err, fmt.Errorf("%s has a link", path))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if text := log.text.String(); strings.Contains(text, tokenOf(used)) || strings.Contains(text, tokenOf(unused)) || !strings.Contains(text, "download of an artifact ended") {
		t.Errorf("the log is\n%s", text)
	}
}
