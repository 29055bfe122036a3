package runtime_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/transport"
)

// piped is a client in a pipeline: it ends sending and reads on.
type piped struct {
	*fixture
	conn  *net.UnixConn
	lines *bufio.Reader
	ended chan error // the result of Serve
	n     int
}

// pipe opens a session over a unix socket.
func (f *fixture) pipe() *piped {
	f.Helper()
	path := filepath.Join(f.TempDir(), "sock")
	u, err := transport.ListenUnix(path, transport.Limits{})
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = u.Close() }()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	served, err := u.Accept()
	if err != nil {
		f.Fatal(err)
	}
	p := &piped{fixture: f, conn: conn, lines: bufio.NewReader(conn), ended: make(chan error, 1)}
	f.serve.Go(func() { p.ended <- f.rt.Serve(context.Background(), served) })
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"}}`, token))
	if line, err := p.lines.ReadString('\n'); err != nil || !strings.Contains(line, `"session.accepted"`) {
		f.Fatalf("the runtime sent %s, %v", line, err)
	}
	return p
}

func (p *piped) send(typ, payload string) {
	p.Helper()
	p.n++
	_, err := fmt.Fprintf(p.conn, `{"arcp":"1.1","id":"msg_%d","type":%q,"timestamp":"2030-01-02T15:04:05Z","payload":%s}`+"\n", p.n, typ, payload)
	if err != nil {
		p.Fatal(err)
	}
}

// rest ends sending and reads up to the end.
func (p *piped) rest() string {
	p.Helper()
	if err := p.conn.CloseWrite(); err != nil {
		p.Fatal(err)
	}
	text, err := io.ReadAll(p.lines)
	if err != nil {
		p.Errorf("the connection ends with %v", err)
	}
	return string(text)
}

func (p *piped) serveEnds(why string) {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.Fatalf("%s: the connection does not end", why)
	}
}

// Requests before the end of sending are answered, and jobs are followed to their end.
func TestAClientThatHasEndedSendingIsAnswered(t *testing.T) {
	f := newRealTimeFixture(t)
	p := f.pipe()
	const jobs = 20
	for range jobs {
		p.send("tool.invoke", `{"tool":"demo.progress","arguments":{"steps":8,"interval_ms":50}}`)
	}
	p.send("subscribe", `{}`)
	p.send("session.list_jobs", `{}`)
	p.send("ping", `{}`)
	text := p.rest()
	for member, n := range map[string]int{`"type":"job.accepted"`: jobs, `"type":"job.progress"`: 8 * jobs, `"type":"job.completed"`: jobs,
		`"type":"session.jobs"`: 1, `"type":"pong"`: 1, `"type":"subscribe.accepted"`: 1} {
		if got := strings.Count(text, member) - strings.Count(text, `"event":{`+member); got < n {
			t.Errorf("%d of %s are sent, want %d", got, member, n)
		}
	}
	p.serveEnds("everything is said")
}

func TestAClientThatAsksForNothingIsLetGo(t *testing.T) {
	f := newRealTimeFixture(t)
	p := f.pipe()
	if text := p.rest(); text != "" {
		t.Errorf("the runtime sent %s", text)
	}
	p.serveEnds("nothing was asked")
}

// A client that does not read either has disconnected; its job continues.
func TestAClientThatGoesAfterItHasEndedSending(t *testing.T) {
	f := newRealTimeFixture(t)
	p := f.pipe()
	p.send("tool.invoke", `{"tool":"demo.progress","arguments":{"steps":3600000,"interval_ms":1}}`)
	read := func(frames int) {
		for range frames {
			if line, err := p.lines.ReadString('\n'); err != nil {
				t.Fatalf("the runtime sent %s, %v", line, err)
			}
		}
	}
	read(2)
	if err := p.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	read(100) // the connection lives while its job runs
	if err := p.conn.Close(); err != nil {
		t.Fatal(err)
	}
	p.serveEnds("nobody reads")
	if n := f.sum("arcp_jobs", `"running"`); n != 1 {
		t.Errorf("%v jobs run, want the one that was left", n)
	}
}
