package mcpserve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// pipes is a listener with connections in memory: the fake clock of synctest advances only
// while goroutines wait for each other, not for a socket.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours, nil
}

// inBubble runs a test with a fake clock.
func inBubble(t *testing.T, most int, test func(t *testing.T, w *web, p *pipes), tools ...*tool.Tool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// The fake clock advances while timers are active, also in a blocked test.
		stuck := time.AfterFunc(10*24*time.Hour, func() { panic(t.Name() + " waits for what does not come") })
		defer stuck.Stop()
		fx := start(t, Config{Timeout: 10 * time.Hour}, tools...)
		fx.srv.sessions.size = most
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		server := &httptest.Server{Listener: p, Config: &http.Server{Handler: fx.srv.HTTP(Access{})}}
		go func() { _ = server.Config.Serve(p) }() // until it is closed
		client := &http.Transport{DialContext: p.dial}
		server.URL = "http://localhost"
		w := &web{fx, server, &http.Client{Transport: client}}
		defer func() {
			client.CloseIdleConnections()
			_ = server.Config.Close()
			synctest.Wait()
		}()
		test(t, w, p)
	})
}

// beginEndlessRequest begins a request whose body never ends.
func beginEndlessRequest(t *testing.T, p *pipes, id string) *bufio.Reader {
	t.Helper()
	conn, err := p.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	head := "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 1000\r\n"
	if id != "" {
		head += "Mcp-Session-Id: " + id + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n{"); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(conn)
}

func TestSlowRequestsOccupyNoSlot(t *testing.T) {
	const most = 4
	inBubble(t, most, func(t *testing.T, w *web, p *pipes) {
		kept := w.begin()
		var slow []*bufio.Reader
		for range 3 * most {
			slow = append(slow, beginEndlessRequest(t, p, ""))
		}
		synctest.Wait()
		if status, _ := w.post(kept, ping); status != http.StatusOK {
			t.Errorf("an idle session was ended for requests that begin none: %d", status)
		}
		w.begin()
		for _, r := range slow {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusRequestTimeout {
				t.Errorf("a request that was not sent: %d %q, %v", resp.StatusCode, text, err)
			}
			if _, err := r.ReadByte(); err != io.EOF {
				t.Errorf("its connection goes on: %v", err)
			}
		}
	})
}

func TestSlowRequestTimesOut(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *web, p *pipes) {
		id := w.begin()
		slow := beginEndlessRequest(t, p, id)
		synctest.Wait()
		if n := w.uses(id); n != 1 {
			t.Errorf("%d requests under way, want 1", n)
		}
		resp, err := http.ReadResponse(slow, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		synctest.Wait()
		if n := w.uses(id); n != 0 {
			t.Errorf("%d requests under way, want 0", n)
		}
		w.begin()
	})
}

// The server does not wait for the body of a refused request.
func TestRefusedSlowRequestEnds(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, _ *web, p *pipes) {
		resp, err := http.ReadResponse(beginEndlessRequest(t, p, "made-up"), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%d, want 404", resp.StatusCode)
		}
	})
}

func TestRequestsWithoutSessionAreBounded(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, w *web, p *pipes) {
		w.srv.unassigned = make(chan struct{}, 2)
		slow := beginEndlessRequest(t, p, "")
		beginEndlessRequest(t, p, "")
		synctest.Wait()
		resp := w.send(http.MethodPost, "", initialize)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("a third request: %d %v, want 503", resp.StatusCode, resp.Header)
		}
		answer, err := http.ReadResponse(slow, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		synctest.Wait()
		w.begin()
	})
}

