//go:build linux

package credential

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

var request = Request{Job: "job_1", Principal: "alice", Agent: "llm.ask@1.0.0", Lease: arcp.Raw(`{"model_use":["a/*"]}`),
	ExpiresAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Budget: arcp.Raw(`{"USD":5}`), TraceID: "t1"}

// wantError checks the code that is sent to the client, and whether err is a RefusedError.
func wantError(t *testing.T, err error, code arcp.Code, refused bool) {
	t.Helper()
	e, known := arcp.AsError(err)
	if !known || e.Code != code {
		t.Errorf("error = %v, want %s", err, code)
	}
	if _, ok := errors.AsType[*RefusedError](err); ok != refused {
		t.Errorf("%v: refused = %v, want %v", err, ok, refused)
	}
	if err != nil && strings.Contains(err.Error(), "sk-") {
		t.Errorf("the error has a secret in it: %v", err)
	}
}

func TestProvisionerPool(t *testing.T) {
	p, err := OpenStaticPool(private(t, "# ours\nsk-00000001\n\n  sk-00000002\n"), "https://llm.example", "openai")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	take := func(job arcp.JobID) Credential {
		t.Helper()
		list, err := p.Issue(ctx, Request{Job: job})
		if err != nil || len(list) != 1 {
			t.Fatalf("Issue = %v, %v", list, err)
		}
		if err := list[0].check(); err != nil {
			t.Errorf("the issued credential is not valid: %v", err)
		}
		return list[0]
	}
	one, two := take("job_1"), take("job_2")
	if one.Value == two.Value || take("job_1").Value != one.Value {
		t.Error("two jobs share a value, or a job has two")
	}
	_, err = p.Issue(ctx, Request{Job: "job_3"})
	wantError(t, err, arcp.CodeResourceExhausted, true)
	if e, _ := arcp.AsError(err); string(e.Details) != `{"retry_after_seconds":5}` {
		t.Errorf("details = %s", e.Details)
	}
	for _, ref := range []Ref{{Job: "job_3"}, {Job: "job_3", Upstream: one.Upstream}, {Job: "job_1", Upstream: "else"}} {
		if err := p.Revoke(ctx, ref); err != nil {
			t.Errorf("Revoke(%+v) = %v, want nil: there is no such credential", ref, err)
		}
	}
	if _, err := p.Issue(ctx, Request{Job: "job_3"}); err == nil {
		t.Error("another job's value became free")
	}
	if err := p.Revoke(ctx, Ref{Job: "job_1", Upstream: one.Upstream}); err != nil {
		t.Errorf("Revoke of an issued credential: %v", err)
	}
	if got := take("job_3"); got.Value != one.Value {
		t.Error("a revoked value is not free")
	}
	q, err := OpenStaticPool(private(t, "sk-00000001\nsk-00000002"), "https://llm.example", "")
	if err != nil {
		t.Fatal(err)
	}
	q.Restore([]Ref{{Job: "job_3", Upstream: one.Upstream}, {Job: "job_4"}})
	p = q
	if got := take("job_5"); got.Value != two.Value {
		t.Error("a restart has given out what is in use")
	}
}

// Each generation of a job gets another value. A repeated call returns the same value.
func TestPoolGivesEachGenerationAnotherValue(t *testing.T) {
	p, err := OpenStaticPool(private(t, "sk-00000001\nsk-00000002"), "https://llm.example", "")
	if err != nil {
		t.Fatal(err)
	}
	take := func(generation int) (Credential, error) {
		list, err := p.Issue(t.Context(), Request{Job: "job_1", Generation: generation})
		if err != nil {
			return Credential{}, err
		}
		return list[0], nil
	}
	one, _ := take(1)
	two, err := take(2)
	if again, _ := take(2); err != nil || one.Value == two.Value || again.Value != two.Value {
		t.Errorf("%v: a rotation gives what the job has, or another value each time", err)
	}
	if _, err := take(3); err == nil {
		t.Error("a third value of two")
	}
	if err := p.Revoke(t.Context(), Ref{Job: "job_1", Upstream: one.Upstream, Generation: 1}); err != nil {
		t.Errorf("Revoke of the first generation: %v", err)
	}
	q, err := OpenStaticPool(private(t, "sk-00000001\nsk-00000002"), "https://llm.example", "")
	if err != nil {
		t.Fatal(err)
	}
	q.Restore([]Ref{{Job: "job_1", Upstream: two.Upstream, Generation: 2}})
	p = q
	if again, _ := take(2); again.Value != two.Value {
		t.Error("after a restart a generation gets another value")
	}
	if three, err := take(3); err != nil || three.Value != one.Value {
		t.Errorf("%v: what was revoked is not free", err)
	}
}

