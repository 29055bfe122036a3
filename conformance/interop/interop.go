// Package interop builds and finds the programs of other projects that interoperability tests run.
package interop

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
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

// missingError reports a missing prerequisite.
type missingError struct{ err error }

func (e *missingError) Error() string { return e.err.Error() }

func (e *missingError) Unwrap() error { return e.err }

// installed returns a function that installs programs once in a process. install gets the files of
// the directory of sources, and the cache directory of the user, in which it keeps what it makes.
func installed[P any](sources embed.FS, dir string, install func(sources fs.FS, cache string) (P, error)) func() (P, error) {
	return sync.OnceValues(func() (programs P, err error) {
		cache, err := os.UserCacheDir()
		if err != nil {
			return programs, &missingError{err}
		}
		files, err := fs.Sub(sources, dir)
		if err != nil {
			return programs, err
		}
		return install(files, filepath.Join(cache, "arcp-interop"))
	})
}

// obtain returns the programs of installed. It calls Unable if a prerequisite is missing, and fails
// the test after any other error.
func obtain[P any](t testing.TB, programs func() (P, error), prerequisites string) P {
	t.Helper()
	p, err := programs()
	if missing, ok := errors.AsType[*missingError](err); ok {
		Unable(t, "needs %s: %v", prerequisites, missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
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