// The time for a request is not one for its answer, nor for the next request.
func TestSlowAnswersAreDelivered(t *testing.T) {
	limits := tool.Limits{Timeout: 4 * time.Hour}
	slow := raw(t, tool.Capability{Name: "slow", Limits: limits}, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		select {
		case <-time.After(2 * time.Hour):
			return arcp.Raw(`"done"`), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	inBubble(t, 1, func(t *testing.T, w *web, p *pipes) {
		dialed := 0
		w.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed++
			return p.dial(ctx, network, addr)
		}
		id := w.begin()
		time.Sleep(2 * readBody)
		resp := w.send(http.MethodPost, id, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"slow","arguments":{}}}`)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(text), "done") {
			t.Errorf("the response is %q, %v; want the result done", text, err)
		}
		if status, _ := w.post(id, ping); status != http.StatusOK {
			t.Errorf("afterwards: %d", status)
		}
		if dialed != 1 {
			t.Errorf("%d connections, want one that is kept", dialed)
		}
	}, slow)
}

func TestRejectedRequestsEvictNoSession(t *testing.T) {
	w := serveHTTP(t, 1)
	kept := w.begin()
	for _, body := range []string{"", "{", "null", ping, "[" + ping + "]", "[" + initialize + "]",
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		strings.Repeat(" ", maxRequest+1)} {
		if status, id := w.post("", body); id != "" && status == http.StatusOK {
			if status, _ := w.post(id, ping); status != http.StatusNotFound {
				t.Errorf("%.40q begins a session that has no place: %d", body, status)
			}
		}
	}
	if n := w.sessions(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	if status, _ := w.post(kept, ping); status != http.StatusOK {
		t.Errorf("the session that was there: %d", status)
	}
}

func TestOnlyIdleSessionsExpire(t *testing.T) {
	called := make(chan struct{}, 1)
	limits := tool.Limits{Timeout: 9 * time.Hour}
	slow := raw(t, tool.Capability{Name: "slow", Limits: limits}, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		called <- struct{}{}
		select {
		case <-time.After(5 * time.Hour):
			return arcp.Raw(`"done"`), nil
		case <-ctx.Done():
			called <- struct{}{} // it was not to be cancelled
			return nil, context.Cause(ctx)
		}
	})
	inBubble(t, 9, func(t *testing.T, w *web, _ *pipes) {
		has := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			w.srv.sessions.mu.Lock()
			defer w.srv.sessions.mu.Unlock()
			if len(w.srv.sessions.slots) != len(want) || w.sessions() != len(want) {
				t.Fatalf("%s: %d slots are used by %d sessions, want %d", when, len(w.srv.sessions.slots), w.sessions(), len(want))
			}
			for _, id := range want {
				if w.srv.sessions.slots[id] == nil {
					t.Fatalf("%s: a session has ended that was in use", when)
				}
			}
		}
		listening, calling, idle := w.begin(), w.begin(), w.begin()
		stream := w.listen(listening)
		ctx, hangUp := context.WithCancelCause(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := w.try(ctx, http.MethodPost, calling, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"slow","arguments":{}}}`)
			left <- err
		}()
		select {
		case <-called:
		case err := <-left:
			t.Fatal(err)
		}
		hangUp(errors.New("gone"))

		time.Sleep(idleSessions / 2)
		later := w.begin()
		has("before the hour", listening, calling, idle, later)
		time.Sleep(idleSessions / 2)
		has("after an hour", listening, calling, later)
		time.Sleep(idleSessions / 2)
		has("after another half", listening, calling)
		if status, _ := w.post(idle, ping); status != http.StatusNotFound {
			t.Errorf("a session that was idle: %d, want 404", status)
		}
		time.Sleep(5 * idleSessions) // the call has ended for more than one
		has("after the call", listening)
		if len(called) > 0 {
			t.Error("the call was cancelled")
		}
		if err := stream.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(idleSessions - time.Second)
		has("when the stream has ended", listening)
		time.Sleep(2 * time.Second)
		has("an hour after it")
	}, slow)
}

// A closed server has no sessions and no timers.
func TestCloseEndsIdleSessions(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *web, _ *pipes) {
		w.begin()
		w.srv.Close()
		if n := w.sessions(); n != 0 {
			t.Errorf("%d sessions, want 0", n)
		}
		w.srv.sessions.mu.Lock()
		defer w.srv.sessions.mu.Unlock()
		if w.srv.sessions.timer.Stop() {
			t.Error("a timer runs")
		}
	})
}
