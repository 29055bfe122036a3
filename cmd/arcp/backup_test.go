package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/store"
)

// copyable is a store that can only be copied.
type copyable struct {
	store.Store
	err error
}

func (s copyable) Backup(_ context.Context, dir string) error {
	return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "000001.log"), []byte("12345"), 0o600), s.err)
}

func TestBackupCopiesTheKeys(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Dir(write(t, filepath.Join(dir, "data", identityFile), "key"))
	write(t, filepath.Join(data, credential.KeyFile), "sealing")
	write(t, filepath.Join(data, artifactDir, "art_1"), "content")
	write(t, filepath.Join(data, artifactDir, "art_2.part"), "unfinished")
	to := filepath.Join(dir, "copy")
	if err := backupData(t.Context(), copyable{}, data, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		identityFile:                          "key",
		credential.KeyFile:                    "sealing",
		filepath.Join(storeDir, "000001.log"): "12345",
		filepath.Join(artifactDir, "art_1"):   "content",
	} {
		path := filepath.Join(to, name)
		info, _ := os.Stat(path)
		if got, err := os.ReadFile(path); err != nil || string(got) != want || info.Mode().Perm() != 0o600 {
			t.Errorf("%s = %q, %v, want %q for its owner alone", name, got, err, want)
		}
	}
	if names, err := os.ReadDir(filepath.Join(to, artifactDir)); err != nil || len(names) != 1 {
		t.Errorf("artifacts %v, %v; want the finished one", names, err)
	}
	if err := backupData(t.Context(), copyable{}, data, to); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second backup into %s: %v, want it refused", to, err)
	}
	broken := filepath.Join(dir, "broken")
	err := backupData(t.Context(), copyable{err: store.ErrUnsupported}, data, broken)
	if _, statErr := os.Stat(broken); !errors.Is(err, store.ErrUnsupported) || !errors.Is(statErr, fs.ErrNotExist) {
		t.Errorf("a backup that fails: %v, and %v: want nothing left behind", err, statErr)
	}
}

func TestBackupIsWrittenForTheCaller(t *testing.T) {
	mux := http.NewServeMux()
	fail := error(nil)
	key, err := newBackupKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shown := key
	addBackup(mux, func() (*backupKey, error) { return shown, nil }, func(_ context.Context, dir string) error {
		if fail != nil {
			return fail
		}
		return os.Mkdir(dir, 0o700)
	})
	admin := httptest.NewServer(mux)
	defer admin.Close()
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(admin.URL, "http://")
	wantOutcome(t, "a relative path is the caller's", cli(t, "backup", "one", "--admin", admin.URL), exitOK,
		filepath.Join(here, "one")+": 0 bytes\n", "")
	wantOutcome(t, "JSON", cli(t, "backup", "two", "--admin", address, "-o", "json"), exitOK, `"bytes":0}`, "")
	wantRefusal(t, cli(t, "backup", "one", "--admin", admin.URL), exitFailed, "file exists")
	fail = fmt.Errorf("backup: %w", store.ErrUnsupported)
	wantRefusal(t, cli(t, "backup", "three", "--admin", admin.URL), exitFailed, "backup failed: backup: this store cannot do that")
	wantRefusal(t, cli(t, "backup", "three", "--admin", admin.URL+"/nope"), exitFailed, "has no backups")
	wantRefusal(t, cli(t, "backup", "three", "--admin", "http://"), exitUsage, "give the URL of the admin listener")
	wantRefusal(t, cli(t, "backup", "three", "--admin", admin.URL, "--data", "x"), exitUsage, "--admin and --data exclude each other: give one of them")
	wantRefusal(t, cli(t, "backup", "three", "--data", "nowhere"), exitFailed, "nowhere is not a data directory: no such file")
	t.Setenv("ARCP_URL", "ws://127.0.0.1:7779/arcp")
	wantRefusal(t, cli(t, "backup", "three"), exitUsage, "$ARCP_URL names the server at ws://127.0.0.1:7779/arcp: give --admin")
	shown = &backupKey{key.file, "another one"}
	wantRefusal(t, cli(t, "backup", "three", "--admin", admin.URL), exitDenied,
		"backup refused: send the header Arcp-Backup-Key with the content of "+key.file)
	for file, want := range map[string]string{
		"/etc/passwd":             `the server asks for the file "/etc/passwd", which is not a backup key`,
		"backup-key":              "which is not a backup key",
		"/nonexistent/backup-key": "read /nonexistent/backup-key: no such file or directory; run this command on the machine of the server",
	} {
		shown.file = file
		if o := cli(t, "backup", "three", "--admin", admin.URL); o.code == exitOK || !strings.Contains(o.stderr, want) {
			t.Errorf("with the key in %s: %v, want %q", file, o, want)
		}
	}
	admin.Close()
	wantRefusal(t, cli(t, "backup", "three", "--admin", admin.URL), exitUnreachable, "no admin listener answers")
	wantRefusal(t, cli(t, "backup", "three", "--admin", admin.URL), exitUnreachable, "for a server with another admin address give --admin URL, for a stopped server --data DIR")
}

