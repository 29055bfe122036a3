//go:build unix

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/transport"
)

// childEnv makes this test program a server: its value is the behaviour of the server.
const childEnv = "ARCP_CONFORMANCE_CHILD"

// childCommand returns a command that runs this test program as a server.
func childCommand(t *testing.T, behaviour string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(childEnv, behaviour)
	return []string{exe, "-test.run=^TestChildProcess$"}
}

// TestChildProcess is the server of the other tests.
func TestChildProcess(t *testing.T) {
	behaviour, argument, _ := strings.Cut(os.Getenv(childEnv), " ")
	switch behaviour {
	case "":
		t.Skip("this test is a process of other tests")
	case "stdio":
		fmt.Fprintln(os.Stderr, "serving", fakeToken)
		newFake(transport.Stdio(os.Stdin, os.Stdout, transport.Limits{})).serve()
	case "crash":
		fmt.Fprintln(os.Stderr, "there is no configuration")
		os.Exit(3)
	case "unix", "stubborn":
		if behaviour == "stubborn" {
			signal.Ignore(syscall.SIGTERM)
		}
		serveUnix(argument)
	}
	os.Exit(0)
}

// serveUnix serves fakes on a socket, and writes its process id beside the socket.
func serveUnix(path string) {
	err := os.WriteFile(path+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600) // before clients can connect
	var l *transport.UnixListener
	if err == nil {
		l, err = transport.ListenUnix(path, transport.Limits{})
	}
	for err == nil {
		var conn transport.Conn
		if conn, err = l.Accept(); err == nil {
			go newFake(conn).serve()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// deadline bounds a test with processes, which takes less than a second.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// wantGone fails the test unless the process has ended.
func wantGone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d has not ended: %v", pid, err)
	}
}

// Each connection to a server of Exec has a process, which ends with the check.
func TestExec(t *testing.T) {
	target := Target{Token: fakeToken, Exec: childCommand(t, "stdio")}
	var pids []int
	session := testCheck("x.session", func(t *checkRun) {
		c := t.Open()
		pids = append(pids, c.tc.(*processConn).process.cmd.Process.Pid)
		c.ExpectNothing("the session works")
	})
	results := runChecks(t, target, session,
		testCheck("x.fails", func(t *checkRun) { t.Open(); t.Failf("broken") }),
		testCheck("x.two", func(t *checkRun) { t.Open(); t.Open(); t.Failf("it ran") }),
		testCheck("x.socket", func(t *checkRun) { t.Failf("it ran") }, NeedWebSocket))
	for i, want := range []struct {
		status Status
		reason string
	}{{Passed, ""}, {Failed, "broken\nthe standard error of the server ends with:\nserving [redacted]"},
		{Skipped, "the check needs several connections to one server"}, {Skipped, "the target has no WebSocket URL"}} {
		if got := results[i]; got.Status != want.status || !strings.HasPrefix(got.Reason, want.reason) {
			t.Errorf("%s: %s %q, want %s %q", got.ID, got.Status, got.Reason, want.status, want.reason)
		}
	}
	for _, pid := range pids {
		wantGone(t, pid)
	}
	report, err := Run(deadline(t), target, Options{IDs: []string{"handshake.accepted"}})
	if err != nil || report.Count(Passed) != 1 {
		t.Errorf("the run ends with %v: %+v", err, report.Results)
	}
}

func TestExecFails(t *testing.T) {
	target := Target{Token: fakeToken, Exec: childCommand(t, "crash")}
	res := runChecks(t, target, testCheck("x.opens", func(t *checkRun) { t.Open() }))[0]
	if res.Status != Failed || !strings.Contains(res.Reason, "there is no configuration") {
		t.Errorf("a server that ends at once: %s %q", res.Status, res.Reason)
	}
	target.Exec = []string{filepath.Join(t.TempDir(), "missing")}
	if _, err := Run(deadline(t), target, Options{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a program that is missing: %v", err)
	}
}

// pidOf returns the process that serves a socket.
func pidOf(t *testing.T, socket string) int {
	t.Helper()
	text, err := os.ReadFile(socket + ".pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// A mapping starts the server, starts it again, and ends it also if it ignores the request.
func TestMappingServes(t *testing.T) {
	for _, behaviour := range []string{"unix", "stubborn"} {
		t.Run(behaviour, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			m := &Mapping{Start: childCommand(t, behaviour+" "+socket), Rerun: true, Dir: t.TempDir()}
			tg := Target{URL: unixScheme + socket, Token: fakeToken}
			ctx := deadline(t)
			stop, err := m.Serve(ctx, &tg)
			defer stop()
			if err != nil {
				t.Fatal(err)
			}
			first := pidOf(t, socket)
			if _, err := m.Serve(ctx, &tg); err == nil || !strings.Contains(err.Error(), "a server answers at") {
				t.Errorf("a server that is running already: %v", err)
			}
			if err := tg.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			second := pidOf(t, socket)
			wantGone(t, first)
			if second == first {
				t.Error("the restart did not start another process")
			}
			stop()
			wantGone(t, second)
		})
	}
}

func TestMappingServeFails(t *testing.T) {
	tg := Target{URL: unixScheme + filepath.Join(t.TempDir(), "s")}
	m := &Mapping{Start: childCommand(t, "crash")}
	stop, err := m.Serve(deadline(t), &tg)
	stop()
	if err == nil || !strings.Contains(err.Error(), "exit status 3; its output ends with:\nthere is no configuration") {
		t.Errorf("a server that ends at once: %v", err)
	}
	m.Start = []string{"./no-such-program"}
	if _, err := m.Serve(deadline(t), &tg); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("a program that is missing: %v", err)
	}
	m.Start = childCommand(t, "unix "+filepath.Join(t.TempDir(), "other"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	stop, err = m.Serve(ctx, &tg)
	stop()
	if err == nil || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		t.Errorf("a server that listens elsewhere: %v", err)
	}
}

// The command of restart ends before the checks go on, and its failure is reported.
func TestMappingRestartCommand(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	socket := filepath.Join(t.TempDir(), "s")
	server := &Mapping{Start: childCommand(t, "unix "+socket)}
	tg := Target{URL: unixScheme + socket, Token: fakeToken}
	stop, err := server.Serve(deadline(t), &tg)
	defer stop()
	if err != nil || tg.Restart != nil {
		t.Fatalf("Serve: %v, a restart without a command: %t", err, tg.Restart != nil)
	}
	dir := t.TempDir()
	m := &Mapping{Restart: []string{"sh", "-c", "echo again >> done"}, Dir: dir}
	if _, err := m.Serve(deadline(t), &tg); err != nil {
		t.Fatal(err)
	}
	results := runChecks(t, tg, testCheck("x.restarts", func(t *checkRun) {
		t.Restart(t.ctx)
		t.Open().ExpectNothing("the session works")
	}, NeedRestart))
	if results[0].Status != Passed {
		t.Errorf("%+v", results[0])
	}
	if text, err := os.ReadFile(filepath.Join(dir, "done")); err != nil || string(text) != "again\n" {
		t.Errorf("the command wrote %q, %v", text, err)
	}
	m.Restart = []string{"sh", "-c", "echo no server >&2; exit 7"}
	if err := tg.Restart(deadline(t)); err == nil || !strings.Contains(err.Error(), "exit status 7; its output ends with:\nno server") {
		t.Errorf("a restart that fails: %v", err)
	}
}
