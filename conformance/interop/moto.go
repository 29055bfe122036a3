package interop

import (
	"bufio"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

//go:embed testdata/moto/requirements.txt
var motoRequirements []byte

// Credentials that moto accepts: it accepts all.
const (
	MotoAccessKey = "test-access-key"
	MotoSecretKey = "test-secret-key"
)

// Moto starts a process of moto, which offers the API of S3, with an empty bucket. It returns the URL of
// the process, which ends with the test. Without Python or the packages it calls Unable.
func Moto(t testing.TB, bucket string) (url string) {
	t.Helper()
	root := obtain(t, fmt.Sprintf("Python 3.%d with venv and the package index", minPython), installMoto)
	cmd := exec.Command(filepath.Join(root, "venv", "bin", "python"), "-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	})
	lines := bufio.NewScanner(stderr)
	for url == "" && lines.Scan() {
		if _, after, found := strings.Cut(lines.Text(), "Running on "); found {
			url = strings.TrimSpace(after)
		}
	}
	if url == "" {
		t.Fatalf("moto has not started: %v", lines.Err())
	}
	go func() {
		for lines.Scan() { // a full pipe would stop moto
		}
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/"+bucket, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("create the bucket: status %d", resp.StatusCode)
	}
	return url
}

// installMoto makes a directory below cache with a virtual environment.
func installMoto(cache string) (root string, err error) {
	sum, err := digest(fstest.MapFS{"requirements.txt": {Data: motoRequirements}})
	if err != nil {
		return "", err
	}
	return install(cache, "moto-"+sum, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "requirements.txt"), motoRequirements, 0o600); err != nil {
			return err
		}
		if err := createVenv(dir); err != nil {
			return &missingError{err}
		}
		return nil
	})
}
