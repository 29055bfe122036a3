package interop

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"
)

// buildTimeout bounds a build. A first build compiles every crate and may share the CPUs with other
// tests.
const buildTimeout = 20 * time.Minute

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
	bin := rustBin(t, rustFiles(t))
	return RustPrograms{Drive: filepath.Join(bin, "drive"), Decode: filepath.Join(bin, "decode")}
}

//go:embed testdata/rustserver
var rustServerSources embed.FS

// RustServer builds a server of the crate with tools that conformance checks call, and returns its path. Without
// cargo or the crates it calls Unable.
func RustServer(t testing.TB) string {
	t.Helper()
	files, err := fs.Sub(rustServerSources, "testdata/rustserver")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(rustBin(t, files), "arcp-interop-server") // the name of the package
}

// RustProgram builds a program from its source with the crates of testdata/rust, and returns its path.
func RustProgram(t testing.TB, source string) string {
	t.Helper()
	files := fstest.MapFS{"src/main.rs": {Data: []byte(source)}}
	for _, name := range []string{"Cargo.toml", "Cargo.lock"} {
		data, err := fs.ReadFile(rustFiles(t), name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	return filepath.Join(rustBin(t, files), "arcp-interop") // the name of the package
}

func rustFiles(t testing.TB) fs.FS {
	t.Helper()
	files, err := fs.Sub(rustSources, "testdata/rust")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// rustBin returns the directory with the programs of a crate.
func rustBin(t testing.TB, sources fs.FS) string {
	t.Helper()
	root := obtain(t, fmt.Sprintf("cargo 1.%d and crates.io", minCargo), func(cache string) (string, error) {
		return buildRust(sources, cache)
	})
	return filepath.Join(root, "bin")
}

// buildRust installs the programs of a crate into a directory below cache. All builds share a
// directory with the compiled crates.
func buildRust(sources fs.FS, cache string) (root string, err error) {
	sum, err := digest(sources)
	if err != nil {
		return "", err
	}
	return install(cache, "rust-"+sum, func(dir string) error {
		src := filepath.Join(dir, "crate")
		if err := os.CopyFS(src, sources); err != nil {
			return err
		}
		env := append(os.Environ(), "CARGO_TARGET_DIR="+filepath.Join(cache, "rust-target"))
		if err := checkCargo(env, src); err != nil {
			return &missingError{err}
		}
		if _, err := run(env, src, fetchTimeout, "cargo", "fetch", "--locked"); err != nil {
			return &missingError{err}
		}
		_, err := run(env, src, buildTimeout, "cargo", "install", "--offline", "--locked", "--debug", "--no-track", "--force", "--path", ".", "--root", dir)
		return err
	})
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
