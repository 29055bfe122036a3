package interop

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// A program that does not compile is a failure. Only what the machine lacks is a reason
// to skip.
func TestRustBuildFailures(t *testing.T) {
	lock := "version = 3\n\n[[package]]\nname = \"p\"\nversion = \"0.0.0\"\n"
	sources := fstest.MapFS{
		"Cargo.toml":  {Data: []byte("[package]\nname = \"p\"\nversion = \"0.0.0\"\nedition = \"2021\"\n")},
		"Cargo.lock":  {Data: []byte(lock)},
		"src/main.rs": {Data: []byte("fn main() { nothing() }\n")},
	}
	t.Run("does not compile", func(t *testing.T) {
		Needs(t, "cargo")
		_, err := buildRust(sources, t.TempDir())
		if missing, ok := errors.AsType[*missingError](err); err == nil || ok {
			t.Errorf("the build ends with %v, %v; want a failure of the build", err, missing)
		}
	})
	t.Run("no cargo", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := buildRust(sources, t.TempDir())
		if _, ok := errors.AsType[*missingError](err); !ok {
			t.Errorf("the build ends with %v, want that cargo is missing", err)
		}
	})
	t.Run("old cargo", func(t *testing.T) {
		dir := t.TempDir()
		script := "#!/bin/sh\necho cargo 1.66.0\n"
		if err := os.WriteFile(filepath.Join(dir, "cargo"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir)
		_, err := buildRust(sources, t.TempDir())
		if _, ok := errors.AsType[*missingError](err); !ok {
			t.Errorf("the build ends with %v, want that cargo is too old", err)
		}
	})
}
