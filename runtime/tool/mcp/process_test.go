//go:build linux

package mcp

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	toolexec "github.com/arcpd/arcpd/runtime/tool/exec"
)

// serverScript is a server that starts a child process, and a daemon in another process
// session. It writes their process ids to a file and returns its environment as a result. They
// all ignore SIGTERM.
const serverScript = `
trap '' TERM
sleep 1000 &
child=$!
(setsid sh -c 'echo $$ >"$0.daemon"; exec sleep 1000' "$0" &)
until [ -s "$0.daemon" ]; do sleep 0.01; done
echo $$ $child $(cat "$0.daemon") > "$0"
echo 'a line of standard error' >&2
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
  *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}' ;;
  *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"env","inputSchema":{"type":"object"}}]}}' ;;
  *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[],"structuredContent":"'$(env | cut -d= -f1 | grep -v -e PWD -e SHLVL -e '^_$' | sort | tr '\n' ' ')'"}}' ;;
  *'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
  esac
done
exec sleep 1000
`

// startScript starts a source with the script and returns the numbers of its
// processes.
func startScript(t *testing.T, log zerolog.Logger) (*Source, *publisher, []int) {
	t.Helper()
	pids := filepath.Join(t.TempDir(), "pids")
	t.Setenv("ARCP_TOKEN", "secret")
	t.Setenv("WANTED", "1")
	s, err := New(Config{Name: "srv", Command: []string{"/bin/sh", "-c", serverScript, pids}, Env: []string{"WANTED", "MISSING"}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	sh := &publisher{reg: tool.NewRegistry()}
	if err := s.Start(t.Context(), sh.publish); err != nil {
		t.Fatal(err)
	}
	return s, sh, numbers(t, pids)
}

func numbers(t *testing.T, file string) (pids []int) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for f := range strings.FieldsSeq(string(data)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, n)
	}
	return pids
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestAllProcessesEndWithTheSource(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	log := new(locked)
	s, sh, pids := startScript(t, zerolog.New(log))
	env, err := sh.reg.Resolve("srv.env")
	if err != nil {
		s.Close()
		t.Fatal(err)
	}
	out, e := env.Run(t.Context(), tool.NewJob(new(job)), arcp.Raw("{}"))
	if e != nil || !strings.Contains(string(out), `"ARCP_KEEPER HOME PATH WANTED "`) {
		t.Errorf("the environment: %s, %v", out, e)
	}
	for _, pid := range pids {
		if !alive(pid) {
			t.Errorf("process %d is not there", pid)
		}
	}
	s.Close()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is there after Close", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if !strings.Contains(log.String(), "a line of standard error") {
		t.Error("its standard error is not in the log")
	}
}

// runtimeEnv makes the test binary a runtime that is to be killed.
const runtimeEnv = "ARCPD_TEST_MCP_RUNTIME"

func TestMain(m *testing.M) {
	toolexec.Hook()
	if pids := os.Getenv(runtimeEnv); pids != "" {
		s, err := New(Config{Name: "srv", Command: []string{"/bin/sh", "-c", serverScript, pids}})
		if err == nil {
			err = s.Start(context.Background(), func([]*tool.Tool) error { fmt.Println("ready"); return nil })
		}
		fmt.Println(err)
		select {}
	}
	os.Exit(m.Run())
}

// The processes of a runtime end when the runtime is killed.
func TestAllProcessesEndWhenTheRuntimeIsKilled(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), runtimeEnv+"="+pids)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Errorf("it says %q, %v", line, err)
	}
	started := numbers(t, pids)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for _, pid := range started {
		for begun := time.Now(); alive(pid); time.Sleep(5 * time.Millisecond) {
			if time.Since(begun) > time.Minute {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				t.Fatalf("process %d is there after its runtime was killed", pid)
			}
		}
	}
}