func TestPoolFileErrors(t *testing.T) {
	for text, want := range map[string]string{"": "no value", "sk-00000001\nsk-1": "line 2", "sk-00000001\n#\nsk-00000001": "line 3", "sk-0000 0001": "line 1"} {
		if _, err := OpenStaticPool(private(t, text), "https://llm.example", ""); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-0") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	path := private(t, "sk-00000001")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStaticPool(path, "https://llm.example", ""); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("OpenStaticPool of a file others can read = %v", err)
	}
}

const goodAnswer = `{"credentials":[{"value":"sk-0123456789","handle":"h/1 ?","profile":"openai","expires_at":"2030-01-01T00:00:00Z"}]}`

func gateway(t *testing.T, h http.HandlerFunc) *Gateway {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	g, err := OpenGateway(s.URL+"/keys/", private(t, "sk-admin-token\n"), "https://llm.example", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.client.CloseIdleConnections)
	return g
}

func TestProvisionerGateway(t *testing.T) {
	var seen []string
	g := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, fmt.Sprintf("%s %s %s %s", r.Method, r.RequestURI, r.Header.Get("Authorization"), body))
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, goodAnswer)
		} else if strings.Contains(r.RequestURI, "gone") {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	list, err := g.Issue(t.Context(), request)
	if err != nil || len(list) != 1 {
		t.Fatalf("Issue = %v, %v", list, err)
	}
	c := list[0]
	if err := checkAll(list, &request); err != nil || c.Value != "sk-0123456789" || c.Endpoint != "https://llm.example" || c.Profile != "openai" ||
		!c.ExpiresAt.Equal(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("credential = %+v, %v", c, err)
	}
	c = list[0]
	if want := `{"expires_at":"2030-01-01T00:00:00.000000Z","model_use":["a/*"]}`; string(c.Constraints) != want {
		t.Errorf("constraints = %s, want %s", c.Constraints, want)
	}
	for _, ref := range []Ref{{Job: "job_1", Upstream: c.Upstream}, {Job: "job_1", Upstream: "gone"}, {Job: "job_1"}} {
		if err := g.Revoke(t.Context(), ref); err != nil {
			t.Errorf("Revoke(%+v): %v", ref, err)
		}
	}
	want := []string{
		`POST /keys Bearer sk-admin-token {"job_id":"job_1","principal":"alice","agent":"llm.ask@1.0.0","lease":{"model_use":["a/*"]},"expires_at":"2030-01-02T03:04:05.000000Z","budget":{"USD":5},"trace_id":"t1"}`,
		`DELETE /keys/h%2F1%20%3F Bearer sk-admin-token `, `DELETE /keys/gone Bearer sk-admin-token `, `DELETE /keys?job_id=job_1 Bearer sk-admin-token `}
	for i := range max(len(seen), len(want)) {
		if i >= len(seen) || i >= len(want) || seen[i] != want[i] {
			t.Fatalf("requests:\n%s\nwant:\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
		}
	}
	rotation := request
	rotation.Generation = 2
	if _, err := g.Issue(t.Context(), rotation); err != nil || !strings.Contains(seen[len(seen)-1], `"trace_id":"t1","generation":2}`) {
		t.Errorf("a rotation is asked for as %s, %v", seen[len(seen)-1], err)
	}
	g = gateway(t, http.NotFound)
	if err := g.Revoke(t.Context(), Ref{Job: "job_1"}); err == nil {
		t.Error("404 was taken for the job's keys being revoked: the server may not know how")
	}
	for _, up := range []string{".", ".."} {
		if err := g.Revoke(t.Context(), Ref{Job: "job_1", Upstream: up}); err == nil {
			t.Errorf("handle %q was taken as a path", up)
		}
	}
}

func TestGatewayFailures(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	status := func(n int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(n)
			_, _ = io.WriteString(w, "sk-leaked-in-body")
		}
	}
	for name, x := range map[string]struct {
		h       http.HandlerFunc
		code    arcp.Code
		refused bool
		revoked bool // by the same answer
	}{
		"401":      {status(401), arcp.CodePermissionDenied, true, false},
		"403":      {status(403), arcp.CodePermissionDenied, true, false},
		"404":      {status(404), arcp.CodeInternal, true, true},
		"429":      {status(429, "Retry-After", "7"), arcp.CodeResourceExhausted, true, false},
		"500":      {status(500), arcp.CodeUnavailable, false, false},
		"503":      {status(503), arcp.CodeUnavailable, false, false},
		"redirect": {status(307, "Location", elsewhere.URL), arcp.CodeInternal, true, false},
		"garbage":  {status(200), arcp.CodeInternal, false, true},
		"no body":  {status(204), arcp.CodeInternal, false, true},
		"huge":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxAnswer+1)) }, arcp.CodeInternal, false, false},
		"no handle": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"credentials":[{"value":"sk-0123456789"}]}`)
		}, arcp.CodeInternal, false, true},
		"twice": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"credentials":[],"credentials":[{"value":"sk-0123456789"}]}`)
		}, arcp.CodeInternal, false, true},
		"cut": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, arcp.CodeUnavailable, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := gateway(t, x.h)
			list, err := g.Issue(t.Context(), request)
			if list != nil {
				t.Errorf("Issue = %v", list)
			}
			wantError(t, err, x.code, x.refused)
			err = g.Revoke(t.Context(), Ref{Job: "job_1", Upstream: "h"})
			if (err == nil) != x.revoked || err != nil && strings.Contains(err.Error(), "sk-") {
				t.Errorf("Revoke = %v", err)
			}
		})
	}
}

