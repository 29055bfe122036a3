package mcpserve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` +
		`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
)

// web is an HTTP server with a number of slots.
type web struct {
	*fixture
	*httptest.Server
	client *http.Client
}

func serveHTTP(t *testing.T, most int, tools ...*tool.Tool) *web {
	t.Helper()
	fx := start(t, Config{}, tools...)
	fx.srv.sessions.size = most
	server := httptest.NewServer(fx.srv.HTTP(Access{}))
	t.Cleanup(server.Close)
	return &web{fx, server, server.Client()}
}

// try sends a request and returns its answer; the caller closes the body.
func (w *web) try(ctx context.Context, method, id, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if id != "" {
		req.Header.Set("Mcp-Session-Id", id)
	}
	return w.client.Do(req)
}

func (w *web) send(method, id, body string) *http.Response {
	w.Helper()
	resp, err := w.try(w.Context(), method, id, body)
	if err != nil {
		w.Fatal(err)
	}
	return resp
}

// post sends a message. It returns the status and the session id of the answer.
func (w *web) post(id, body string) (status int, session string) {
	w.Helper()
	resp := w.send(http.MethodPost, id, body)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		w.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Mcp-Session-Id")
}

// begin begins a session.
func (w *web) begin() (id string) {
	w.Helper()
	status, id := w.post("", initialize)
	if status != http.StatusOK || id == "" {
		w.Fatalf("a session cannot begin: %d", status)
	}
	return id
}

// listen opens the stream of a session.
func (w *web) listen(id string) io.Closer {
	w.Helper()
	resp := w.send(http.MethodGet, id, "")
	if resp.StatusCode != http.StatusOK {
		w.Fatalf("the stream of a session: %d", resp.StatusCode)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil { // it is open
		w.Fatal(err)
	}
	return resp.Body
}

func (w *web) sessions() (n int) {
	for range w.srv.mcp.Sessions() {
		n++
	}
	return n
}

func (w *web) uses(id string) int {
	w.srv.sessions.mu.Lock()
	defer w.srv.sessions.mu.Unlock()
	return w.srv.sessions.slots[id].uses
}

// withoutDelete leaves the end of a session unsaid, as many clients do.
type withoutDelete struct{ http.RoundTripper }

func (w withoutDelete) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		return nil, errors.New("the client goes without a word")
	}
	return w.RoundTripper.RoundTrip(r)
}

