package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	toolexec "github.com/arcpd/arcpd/runtime/tool/exec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// beArcp makes the test program be arcp: so processes of their own are tested
// with the race detector, and `arcp demo` can start this program again.
const beArcp = "TEST_BE_ARCP"

func TestMain(m *testing.M) {
	toolexec.Hook()
	if len(os.Args) > 1 && os.Args[1] == beMCP {
		os.Exit(serveMCP(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == beWorker {
		os.Exit(workOnStdio(os.Args[2:]))
	}
	if os.Getenv(beArcp) != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	flag.Parse()
	home, err := os.MkdirTemp("", "arcp-test-")
	if err != nil {
		panic(err)
	}
	isolate(home)
	code := m.Run()
	_ = os.RemoveAll(home)
	os.Exit(code)
}

// isolate keeps the user's configuration, state and environment out of the
// tests.
func isolate(home string) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "ARCP_") {
			_ = os.Unsetenv(name)
		}
	}
	for name, value := range map[string]string{
		"HOME": home, "XDG_STATE_HOME": filepath.Join(home, "state"), "XDG_CONFIG_HOME": filepath.Join(home, "config"),
		"TZ": "UTC", "NO_COLOR": "1",
	} {
		_ = os.Setenv(name, value)
	}
}

// patience bounds every wait; the machine may be busy.
const patience = 3 * time.Minute

// outcome is how a command ended.
type outcome struct {
	code           int
	stdout, stderr string
}

func (o outcome) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", o.code, o.stdout, o.stderr)
}

// cli runs a command in this process.
func cli(t *testing.T, args ...string) outcome { t.Helper(); return cliWith(t, "", args...) }

func cliWith(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// typist is a person at a terminal, in front of a command of this process.
type typist struct {
	t     *testing.T
	keys  *io.PipeWriter
	shown *tail
	done  chan int // the exit code
	out   bytes.Buffer
}

// atTerminal runs a command as on a terminal. It has ended when the test ends.
func atTerminal(t *testing.T, args ...string) *typist {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	stdin, keys := io.Pipe()
	p := &typist{t: t, keys: keys, shown: new(tail), done: make(chan int, 1)}
	a := &app{stdin: stdin, stdout: &p.out, stderr: p.shown, environ: os.Environ(), interactive: true}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.done <- a.run(ctx, args)
	}()
	t.Cleanup(func() {
		cancel()
		_ = stdin.Close() // ends a reader of it
		<-ended
	})
	return p
}

// sees waits for a text on the terminal.
func (t *typist) sees(text string) {
	t.t.Helper()
	until(t.t, "the terminal shows "+text+":\n"+t.shown.String(), func() bool { return strings.Contains(t.shown.String(), text) })
}

// types types a line; it returns when it is read.
func (t *typist) types(line string) {
	t.t.Helper()
	if _, err := io.WriteString(t.keys, line+"\n"); err != nil {
		t.t.Fatal(err)
	}
}

// leaves waits for the end.
func (t *typist) leaves(code int, stdout string) {
	t.t.Helper()
	if got := <-t.done; got != code || t.out.String() != stdout {
		t.t.Errorf("exit code %d and %q on stdout, want %d and %q; the terminal:\n%s", got, t.out.String(), code, stdout, t.shown)
	}
}

// process is arcp in a process of its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	first  chan string // the first line of standard output
	exited chan struct{}
	errs   *tail

	url, admin string
	mu         sync.Mutex
	out        bytes.Buffer // the output after the first line
}

// start starts arcp in a process of its own; it is killed when the test ends. It skips a short test.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(exe, args...), first: make(chan string, 1), exited: make(chan struct{}), errs: &tail{size: 256 << 10}}
	p.cmd.Env = append(append(os.Environ(), beArcp+"=1"), env...)
	p.cmd.Dir = t.TempDir()
	p.cmd.Stderr = p.errs
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go p.read(out)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // as a rule it has ended
		<-p.exited
		if t.Failed() {
			t.Logf("log of arcp %s:\n%s", strings.Join(args, " "), p.errs)
		}
	})
	return p
}

func (p *process) read(out io.Reader) {
	defer close(p.exited)
	r := bufio.NewReader(out)
	line, _ := r.ReadString('\n')
	p.first <- line
	for {
		line, err := r.ReadString('\n')
		p.mu.Lock()
		p.out.WriteString(line)
		p.mu.Unlock()
		if err != nil {
			break
		}
	}
	_ = p.cmd.Wait() // ProcessState has it
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the end and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("the process did not end; log:\n%s", p.errs)
	}
	return p.cmd.ProcessState.ExitCode()
}

// until waits for a condition that another process makes true.
func until(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never happened: %s", condition)
		}
	}
}

// serve starts a runtime on free ports and waits until it accepts connections.
func serve(t *testing.T, args ...string) *process {
	t.Helper()
	return listening(start(t, nil, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...))
}

var announced = regexp.MustCompile(`^listening (\S+) admin (\S+)\n$`)

func listening(p *process) *process {
	p.t.Helper()
	select {
	case line := <-p.first:
		m := announced.FindStringSubmatch(line)
		if m == nil {
			p.wait()
			p.t.Fatalf("first line = %q, want listening …; log:\n%s", line, p.errs)
		}
		p.url, p.admin = m[1], m[2]
	case <-time.After(patience):
		p.t.Fatalf("no listening line; log:\n%s", p.errs)
	}
	return p
}

// demoServer is a runtime in memory with the demo tools and the token secret
// of the principal alice.
func demoServer(t *testing.T, args ...string) *process {
	t.Helper()
	return serve(t, append([]string{"--data", ":memory:", "--demo", "--token", "alice=secret"}, args...)...)
}

// cli runs a client command against the process.
func (p *process) cli(args ...string) outcome {
	p.t.Helper()
	return cli(p.t, append(args, "--url", p.url, "--token", "secret")...)
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// wantOutcome checks the exit code, standard output and standard error.
func wantOutcome(t *testing.T, why string, o outcome, code int, stdout, stderr string) {
	t.Helper()
	if o.code != code || !strings.Contains(o.stdout, stdout) || !strings.Contains(o.stderr, stderr) {
		t.Errorf("%s: got %v\nwant exit code %d, %q on stdout, %q on stderr", why, o, code, stdout, stderr)
	}
}

// wantRefusal checks that a command printed one line with the mistake, and nothing else.
func wantRefusal(t *testing.T, o outcome, code int, want string) {
	t.Helper()
	if o.code != code || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 ||
		!strings.HasPrefix(o.stderr, "arcp: ") || !strings.Contains(o.stderr, want) {
		t.Errorf("got %v\nwant exit code %d and one line with %q", o, code, want)
	}
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-update rewrites it):\n%s", path, got)
	}
}

// volatile lists texts that differ from run to run.
var volatile = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(job_|sess_|msg_|approval-|lease_)[0-9A-Z]{26}`), "${1}ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+Z)?`), "TIME"},
	{regexp.MustCompile(`\d+s +[0-9.]+m?s\n`), "AGE  DURATION\n"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "TRACE"},
	{regexp.MustCompile(`"span_id":"[0-9a-f]{16}"`), `"span_id":"SPAN"`},
	{regexp.MustCompile(`after [0-9.]+(ns|µs|ms|s)`), "after DURATION"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
}

func scrub(s string) string {
	for _, v := range volatile {
		s = v.pattern.ReplaceAllString(s, v.with)
	}
	return s
}
