package e2e

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/conformance/interop"
)

// TestPythonInterop drives a server with each version of the published Python client, which speaks the
// draft dialect: every call, a broken connection and a killed server.
func TestPythonInterop(t *testing.T) {
	ofOtherPrograms(t)
	t.Parallel()
	for _, version := range interop.PythonVersions {
		t.Run(version, func(t *testing.T) { drivePython(t, interop.Python(t, version)) })
	}
}

func drivePython(t *testing.T, programs interop.PythonPrograms) {
	const otherToken = "other-token-0123456789"
	bin, data := binary(t), t.TempDir()
	options := []string{"--token", "bob=" + otherToken, "--max-frame", "32MiB"}
	p := startServer(t, bin, data, options...)
	defer func() { p.kill(t) }()

	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, programs.Interpreter, programs.Drive, p.url, crashToken, otherToken)
	if killed := runSteps(t, cmd, func() {
		p.kill(t)
		p = startServer(t, bin, data, append(options, "--listen", p.address)...)
	}); killed != 1 {
		t.Errorf("the client had the server killed %d times, want once", killed)
	}
}

// runSteps runs a client that prints a line for each step: its name, with a failure after a colon.
// Each step is a subtest. The line "kill" calls restart, which kills the server and starts another.
func runSteps(t *testing.T, cmd *exec.Cmd, restart func()) (killed int) {
	t.Helper()
	cmd.Stderr = captureStderr(t)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "kill" {
			restart()
			killed++
			if _, err := io.WriteString(stdin, "started\n"); err != nil {
				t.Error(err)
			}
			continue
		}
		name, why, failed := strings.Cut(lines.Text(), ": ")
		t.Run(name, func(t *testing.T) {
			if failed {
				t.Error(why)
			}
		})
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the client ended with %v", err)
	}
	return killed
}
