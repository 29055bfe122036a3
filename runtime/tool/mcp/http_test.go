package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// httpServer returns the URL of a server over HTTP. see may answer a request itself.
func httpServer(t *testing.T, opts *sdk.StreamableHTTPOptions, see func(w http.ResponseWriter, r *http.Request) (done bool), build func(s *sdk.Server)) string {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	build(s)
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, opts)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if see == nil || !see(w, r) {
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv.URL
}

func startHTTP(t *testing.T, c Config) (*Source, *publisher) {
	t.Helper()
	c.Name = "srv"
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.maxBytes = 1 << 20
	sh := &publisher{reg: tool.NewRegistry()}
	t.Cleanup(s.Close)
	if err := s.Start(t.Context(), sh.publish); err != nil {
		t.Fatal(err)
	}
	return s, sh
}

func run(t *testing.T, sh *publisher, j *job, name string) (string, *arcp.Error) {
	t.Helper()
	got, err := sh.reg.Resolve(name)
	if err != nil {
		t.Fatal(err)
	}
	out, e := got.Run(t.Context(), tool.NewJob(j), arcp.Raw(`{}`))
	return string(out), e
}

func TestHTTPServerPublishesTools(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for _, mode := range []sdk.StreamableHTTPOptions{{}, {JSONResponse: true}, {Stateless: true}} {
		t.Run(fmt.Sprintf("json=%v,stateless=%v", mode.JSONResponse, mode.Stateless), func(t *testing.T) {
			url := httpServer(t, &mode, nil, func(s *sdk.Server) {
				s.AddTool(plainTool("exact"), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1})
					return &sdk.CallToolResult{Content: []sdk.Content{}, StructuredContent: arcp.Raw(`{"n":9007199254740993}`)}, nil
				})
				s.AddTool(plainTool("big"), answer(big))
			})
			_, sh := startHTTP(t, Config{URL: url})
			j := new(job)
			if out, err := run(t, sh, j, "srv.exact"); err != nil || out != `{"content":[],"structuredContent":{"n":9007199254740993}}` {
				t.Errorf("srv.exact = %s, %v, want the number 9007199254740993 unchanged", out, err)
			}
			if !mode.JSONResponse && j.lines() != "progress 1/? " {
				t.Errorf("events of the job = %q, want one progress", j.lines())
			}
			if _, err := run(t, sh, new(job), "srv.big"); err == nil || err.Code != arcp.CodeResourceExhausted {
				t.Errorf("srv.big with a result of 1 MiB = %v, want RESOURCE_EXHAUSTED", err)
			}
			if _, err := run(t, sh, new(job), "srv.exact"); err != nil {
				t.Errorf("srv.exact after a result that is too large = %v, want no error", err)
			}
		})
	}
}

// Each request has the current headers of the file, and no log has them.
func TestHeadersAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	write := func(token string, mode os.FileMode) {
		if err := os.WriteFile(file, []byte("# why\nAuthorization: Bearer "+token+"\nX-Team: core\n"), mode); err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(file, mode)
	}
	write("first", 0o600)
	var want atomic.Value
	want.Store("Bearer first")
	url := httpServer(t, nil, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != want.Load() || r.Header.Get("X-Team") != "core" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return true
		}
		return false
	}, func(s *sdk.Server) { s.AddTool(plainTool("t"), answer("fine")) })
	log := new(locked)
	_, sh := startHTTP(t, Config{URL: url, HeadersFile: file, Log: zerolog.New(log)})
	if _, err := run(t, sh, new(job), "srv.t"); err != nil {
		t.Fatal(err)
	}
	want.Store("Bearer second-one")
	write("second-one", 0o600)
	if _, err := run(t, sh, new(job), "srv.t"); err != nil {
		t.Errorf("with new headers: %v", err)
	}
	write("third-one-for-all", 0o644)
	if _, err := run(t, sh, new(job), "srv.t"); err == nil || err.Code != arcp.CodeUnavailable {
		t.Errorf("with headers that others can read: %v", err)
	}
	for _, secret := range []string{"first", "second-one", "third-one"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%s is in the log:\n%s", secret, log)
		}
	}
}

// A redirect is refused: it would send the configured headers to another host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var followed atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer elsewhere.Close()
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("Authorization: Bearer x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	s, err := New(Config{Name: "srv", URL: srv.URL, HeadersFile: file})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.runSession(); err == nil || !strings.Contains(err.Error(), "redirect") {
		t.Errorf("%v, want an error that says that it is a redirect", err)
	}
	if followed.Load() {
		t.Error("it was followed")
	}
}