func TestGatewayUnavailable(t *testing.T) {
	asked, quit := make(chan struct{}, 1), make(chan struct{})
	g := gateway(t, func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-quit })
	defer close(quit)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-asked; cancel(errTimeout) }()
	_, err := g.Issue(ctx, request)
	wantError(t, err, arcp.CodeUnavailable, false)

	s := httptest.NewServer(nil)
	s.Close()
	g, err = OpenGateway(s.URL, private(t, "sk-admin-token"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Issue(t.Context(), request)
	wantError(t, err, arcp.CodeUnavailable, true)
	if err := os.Remove(g.tokenFile); err != nil {
		t.Fatal(err)
	}
	_, err = g.Issue(t.Context(), request)
	wantError(t, err, arcp.CodeUnavailable, true)
}

func TestHTTPOnlyToLoopback(t *testing.T) {
	if err := onlyLoopback("tcp", "192.0.2.1:80", nil); err == nil {
		t.Error("http goes to another host")
	}
	for _, a := range []string{"127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"} {
		if err := onlyLoopback("tcp", a, nil); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]int{"": 1, "0": 1, "-3": 1, "x": 1, "30": 30, "99999999": 3600, "Mon, 02 Jan 2006 15:04:05 GMT": 1,
		time.Now().Add(100 * time.Hour).UTC().Format(http.TimeFormat): 3600} {
		if got := retryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("retryAfter(%q) = %d, want %d", text, got, want)
		}
	}
}

