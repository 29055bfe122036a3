// Package interop builds and finds the programs of other projects that interoperability tests run.
package interop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

// install returns the directory name below the cache directory of the user. If it is missing, build
// fills a directory, which gets the name when it is complete.
func install(cache, name string, build func(dir string) error) (string, error) {
	root := filepath.Join(cache, name)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover temporary directory is harmless
	if err := build(dir); err != nil {
		return "", err
	}
	if err := os.Rename(dir, root); err != nil {
		if _, missing := os.Stat(root); missing != nil { // another process has not been faster
			return "", err
		}
	}
	return root, nil
}

// obtain returns the directory that install makes in the cache directory of the user. It calls Unable
// if a prerequisite is missing, and fails the test after any other error.
func obtain(t testing.TB, prerequisites string, install func(cache string) (string, error)) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		Unable(t, "needs a cache directory: %v", err)
	}
	root, err := install(filepath.Join(cache, "arcp-interop"))
	if missing, ok := errors.AsType[*missingError](err); ok {
		Unable(t, "needs %s: %v", prerequisites, missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// digest returns a digest of the paths and contents of a file tree.
func digest(sources fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(sources, path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(data), data)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:8]), err
}

// fetchTimeout bounds a step that fetches packages.
const fetchTimeout = 5 * time.Minute

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
