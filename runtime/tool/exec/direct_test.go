//go:build linux

package exec

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// directScript is a shell script as a tool without a reaper, as on systems other than Linux.
func directScript(t *testing.T, text string) *tool.Tool {
	t.Helper()
	name := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	c := Config{Capability: tool.Capability{Name: "x"}, Command: []string{name}}
	cmd, err := prepare(&c)
	if err != nil {
		t.Fatal(err)
	}
	cmd.starter, cmd.limit = startDirect, 1<<20
	made, err := tool.NewRaw(c.Capability, cmd.run)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestDirectReturnsOutput(t *testing.T) {
	out, err := call(t, t.Context(), directScript(t, `echo hello >&2; cat`), newJob(), `{"a":1}`)
	if err != nil || string(out) != `{"a":1}` {
		t.Errorf("result = %s, %v, want the arguments", out, err)
	}
}

func TestDirectReportsFailures(t *testing.T) {
	_, err := call(t, t.Context(), directScript(t, `echo broken >&2; exit 3`), newJob(), `{}`)
	wantCode(t, err, arcp.CodeUnknown, "exit status 3")
	_, err = call(t, t.Context(), directScript(t, `kill -KILL $$`), newJob(), `{}`)
	wantCode(t, err, arcp.CodeUnknown, "SIGKILL")
	_, err = call(t, t.Context(), directScript(t, `head -c 2000000 /dev/zero; sleep 1000`), newJob(), `{}`)
	wantCode(t, err, arcp.CodeResourceExhausted, "output")
	l, startErr := startDirect(order{Program: "/nowhere/program", Argv: []string{"program"}, Dir: "/"}, "A=1")
	if startErr == nil {
		l.close()
		t.Error("a program that does not exist was started")
	}
}

// A cancel ends the command with SIGTERM, which it may handle.
func TestDirectTerminates(t *testing.T) {
	job := newJob()
	_, err := call(t, until(t, job), directScript(t, `trap 'echo trapped >&2; exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done`), job, `{}`)
	wantCode(t, err, arcp.CodeCancelled, "")
	if !strings.Contains(strings.Join(job.messages(), " "), "trapped") {
		t.Errorf("log = %q, want the message of the handler of SIGTERM", job.messages())
	}
}

// Neither a command nor its background processes survive a call, also if they ignore SIGTERM.
func TestDirectKillsTheGroup(t *testing.T) {
	before := grace
	grace = 10 * time.Millisecond
	t.Cleanup(func() { grace = before })
	for name, text := range map[string]string{
		"ignores SIGTERM":         `trap '' TERM; echo ready >&2; while :; do sleep 1000; done`,
		"background processes":    `sleep 1000 & sleep 1000 & echo ready >&2; wait`,
		"a background that stops": `sleep 1000 & kill -STOP $!; echo ready >&2; kill -STOP $$`,
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob()
			_, err := call(t, until(t, job), directScript(t, text), job, `{}`)
			wantCode(t, err, arcp.CodeCancelled, "")
		})
	}
}

// The output of a command ends with the command, also if a background process has the pipe.
func TestDirectKillsBackgroundAfterTheEnd(t *testing.T) {
	out, err := call(t, t.Context(), directScript(t, `sleep 1000 & echo 1`), newJob(), `{}`)
	if err != nil || string(out) != "1" {
		t.Errorf("result = %s, %v, want 1", out, err)
	}
}

// The streams of a program are connected, and End ends the program.
func TestDirectProgram(t *testing.T) {
	l, err := startDirect(order{Program: "/bin/cat", Argv: []string{"cat"}, Dir: "/", GraceMS: 60000}, "ARCP_KEEPER=direct")
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	buf := make([]byte, 5)
	if _, err := l.stdin.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if n, err := l.stdout.Read(buf); string(buf[:n]) != "hello" {
		t.Errorf("read %q, %v, want hello", buf[:n], err)
	}
	l.terminate()
	l.terminate() // again is harmless
	r, err := l.wait(context.Background())
	if err != nil || signalName(r.Signal) != "SIGTERM" || r.Left != 0 {
		t.Errorf("report = %+v, %v, want an end by SIGTERM", r, err)
	}
}

// Settings that only Linux enforces are refused when the configuration is read.
func TestLinuxOnly(t *testing.T) {
	for text, c := range map[string]Config{
		"limits:":  {Bounds: Bounds{Files: 10}},
		"sandbox:": {Sandbox: SandboxBwrap},
	} {
		if err := linuxOnly(&c); err == nil || !strings.HasPrefix(err.Error(), text) || !strings.Contains(err.Error(), "leave") {
			t.Errorf("error = %v, want %s with a remedy", err, text)
		}
	}
	if err := linuxOnly(&Config{Sandbox: SandboxNone}); err != nil {
		t.Errorf("error = %v, want none for a command without limits and sandbox", err)
	}
}