func TestProgramExitIsReported(t *testing.T) {
	s := newSource(Config{Name: "srv", Command: []string{"/bin/sh", "-c", "exit 3"}}.withDefaults())
	s.open = s.openProcess
	defer s.Close()
	if err := s.runSession(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v does not say how it ended", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.WriteFile(open, []byte("Authorization: Bearer hunter2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(dir, "closed")
	if err := os.WriteFile(closed, []byte("Authorization: Bearer hunter2\nbroken hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "own")
	if err := os.WriteFile(own, []byte("mcp-session-id: hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Name: "A"}, `name "A"`},
		{Config{Name: "a"}, "either command or url"},
		{Config{Name: "a", Command: []string{"x"}, URL: "http://h"}, "either command or url"},
		{Config{Name: "a", Command: []string{"no-such-program-here"}}, "not found in PATH"},
		{Config{Name: "a", Command: []string{"sh"}, Prefix: "tools."}, "reserved"},
		{Config{Name: "a", Command: []string{"sh"}, Prefix: "Ä"}, "prefix"},
		{Config{Name: "a", Command: []string{"sh"}, Allow: []string{"[a"}}, "allow"},
		{Config{Name: "a", Command: []string{"sh"}, SideEffect: "none-at-all"}, "side_effect"},
		{Config{Name: "a", Command: []string{"sh"}, HeadersFile: closed}, "headers_file"},
		{Config{Name: "a", URL: "ftp://h"}, "http"},
		{Config{Name: "a", URL: "http://u:hunter2@h/"}, "headers_file"},
		{Config{Name: "a", URL: "http://h.example/", HeadersFile: closed}, "without TLS"},
		{Config{Name: "a", URL: "https://h.example/", HeadersFile: open}, "chmod 600"},
		{Config{Name: "a", URL: "https://h.example/", HeadersFile: closed}, "line 2"},
		{Config{Name: "a", URL: "https://h.example/", HeadersFile: filepath.Join(dir, "none")}, "no such file"},
		{Config{Name: "a", URL: "https://h.example/", HeadersFile: own}, "line 1: HTTP or MCP sets this header"},
		{Config{Name: "a", URL: "https://h.example/", HeadersFile: dir}, "not a regular file"},
		{Config{Name: "a", URL: "https://h.example/", Env: []string{"A"}}, "env"},
	} {
		_, err := New(c.config)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a secret is in %v", err)
		}
	}
}

// The error of Start or the exit status names the fault of a program.
func TestProgramsThatCannotBeStarted(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"closed": 0o600, "garbage": 0o700} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("\x00"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for program, want := range map[string]string{
		"/no/such/program": "/no/such/program: no such file or directory",
		"./missing":        "missing: no such file or directory",
		"./closed":         "closed\": permission denied",
		"./garbage":        "it cannot be started: start ./garbage: exec format error",
	} {
		s := newSource(Config{Name: "srv", Command: []string{program}, Dir: dir}.withDefaults())
		s.open = s.openProcess
		if err := s.runSession(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", program, err, want)
		}
		s.Close()
	}
}

// A program gets the chance to end before it is killed. Its relative path is resolved in its
// directory.
func TestCloseLetsProgramEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	before := termGrace
	termGrace = time.Minute // it ends by itself, however busy the machine is
	defer func() { termGrace = before }()
	for text, want := range map[string]string{
		`trap "" TERM; echo; read -r _; echo the end of the input >said`:                       "the end of the input\n",
		`trap "echo a signal >said; exit" TERM; echo; read -r _; while :; do sleep 0.01; done`: "a signal\n",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		p, err := startProcess(&Config{Name: "srv", Command: []string{"./program"}, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		_, err = bufio.NewReader(p.Stdout).ReadString('\n') // it has begun
		p.end()
		said, readErr := os.ReadFile(filepath.Join(dir, "said"))
		if err != nil || readErr != nil || string(said) != want {
			t.Errorf("%s\nsaid %q, want %q; %v, %v", text, said, want, err, readErr)
		}
	}
}
