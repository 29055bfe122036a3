package interop

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
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

// Deadlines of the steps that build the programs. The build starts with nothing
// compiled, and may share its processors with other tests.
const (
	fetchTimeout = 5 * time.Minute
	buildTimeout = 20 * time.Minute
)

//go:embed testdata/rust
var rustSources embed.FS

// RustPrograms are the paths of programs that use the published Rust crate arcp. They
// are built from testdata/rust with the versions that its Cargo.lock has.
type RustPrograms struct {
	Drive  string // drives a server with the client of the crate
	Decode string // decodes envelopes with the types of the crate
}

// Rust builds the programs, once for each state of their sources: they are kept in the
// user's cache. It ends a test that cannot have cargo or the crates as Unable does. A
// program that does not compile is a failure.
func Rust(t testing.TB) RustPrograms {
	t.Helper()
	p, err := rustPrograms()
	if missing, ok := errors.AsType[*missingError](err); ok {
		Unable(t, "needs cargo 1.%d and crates.io: %v", minCargo, missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// missingError reports what the machine does not have.
type missingError struct{ err error }

func (e *missingError) Error() string { return e.err.Error() }

func (e *missingError) Unwrap() error { return e.err }

var rustPrograms = sync.OnceValues(func() (RustPrograms, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return RustPrograms{}, &missingError{err}
	}
	sources, err := fs.Sub(rustSources, "testdata/rust")
	if err != nil {
		return RustPrograms{}, err
	}
	return buildRust(sources, filepath.Join(cache, "arcp-interop"))
})

// buildRust installs the programs into a directory below cache that is named after
// their sources. The compiled crates are in another one that all builds share.
func buildRust(sources fs.FS, cache string) (RustPrograms, error) {
	sum, err := digest(sources)
	if err != nil {
		return RustPrograms{}, err
	}
	root := filepath.Join(cache, "rust-"+sum)
	p := RustPrograms{Drive: filepath.Join(root, "bin", "drive"), Decode: filepath.Join(root, "bin", "decode")}
	if installed(p) {
		return p, nil
	}
	src, err := os.MkdirTemp("", "arcp-interop-")
	if err != nil {
		return RustPrograms{}, err
	}
	defer func() { _ = os.RemoveAll(src) }() // a leftover in the temporary directory does no harm
	if err := os.CopyFS(src, sources); err != nil {
		return RustPrograms{}, err
	}
	env := append(os.Environ(), "CARGO_TARGET_DIR="+filepath.Join(cache, "rust-target"))
	if err := checkCargo(env, src); err != nil {
		return RustPrograms{}, &missingError{err}
	}
	if _, err := cargo(env, src, fetchTimeout, "fetch", "--locked"); err != nil {
		return RustPrograms{}, &missingError{err}
	}
	_, err = cargo(env, src, buildTimeout, "install", "--offline", "--locked", "--debug", "--no-track", "--force", "--path", ".", "--root", root)
	return p, err
}

// minCargo is the minor version of cargo 1 that the crate needs.
const minCargo = 88

func checkCargo(env []string, dir string) error {
	out, err := cargo(env, dir, fetchTimeout, "--version")
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(out, "cargo %d.%d", &major, &minor); err != nil {
		return fmt.Errorf("cargo --version says %q: %w", out, err)
	}
	if major == 1 && minor < minCargo {
		return fmt.Errorf("cargo %d.%d is older than 1.%d", major, minor, minCargo)
	}
	return nil
}

// installed reports whether both programs are there. Cargo installs a program with one
// rename.
func installed(p RustPrograms) bool {
	_, drive := os.Stat(p.Drive)
	_, decode := os.Stat(p.Decode)
	return drive == nil && decode == nil
}

// digest names a tree of files by their paths and contents.
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

func cargo(env []string, dir string, timeout time.Duration, args ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "cargo", args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("takes longer than %v", timeout)
	}
	if err != nil {
		return "", fmt.Errorf("cargo %s: %w\n%s", args[0], err, out)
	}
	return string(out), nil
}