// A call of an unreachable server fails. Later calls succeed when the server is reachable again.
func TestHTTPServerGoesAway(t *testing.T) {
	var away atomic.Bool
	url := httpServer(t, nil, func(w http.ResponseWriter, _ *http.Request) bool {
		if away.Load() {
			http.Error(w, "gone", http.StatusBadGateway)
		}
		return away.Load()
	}, func(s *sdk.Server) { s.AddTool(plainTool("t"), answer("fine")) })
	_, sh := startHTTP(t, Config{URL: url})
	away.Store(true)
	if _, err := run(t, sh, new(job), "srv.t"); err == nil || err.Code != arcp.CodeUnavailable || !err.Retryable {
		t.Errorf("%v, want UNAVAILABLE", err)
	}
	away.Store(false)
	if _, err := run(t, sh, new(job), "srv.t"); err != nil {
		t.Errorf("after its return: %v", err)
	}
}

// A server before MCP 2026-07-28 announces changes on a stream that a GET request opens. The stream
// is opened again when it ends. An event that is too large is dropped.
func TestHTTPStreamIsReopened(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	var server *sdk.Server
	var streams atomic.Int64
	url := httpServer(t, nil, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Mcp-Session-Id") != "" && r.Header.Get("Mcp-Protocol-Version") != "2025-11-25" {
			t.Errorf("%s request with the version %q", r.Method, r.Header.Get("Mcp-Protocol-Version"))
		}
		if r.Method != http.MethodGet {
			return false
		}
		n := streams.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		if n == 2 {
			server.AddTool(plainTool("second"), answer("fine"))
			fmt.Fprintf(w, "data: %s\n\n", strings.Repeat("x", 2<<20))
			fmt.Fprint(w, `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n\n")
		}
		w.(http.Flusher).Flush()
		if n > 1 {
			<-r.Context().Done()
		}
		return true
	}, func(s *sdk.Server) {
		server = s
		s.AddTool(plainTool("first"), answer("fine"))
	})
	s, err := New(Config{Name: "srv", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	s.maxBytes = 1 << 20
	published := make(chan int, 10)
	t.Cleanup(s.Close)
	if err := s.Start(t.Context(), func(tools []*tool.Tool) error { published <- len(tools); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 2} {
		if got := <-published; got != want {
			t.Errorf("%d tools are published, want %d", got, want)
		}
	}
	if n := streams.Load(); n != 2 {
		t.Errorf("%d streams, want 2", n)
	}
}

// A server that answers neither the request for its stream nor the end of the session is used
// without a stream. Close does not wait for the server.
func TestHTTPStreamThatDoesNotStart(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real time-outs: left out with -short")
	}
	hang := make(chan struct{})
	var query atomic.Value
	url := httpServer(t, nil, func(_ http.ResponseWriter, r *http.Request) bool {
		query.Store(r.URL.RawQuery)
		if r.Method == http.MethodPost {
			return false
		}
		<-hang
		return true
	}, func(s *sdk.Server) { s.AddTool(plainTool("x"), answer("y")) })
	t.Cleanup(func() { close(hang) })
	log := new(locked)
	s, sh := startHTTP(t, Config{URL: url + "/mcp?api_key=SECRET", Log: zerolog.New(log)})
	if out, err := run(t, sh, new(job), "srv.x"); err != nil || !strings.Contains(out, "y") {
		t.Errorf("srv.x without the stream of the server = %s, %v, want y", out, err)
	}
	s.Close()
	if query.Load() != "api_key=SECRET" {
		t.Errorf("the server got the query %q, want api_key=SECRET", query.Load())
	}
	if l := log.String(); !strings.Contains(l, "continues without it") || strings.Contains(l, "SECRET") {
		t.Errorf("log = %s, want that it continues without the stream, and no SECRET", l)
	}
}

func TestURLQueryIsNotLogged(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	log := &waiting{want: "the session with an MCP server has ended", found: make(chan struct{})}
	s, err := New(Config{Name: "srv", URL: srv.URL + "/mcp?api_key=SECRET", Log: zerolog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-log.found; cancel() }()
	if err := s.Start(ctx, func([]*tool.Tool) error { return nil }); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if l := log.String(); !strings.Contains(l, log.want) || strings.Contains(l, "SECRET") {
		t.Errorf("log = %s, want that it continues without the stream, and no SECRET", l)
	}
}

// waiting is a log that closes found when a line contains want.
type waiting struct {
	locked
	want  string
	found chan struct{}
	once  sync.Once
}

func (w *waiting) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.want) {
		w.once.Do(func() { close(w.found) })
	}
	return w.locked.Write(p)
}
