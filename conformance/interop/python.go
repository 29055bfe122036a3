package interop

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

//go:embed testdata/python
var pythonSources embed.FS

// PythonNewest is the newest version of the published Python client.
const PythonNewest = "1.1.3"

// pythonRequirements has the file with the packages of each version.
var pythonRequirements = map[string]string{PythonNewest: "requirements.txt", "1.1.1": "requirements-1.1.1.txt"}

// PythonVersions are the versions of the published Python client that Python installs.
var PythonVersions = []string{"1.1.1", PythonNewest}

// PythonPrograms are the paths of an interpreter and of programs that use the published Python
// client. The interpreter belongs to a virtual environment with one version of the client.
type PythonPrograms struct {
	Interpreter string
	Drive       string // runs the client against a server
	Server      string // serves agents that conformance checks call; of the newest version
}

// Python creates the environment of a version. The user's cache directory has one environment for each
// list of packages. Without Python or the packages it calls Unable.
func Python(t testing.TB, version string) PythonPrograms {
	t.Helper()
	files, err := fs.Sub(pythonSources, "testdata/python")
	if err != nil {
		t.Fatal(err)
	}
	root := obtain(t, fmt.Sprintf("Python 3.%d with venv and the package index", minPython), func(cache string) (string, error) {
		return installPython(files, version, cache)
	})
	dir := t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return PythonPrograms{Interpreter: filepath.Join(root, "venv", "bin", "python"), Drive: filepath.Join(dir, "drive.py"),
		Server: filepath.Join(dir, "server.py")}
}

// installPython makes a directory below cache with a virtual environment.
func installPython(sources fs.FS, version, cache string) (root string, err error) {
	packages, err := fs.ReadFile(sources, pythonRequirements[version])
	if err != nil {
		return "", err
	}
	sum, err := digest(fstest.MapFS{"requirements.txt": {Data: packages}})
	if err != nil {
		return "", err
	}
	return install(cache, "python-"+version+"-"+sum, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "requirements.txt"), packages, 0o600); err != nil {
			return err
		}
		if err := createVenv(dir); err != nil {
			return &missingError{err}
		}
		return nil
	})
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
