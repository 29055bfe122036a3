package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mistake in a file of a system is found for that system only, also in a test, and also one that depends on the
// architecture.
func TestMistakesOfASystem(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module example.com/m\n\ngo 1.26\n",
		"a.go":              "package m\n\nfunc Same() int { return 1 }\n",
		"a_windows.go":      "package m\n\nfunc Other() string { return Same() }\n",
		"a_darwin_test.go":  "package m_test\n\nimport \"example.com/m\"\n\nvar _ = m.Missing\n",
		"b_linux.go":        "package m\n\nimport \"unsafe\"\n\nconst _ = uint8(unsafe.Sizeof(uintptr(0)) - 8)\n",
		"inner/inner.go":    "package inner\n\nimport \"example.com/m\"\n\nvar N = m.Same()\n",
		"inner/in_test.go":  "package inner\n\nvar hidden = N\n",
		"inner/out_test.go": "package inner_test\n\nimport \"example.com/m/inner\"\n\nvar _ = inner.N\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for system, want := range map[string]string{
		"linux/amd64":   "",
		"linux/386":     "b_linux.go",
		"windows/amd64": "a_windows.go",
		"darwin/arm64":  "a_darwin_test.go",
	} {
		goos, goarch, _ := strings.Cut(system, "/")
		t.Setenv("GOOS", goos)
		t.Setenv("GOARCH", goarch)
		c := newChecker(goarch)
		if err := c.check(dir); err != nil {
			t.Fatal(err)
		}
		switch got := fmt.Sprint(c.mistakes); {
		case want == "" && len(c.mistakes) > 0:
			t.Errorf("%s: %s, want no mistake", system, got)
		case want != "" && !strings.Contains(got, want):
			t.Errorf("%s: %s, want a mistake in %s", system, got, want)
		}
	}
}

// Source that cannot be parsed is an error.
func TestUnreadableSource(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "a.go": "package m\n\nfunc {\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := newChecker("amd64").check(dir); err == nil {
		t.Error("a file that cannot be parsed is no error")
	}
}
