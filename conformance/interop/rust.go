package interop

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Limits of the build steps. A first build compiles every crate and may share the CPUs with other
// tests.
const (
	fetchTimeout = 5 * time.Minute
	buildTimeout = 20 * time.Minute
)

//go:embed testdata/rust
var rustSources embed.FS

// RustPrograms are the paths of programs that use the published Rust crate arcp. They are built
// from testdata/rust with the versions in its Cargo.lock.
type RustPrograms struct {
	Drive  string // runs the client of the crate against a server
	Decode string // decodes envelopes with the types of the crate
}

// Rust builds the programs. The user's cache directory has one build for each state of the sources.
// Without cargo or the crates it calls Unable; a compile error fails the test.
func Rust(t testing.TB) RustPrograms {
	t.Helper()
	return obtain(t, rustPrograms, fmt.Sprintf("cargo 1.%d and crates.io", minCargo))
}

var rustPrograms = installed(rustSources, "testdata/rust", buildRust)

// buildRust installs the programs into a directory below cache, named after a digest of the
// sources. All builds share a directory with the compiled crates.
func buildRust(sources fs.FS, cache string) (RustPrograms, error) {
	sum, err := digest(sources)
	if err != nil {
		return RustPrograms{}, err
	}
	root := filepath.Join(cache, "rust-"+sum)
	p := RustPrograms{Drive: filepath.Join(root, "bin", "drive"), Decode: filepath.Join(root, "bin", "decode")}
	if p.exist() {
		return p, nil
	}
	src, err := os.MkdirTemp("", "arcp-interop-")
	if err != nil {
		return RustPrograms{}, err
	}
	defer func() { _ = os.RemoveAll(src) }() // a leftover temporary directory is harmless
	if err := os.CopyFS(src, sources); err != nil {
		return RustPrograms{}, err
	}
	env := append(os.Environ(), "CARGO_TARGET_DIR="+filepath.Join(cache, "rust-target"))
	if err := checkCargo(env, src); err != nil {
		return RustPrograms{}, &missingError{err}
	}
	if _, err := run(env, src, fetchTimeout, "cargo", "fetch", "--locked"); err != nil {
		return RustPrograms{}, &missingError{err}
	}
	_, err = run(env, src, buildTimeout, "cargo", "install", "--offline", "--locked", "--debug", "--no-track", "--force", "--path", ".", "--root", root)
	return p, err
}

// minCargo is the required minor version of cargo 1.
const minCargo = 88

func checkCargo(env []string, dir string) error {
	out, err := run(env, dir, fetchTimeout, "cargo", "--version")
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

// exist reports whether both programs exist. Cargo installs a program with one rename.
func (p RustPrograms) exist() bool {
	_, drive := os.Stat(p.Drive)
	_, decode := os.Stat(p.Decode)
	return drive == nil && decode == nil
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
