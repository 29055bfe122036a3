package interop

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// A machine without a usable Python is a reason to skip, and leaves nothing in the cache.
func TestMissingPython(t *testing.T) {
	sources := fstest.MapFS{"requirements.txt": {}}
	for name, script := range map[string]string{
		"no python":  "",
		"old python": "#!/bin/sh\necho 3 8\n",
		"no venv":    "#!/bin/sh\ntest \"$1\" = -c && echo 3 11\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir, cache := t.TempDir(), t.TempDir()
			if script != "" {
				if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			_, err := installPython(sources, PythonNewest, cache)
			if _, ok := errors.AsType[*missingError](err); !ok {
				t.Errorf("the installation ends with %v, want that Python is missing", err)
			}
			if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
				t.Errorf("the cache has %v, %v; want nothing", left, err)
			}
		})
	}
}
