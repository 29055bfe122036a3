package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
)

// tree returns the content of all files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[path] = readFile(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sealedServer is a server with a sealed credential, an artifact and a job that runs.
func sealedServer(t *testing.T, data string) (p *process, id arcp.ArtifactID) {
	t.Helper()
	dir := t.TempDir()
	keys := write(t, filepath.Join(dir, "keys"), "key-number-one\n")
	config := write(t, filepath.Join(dir, "arcp.yaml"), "provisioners:\n  - {name: pool, kind: static, for: ['demo.*'], file: "+keys+", endpoint: 'https://api.example'}\n")
	p = demoServer(t, "--data", data, "--config", config)
	p.detach("demo.emit", `{"count":100000,"bytes":100,"interval_ms":10}`) // its key is sealed in the store
	p.untilRunning(1)
	var o arcp.ArtifactObject
	put := p.cli("artifacts", "put", write(t, filepath.Join(dir, "file"), strings.Repeat("content", 1000)), "-o", "json")
	if err := arcp.Unmarshal([]byte(put.stdout), &o); err != nil {
		t.Fatalf("put prints %s: %v", put, err)
	}
	return p, o.ArtifactID
}

// The copy of a busy server is whole, and its check changes nothing. Each damage is found.
func TestBackupVerify(t *testing.T) {
	t.Parallel()
	data, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "copy")
	p, id := sealedServer(t, data)
	p.asks(deploy) // a call of a tool of the runtime is not among the jobs of the copy
	o := cli(t, "backup", to, "--admin", p.admin, "--verify")
	wantOutcome(t, "a copy of a busy server", o, exitOK, " 1 job, ", "")
	wantOutcome(t, "the artifact of the copy", o, exitOK, " 1 artifact\n", "")
	before := tree(t, to)
	o = cli(t, "backup", "verify", to, "-o", "json")
	wantOutcome(t, "the same copy", o, exitOK, `"whole":true,"problems":[]`, "")
	if !maps.Equal(before, tree(t, to)) {
		t.Error("the check has changed the copy")
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	offline := filepath.Join(t.TempDir(), "offline")
	wantOutcome(t, "a copy of a stopped server", cli(t, "backup", offline, "--data", data, "--verify"), exitOK, " 1 artifact\n", "")

	artifact := filepath.Join(artifactDir, string(id))
	for _, c := range []struct {
		name, file string
		change     func(text []byte) []byte // nil: the file is removed
		want       string
	}{
		{"no runtime key", identityFile, nil, "problem: identity.pem, the key of the runtime, is missing\n"},
		{"a bad runtime key", identityFile, func([]byte) []byte { return []byte("x") }, "problem: identity.pem: it is not a PEM file\n"},
		{"no sealing key", credential.KeyFile, nil, "problem: there are credentials, but not the key that seals them, secret.key"},
		{"another sealing key", credential.KeyFile, func([]byte) []byte { return []byte(strings.Repeat("ab", 32) + "\n") },
			"the sealed value does not open"},
		{"no artifact", artifact, nil, "problem: artifact " + string(id) + ": its file is missing\n"},
		{"a short artifact", artifact, func(text []byte) []byte { return text[:10] }, "its file has 10 bytes instead of 7000\n"},
		{"another artifact", artifact, func(text []byte) []byte { text[5000] ^= 1; return text }, "its file has the SHA-256 "},
		{"a short list of files", "store/MANIFEST-*", func(text []byte) []byte { return text[:len(text)-1] }, "the list of files is damaged"},
		{"a table", "store/*.sst", func(text []byte) []byte { text[len(text)/2] ^= 1; return text }, "problem: "},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(dir, os.DirFS(offline)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{credential.KeyFile, identityFile} { // CopyFS adds permissions
			if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		found, _ := filepath.Glob(filepath.Join(dir, c.file))
		if len(found) == 0 {
			t.Fatalf("%s: the copy has no %s", c.name, c.file)
		}
		if c.change == nil {
			if err := os.Remove(found[0]); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(found[0], c.change([]byte(readFile(t, found[0]))), 0o600); err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, c.name, cli(t, "backup", "verify", dir), exitFailed, c.want, "cannot be relied on")
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.Rename(filepath.Join(offline, credential.KeyFile), key); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, "the key is elsewhere", cli(t, "backup", "verify", offline, "--secret-key-file", key), exitOK, " 1 artifact\n", "")
	wantRefusal(t, cli(t, "backup", "verify", t.TempDir()), exitFailed, "is not a copy of a data directory")
	restored := demoServer(t, "--data", to)
	wantOutcome(t, "a server starts with the checked copy", restored.cli("artifacts", "get", string(id)), exitOK, "content", "")
	wantRefusal(t, cli(t, "backup", "verify", to), exitFailed, "in use by another process")
}
