package interop

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

//go:embed testdata/python
var pythonSources embed.FS

// PythonPrograms are the paths of an interpreter and of programs that use the published Python
// client. The interpreter belongs to a virtual environment with the packages of
// testdata/python/requirements.txt.
type PythonPrograms struct {
	Interpreter string
	Drive       string // runs the client against a server
}

// Python creates the environment. The user's cache directory has one environment for each state of
// the sources. Without Python or the packages it calls Unable.
func Python(t testing.TB) PythonPrograms {
	t.Helper()
	return obtain(t, pythonPrograms, fmt.Sprintf("Python 3.%d with venv and the package index", minPython))
}

var pythonPrograms = installed(pythonSources, "testdata/python", installPython)

// installPython makes a directory below cache with the sources and a virtual environment. It is
// named after a digest of the sources, and appears with one rename when it is complete.
func installPython(sources fs.FS, cache string) (PythonPrograms, error) {
	sum, err := digest(sources)
	if err != nil {
		return PythonPrograms{}, err
	}
	root := filepath.Join(cache, "python-"+sum)
	p := PythonPrograms{Interpreter: filepath.Join(root, "venv", "bin", "python"), Drive: filepath.Join(root, "drive.py")}
	if _, err := os.Stat(root); err == nil {
		return p, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return PythonPrograms{}, err
	}
	dir, err := os.MkdirTemp(cache, "python-new-")
	if err != nil {
		return PythonPrograms{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover temporary directory is harmless
	if err := os.CopyFS(dir, sources); err != nil {
		return PythonPrograms{}, err
	}
	if err := createVenv(dir); err != nil {
		return PythonPrograms{}, &missingError{err}
	}
	if err := os.Rename(dir, root); err != nil {
		if _, exists := os.Stat(root); exists != nil { // another process has not been faster
			return PythonPrograms{}, err
		}
	}
	return p, nil
}

// minPython is the required minor version of Python 3.
const minPython = 11

// createVenv makes the directory venv with the packages of requirements.txt.
func createVenv(dir string) error {
	out, err := run(nil, dir, fetchTimeout, "python3", "-c", "import sys; print(*sys.version_info[:2])")
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscan(out, &major, &minor); err != nil {
		return fmt.Errorf("the version of python3 is %q: %w", out, err)
	}
	if major == 3 && minor < minPython {
		return fmt.Errorf("python3 is %d.%d, older than 3.%d", major, minor, minPython)
	}
	if _, err := run(nil, dir, fetchTimeout, "python3", "-m", "venv", "venv"); err != nil {
		return err
	}
	_, err = run(nil, dir, fetchTimeout, filepath.Join(dir, "venv", "bin", "python"), "-m", "pip", "install", "--quiet", "--no-input",
		"--disable-pip-version-check", "-r", "requirements.txt")
	return err
}
