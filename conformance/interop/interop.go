// Package interop builds and finds the programs of other projects that interoperability tests run.
package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Env is the environment variable that makes a missing program a test failure. Set to 1 in an
// environment that has every program.
const Env = "ARCP_INTEROP"

// Needs calls Unable unless all programs are installed.
func Needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			Unable(t, "%s is not installed", name)
		}
	}
}

// Unable skips a test with a missing prerequisite. If Env is 1 it fails the test.
func Unable(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(Env) == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format+"\nwith %s=1 this is a failure", append(args, Env)...)
}

// run runs a program and returns its output.
func run(env []string, dir string, timeout time.Duration, program string, args ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("not finished after %v", timeout)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, args[0], err, out)
	}
	return string(out), nil
}
