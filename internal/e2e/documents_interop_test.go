package e2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/conformance/interop"
)

// TestDocumentedProgramsInterop runs the client programs of README.md and docs/sdks.md as they are
// printed, except that they take the URL of the server from the environment. Programs that resume lose
// their connection after the first progress.
func TestDocumentedProgramsInterop(t *testing.T) {
	ofOtherPrograms(t)
	t.Parallel()
	p := startServer(t, binary(t), ":memory:")
	defer p.kill(t)
	python := func(t *testing.T, source string) []string {
		return []string{interop.Python(t, interop.PythonNewest).Interpreter, "-u", "-c", source}
	}
	for _, c := range []struct {
		name              string
		document, heading string
		language          string
		environment       string // expression for the variable ARCP_URL
		command           func(t *testing.T, source string) []string
		progress          string // beginning of a line that tells progress
		steps             int    // lines that tell progress; 0: some
		connections       int    // 2: the first connection is cut
		result            string
	}{
		{name: "README Python", document: "README.md", heading: "## Connect a client", language: "python", environment: `os.environ["ARCP_URL"]`, command: python,
			progress: "progress ", steps: 3, connections: 1, result: "{'steps': 3}"},
		{name: "Python", document: "docs/sdks.md", heading: "## Python", language: "python", environment: `os.environ["ARCP_URL"]`, command: python,
			progress: "progress ", connections: 2, result: "{'count': 100, 'resumed_from': 0}"},
		{name: "Go", document: "docs/sdks.md", heading: "## Go", language: "go", environment: `os.Getenv("ARCP_URL")`, command: goProgram,
			progress: "job.progress", steps: 100, connections: 2, result: `{"count":100,"resumed_from":0}`},
		{name: "Rust", document: "docs/sdks.md", heading: "## Rust", language: "rust", environment: `&std::env::var("ARCP_URL")?`, command: rustProgram,
			progress: "job.progress", steps: 3, connections: 1, result: `{"steps":3}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc, err := os.ReadFile(c.document)
			if err != nil {
				t.Fatal(err)
			}
			const url = `"ws://127.0.0.1:7777/arcp"`
			source := block(t, doc, c.heading, c.language)
			if !strings.Contains(source, url) {
				t.Fatalf("the program does not connect to %s", url)
			}
			command := c.command(t, strings.ReplaceAll(source, url, c.environment))
			r := newRelay(t, p.address)
			var progress int
			lines := outputOf(t, command, "ws://"+r.address+"/arcp", func(line string) {
				if strings.HasPrefix(line, c.progress) {
					if progress++; progress == 1 && c.connections == 2 {
						r.breakConnections()
					}
				}
			})
			if progress == 0 || c.steps > 0 && progress != c.steps {
				t.Errorf("progress is told %d times, want %d (0: some)", progress, c.steps)
			}
			if last := lines[len(lines)-1]; last != c.result {
				t.Errorf("the last line is %q, want %q", last, c.result)
			}
			if r.connections() != c.connections {
				t.Errorf("%d connections, want %d", r.connections(), c.connections)
			}
		})
	}
}

// goProgram builds a program that imports packages of this module, and returns its command.
func goProgram(t *testing.T, source string) []string {
	t.Helper()
	dir := t.TempDir()
	file, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return []string{program}
}

func rustProgram(t *testing.T, source string) []string {
	t.Helper()
	return []string{interop.RustProgram(t, source)}
}

// outputOf runs a program with the URL of a server and a token, and returns the lines of its output. It
// calls each with every line.
func outputOf(t *testing.T, command []string, url string, each func(line string)) (lines []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "ARCP_URL="+url, "ARCP_TOKEN="+crashToken)
	cmd.Stderr = captureStderr(t)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(stdout); s.Scan(); {
		lines = append(lines, s.Text())
		each(s.Text())
	}
	if err := cmd.Wait(); err != nil || len(lines) == 0 {
		t.Fatalf("the program ends with %v after %d lines", err, len(lines))
	}
	return lines
}

// relay forwards TCP connections to a server, and can cut them.
type relay struct {
	address string

	mu       sync.Mutex
	open     []net.Conn
	accepted int
}

func newRelay(t *testing.T, server string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: listener.Addr().String()}
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for {
			client, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				_ = client.Close() // the error is reported
				return
			}
			r.add(client, upstream)
			for _, pair := range [][2]net.Conn{{client, upstream}, {upstream, client}} {
				forwarding.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // ends with either connection
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close() // ends Accept
		r.breakConnections()
		forwarding.Wait()
	})
	return r
}

func (r *relay) add(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accepted++
	r.open = append(r.open, conns...)
}

// connections returns the number of connections that clients have made.
func (r *relay) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted
}

// breakConnections ends the connections.
func (r *relay) breakConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.open {
		_ = conn.Close() // it may have ended
	}
	r.open = nil
}