// script returns a command written in shell.
func script(t *testing.T, text string) *Command {
	return NewCommand([]string{"/bin/sh", "-c", text}, "https://llm.example", "")
}

func TestProvisionerCommand(t *testing.T) {
	t.Setenv("ARCP_TOKEN", "sk-of-the-server")
	out := filepath.Join(t.TempDir(), "out")
	c := script(t, `cat > `+out+`; env >> `+out+`; echo sk-noise >&2; echo '`+goodAnswer+`'`)
	list, err := c.Issue(t.Context(), request)
	if err != nil || len(list) != 1 || list[0].Value != "sk-0123456789" || list[0].Endpoint != "https://llm.example" {
		t.Fatalf("Issue = %v, %v", list, err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got), `{"op":"issue","job_id":"job_1","principal":"alice"`) || strings.Contains(string(got), "ARCP_TOKEN") {
		t.Errorf("the program got %s", got)
	}
	if err := c.Revoke(t.Context(), Ref{Job: "job_1", ID: "c1", Upstream: "h", Generation: 2}); err != nil {
		t.Errorf("Revoke by the program: %v", err)
	}
	if got, _ = os.ReadFile(out); !strings.HasPrefix(string(got), `{"op":"revoke","job_id":"job_1","generation":2,"id":"c1","handle":"h"}`) {
		t.Errorf("the program got %s", got)
	}
}

func TestCommandFailures(t *testing.T) {
	for name, x := range map[string]struct {
		script  string
		code    arcp.Code
		refused bool
	}{
		"fails":   {"echo sk-secret >&2; exit 3", arcp.CodeUnavailable, false},
		"refuses": {"exit 77", arcp.CodePermissionDenied, true},
		"garbage": {"echo sk-secret", arcp.CodeInternal, false},
		"huge":    {"while :; do echo sk-sssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss; done", arcp.CodeInternal, false},
		"killed":  {"kill -9 $$", arcp.CodeUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := script(t, x.script).Issue(t.Context(), request)
			wantError(t, err, x.code, x.refused)
		})
	}
	_, err := NewCommand([]string{"/nonexistent/program"}, "", "").Issue(t.Context(), request)
	wantError(t, err, arcp.CodeUnavailable, true)
	err = script(t, "echo 0123456789 >&2; exit 3").Revoke(t.Context(), Ref{Job: "job_1"})
	if err == nil || strings.Contains(err.Error(), "01234") || !strings.Contains(err.Error(), "11 bytes") {
		t.Errorf("Revoke = %v, want the length of stderr only", err)
	}
}

// A hanging program is killed with all its children, even if it ignores SIGTERM.
func TestHangingCommandIsKilled(t *testing.T) {
	for name, text := range map[string]string{"hangs": "sleep 100 & echo $! > %s; wait", "ignores SIGTERM": "trap '' TERM; sleep 100 & echo $! > %s; while :; do sleep 100; done"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pidFile := filepath.Join(t.TempDir(), "pid")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			begun := make(chan int, 1)
			go func() {
				begun <- started(ctx, pidFile)
				cancel(errTimeout)
			}()
			_, err := script(t, fmt.Sprintf(text, pidFile)).Issue(ctx, request)
			wantError(t, err, arcp.CodeUnavailable, false)
			cancel(nil) // also if it has not begun
			pid := <-begun
			if pid == 0 {
				t.Fatal("the program has not begun")
			}
			for end := time.Now().Add(time.Minute); alive(pid); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("what the program has started goes on")
				}
			}
		})
	}
}

// started waits until a program has written the process id of its child into a file. It
// returns 0 if ctx ends first.
func started(ctx context.Context, file string) int {
	for ctx.Err() == nil {
		data, _ := os.ReadFile(file) // not there yet
		if text, whole := strings.CutSuffix(string(data), "\n"); whole {
			pid, _ := strconv.Atoi(text) // 0 if it is none
			return pid
		}
		time.Sleep(time.Millisecond)
	}
	return 0
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