// Where a backup goes is decided by programs of this machine, not by pages in its
// browsers.
func TestBackupRefusesWebPages(t *testing.T) {
	mux := http.NewServeMux()
	key := func() (*backupKey, error) { return &backupKey{"/x/" + backupKeyFile, "secret"}, nil }
	addBackup(mux, key, func(context.Context, string) error {
		t.Error("a backup was made")
		return nil
	})
	for _, c := range []struct {
		name, remote, kind, origin, body string
		want                             int
	}{
		{"from elsewhere", "192.0.2.1:1", "application/json", "", `{"dir":"/tmp/x"}`, 403},
		{"from a page", "127.0.0.1:1", "application/json", "http://127.0.0.1:7778", `{"dir":"/tmp/x"}`, 403},
		{"from a form", "127.0.0.1:1", "text/plain", "", `{"dir":"/tmp/x"}`, 400},
		{"a relative path", "127.0.0.1:1", "application/json", "", `{"dir":"x"}`, 400},
		{"without the key", "127.0.0.1:1", "application/json", "", `{"dir":"/tmp/x"}`, 401},
		{"not JSON", "127.0.0.1:1", "application/json", "", `x`, 400},
	} {
		r := httptest.NewRequest(http.MethodPost, backupPath, strings.NewReader(c.body))
		r.RemoteAddr = c.remote
		r.Header.Set("Content-Type", c.kind)
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.want)
		}
	}
}

// A server's own data, once its store can be copied.
func TestBackupOfAServer(t *testing.T) {
	t.Parallel()
	data, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "copy")
	p := demoServer(t, "--data", data)
	id := p.detach("demo.echo", `{"a":1}`)
	var kept, lost arcp.ArtifactObject
	for _, o := range []*arcp.ArtifactObject{&kept, &lost} {
		put := p.cli("artifacts", "put", write(t, filepath.Join(t.TempDir(), "file"), "content"), "-o", "json")
		if err := arcp.Unmarshal([]byte(put.stdout), o); err != nil {
			t.Fatalf("put prints %s: %v", put, err)
		}
	}
	wantOutcome(t, "wait", p.cli("jobs", "wait", id), exitOK, `{"a":1}`, "")
	wantRefusal(t, cli(t, "backup", to, "--data", data), exitFailed, "in use by another process")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	o := cli(t, "backup", to, "--data", data)
	wantOutcome(t, "backup", o, exitOK, to+": ", "")
	if err := os.Remove(filepath.Join(to, artifactDir, string(lost.ArtifactID))); err != nil {
		t.Fatal(err)
	}
	restored := demoServer(t, "--data", to)
	wantOutcome(t, "the copy has the job", restored.cli("jobs", "wait", id), exitOK, `{"a":1}`, "")
	wantOutcome(t, "the copy has the artifact", restored.cli("artifacts", "get", string(kept.ArtifactID)), exitOK, "content", "")
	wantOutcome(t, "without its file it is not there", restored.cli("artifacts", "get", string(lost.ArtifactID)), exitFailed, "", "NOT_FOUND")
}