func TestAbandonedSessionsAreEvicted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	w := serveHTTP(t, maxSessions, raw(t, tool.Capability{Name: "t"}, echo))
	first := w.begin()
	for range 9 * maxSessions {
		w.begin()
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	for range maxSessions {
		s, err := client.Connect(t.Context(),
			&sdk.StreamableClientTransport{Endpoint: w.URL, HTTPClient: &http.Client{Transport: withoutDelete{w.client.Transport}}},
			nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, failed := w.call(s, "t", `{"a":1}`); failed || text != `{"a":1}` {
			t.Fatal(text)
		}
		_ = s.Close() // it fails, as is wanted
	}
	if n := w.sessions(); n > maxSessions {
		t.Errorf("%d sessions at a time, want at most %d", n, maxSessions)
	}
	if status, _ := w.post(first, ping); status != http.StatusNotFound {
		t.Errorf("a session that had to make room: %d, want 404, which tells the client to begin another", status)
	}
	if status, _ := w.post("made-up", ping); status != http.StatusNotFound {
		t.Errorf("a session that never was: %d, want 404", status)
	}
}

func TestSessionInUseIsNotEvicted(t *testing.T) {
	called, finish := make(chan struct{}, 2), make(chan struct{})
	slow := tool.Capability{Name: "slow", Limits: tool.Limits{Timeout: time.Minute}}
	w := serveHTTP(t, 4, raw(t, slow, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		called <- struct{}{}
		select {
		case <-finish:
			return arcp.Raw(`"done"`), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}))
	listening, calling, lost := w.begin(), w.begin(), w.begin()
	stream := w.listen(listening)
	defer stream.Close()

	const call = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"slow","arguments":{}}}`
	answer := make(chan string, 1)
	go func() {
		resp, err := w.try(t.Context(), http.MethodPost, calling, call)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body) // the caller checks the text
		answer <- string(text)
	}()
	<-called
	ctx, hangUp := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := w.try(ctx, http.MethodPost, lost, call)
		left <- err
	}()
	<-called
	uses := w.uses(lost)
	hangUp() // the call continues, as MCP requires
	if err := <-left; err == nil {
		t.Fatal("the call was answered")
	}
	for w.uses(lost) == uses { // the server notices the disconnect later
		time.Sleep(time.Millisecond)
	}

	var before string
	for range 12 {
		now := w.begin()
		if before != "" {
			if status, _ := w.post(before, ping); status != http.StatusNotFound {
				t.Fatalf("the only idle session: %d, want that it has made room", status)
			}
		}
		before = now
	}
	for _, id := range []string{listening, calling, lost} {
		if status, _ := w.post(id, ping); status != http.StatusOK {
			t.Errorf("a session in use was ended for another: %d", status)
		}
	}
	close(finish)
	if text := <-answer; !strings.Contains(text, "done") {
		t.Errorf("the call in the meantime: %s", text)
	}
}

func TestFullPoolRefusesSessions(t *testing.T) {
	w := serveHTTP(t, 2)
	first, second := w.begin(), w.begin()
	defer w.listen(first).Close()
	defer w.listen(second).Close()
	resp := w.send(http.MethodPost, "", initialize)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(text), "all 2 sessions are in use") {
		t.Errorf("initialize is answered by %d %v %q, %v; want 503 with Retry-After, because all 2 sessions are in use",
			resp.StatusCode, resp.Header, text, err)
	}
	w.send(http.MethodDelete, second, "").Body.Close()
	w.begin()
}

// A call that had been sent before its session had to make room does not begin.
func TestEvictedSessionAcceptsNoRequests(t *testing.T) {
	w := serveHTTP(t, 1)
	c := w.srv.sessions.acquire(w.begin())
	w.srv.sessions.leave(c)
	w.begin()
	if w.srv.sessions.enter(c) {
		t.Error("a call begins")
	}
}

// A request that begins no session occupies no slot of the pool.
func TestFailedInitializeFreesSlot(t *testing.T) {
	w := serveHTTP(t, 2)
	kept := w.begin()
	for range 5 {
		for _, body := range []string{"", "{", ping, `{"jsonrpc":"2.0","id":1,"method":"initialize"}`} {
			w.post("", body)
		}
	}
	if status, _ := w.post(kept, initialize); status != http.StatusOK { // an error, in an answer
		t.Errorf("a second beginning of a session: %d", status)
	}
	if status, _ := w.post(kept, ping); status != http.StatusOK {
		t.Errorf("a session that was no one's to end: %d", status)
	}
	w.srv.sessions.mu.Lock()
	defer w.srv.sessions.mu.Unlock()
	if n := len(w.srv.sessions.slots); w.srv.sessions.reserved != 0 || n != 1 {
		t.Errorf("%d slots reserved and %d used, want 0 and 1", w.srv.sessions.reserved, n)
	}
}

func TestConcurrentInitializesKeepBound(t *testing.T) {
	const most, all = 4, 40
	w := serveHTTP(t, most)
	came, release := make(chan bool, all), make(chan struct{})
	w.srv.mcp.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			came <- true
			<-release
			return next(ctx, method, req)
		}
	})
	var clients sync.WaitGroup
	for range all {
		clients.Go(func() {
			if status, _ := w.post("", initialize); status == http.StatusServiceUnavailable {
				came <- false
			}
		})
	}
	in := 0
	for range all {
		if <-came {
			in++
		}
	}
	close(release)
	clients.Wait()
	if in != most {
		t.Errorf("%d sessions began together, want %d", in, most)
	}
}