// A server that stops makes no backup: it would have to wait for it.
func TestBackupWhileStopping(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p := demoServer(t, "--drain", "1h", "--data", data)
	copied, late := filepath.Join(t.TempDir(), "copy"), filepath.Join(t.TempDir(), "late")
	wantOutcome(t, "a backup while it runs", cli(t, "backup", copied, "--admin", p.admin), exitOK, copied+": ", "")
	if info, err := os.Stat(filepath.Join(data, backupKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v, want it for its owner alone", info, err)
	}
	if _, err := os.Stat(filepath.Join(copied, backupKeyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key is in the copy: %v", err)
	}
	p.detach("demo.sleep", `{"ms":3600000}`)
	p.untilRunning(1)
	p.signal(syscall.SIGTERM)
	until(t, "readiness is withdrawn", func() bool { status, _ := get(t, p.admin+"/readyz"); return status == 503 })
	wantRefusal(t, cli(t, "backup", late, "--admin", p.admin), exitFailed, "backup failed: runtime is shutting down")
	if _, err := os.Stat(late); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the refused backup has left something: %v", err)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

// A store is served with the keys that belong to it, and not without.
func TestStoreWithoutItsKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, other := filepath.Join(dir, "data"), filepath.Join(dir, "other")
	keys := write(t, filepath.Join(dir, "keys"), "key-number-one\nkey-number-two\n")
	if err := os.Chmod(keys, 0o600); err != nil {
		t.Fatal(err)
	}
	config := write(t, filepath.Join(dir, "arcp.yaml"), "provisioners:\n  - {name: pool, kind: static, for: ['demo.*'], file: "+keys+", endpoint: 'https://api.example'}\n")
	flags := func(data string, more ...string) []string {
		return append([]string{"--data", data, "--config", config, "--demo", "--token", "alice=secret"}, more...)
	}
	refused := func(name, want string) {
		t.Helper()
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, flags(data)...)
		wantRefusal(t, cli(t, args...), exitFailed, want)
	}
	for _, d := range []string{data, other} {
		p := serve(t, flags(d)...)
		p.detach("demo.emit", `{"count":1,"bytes":1,"delay_ms":3600000}`) // its key is sealed in the store
		p.untilRunning(1)
		p.signal(syscall.SIGKILL)
		p.wait()
	}
	identity := readFile(t, filepath.Join(data, identityFile))
	if err := os.Rename(filepath.Join(data, identityFile), filepath.Join(dir, "identity")); err != nil {
		t.Fatal(err)
	}
	refused("the runtime's key is not there", "has a store without identity.pem")
	write(t, filepath.Join(data, identityFile), readFile(t, filepath.Join(other, identityFile)))
	refused("it is another's", "has the store of a runtime with another key than identity.pem")
	if err := os.WriteFile(filepath.Join(data, identityFile), []byte(identity), 0o600); err != nil {
		t.Fatal(err)
	}

	sealing := filepath.Join(data, credential.KeyFile)
	if err := os.Rename(sealing, sealing+".away"); err != nil {
		t.Fatal(err)
	}
	refused("the sealing key is not there", "credentials sealed with the missing key "+sealing)
	if _, err := os.Stat(sealing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key is made all the same: %v", err)
	}
	if err := os.Rename(sealing+".away", sealing); err != nil {
		t.Fatal(err)
	}
	p := serve(t, flags(data)...)
	p.signal(syscall.SIGTERM)
	p.wait()

	if err := os.Remove(filepath.Join(data, identityFile)); err != nil {
		t.Fatal(err)
	}
	p = serve(t, flags(data, "--new-identity")...)
	p.signal(syscall.SIGTERM)
	p.wait()
	if readFile(t, filepath.Join(data, identityFile)) == identity {
		t.Error("with --new-identity the runtime has its old key")
	}
	serve(t, flags(data)...) // the store belongs to it now
}
