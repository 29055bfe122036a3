package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestArtifactsOfAServer(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.txt"), filepath.Join(dir, "out.txt")
	content := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16) // more than a message may have
	if err := os.WriteFile(in, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dialect := range []string{"rfc", "draft"} {
		put := p.cli("artifacts", "put", in, "-o", "json", "--retain", "1m", "--dialect", dialect)
		var o arcp.ArtifactObject
		if err := arcp.Unmarshal([]byte(put.stdout), &o); err != nil || o.Size != uint64(len(content)) || !strings.HasPrefix(o.MediaType, "text/plain") {
			t.Fatalf("put prints %s, %v", put, err)
		}
		id := string(o.ArtifactID)
		wantOutcome(t, "a list", p.cli("artifacts", "ls", "--dialect", dialect), exitOK, id, "")
		wantOutcome(t, "a file", p.cli("artifacts", "get", id, out, "--dialect", dialect), exitOK, id+" is in "+out, "")
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, content) {
			t.Errorf("the file has %d bytes, %v", len(got), err)
		}
		wantOutcome(t, "standard output", p.cli("artifacts", "get", id), exitOK, string(content), "")
		wantOutcome(t, "rm", p.cli("artifacts", "rm", id, "art_none", "--dialect", dialect), exitFailed, id+" is deleted", "no artifact art_none")
		wantOutcome(t, "it is gone", p.cli("artifacts", "get", id, out), exitFailed, "", "NOT_FOUND")
	}
	wantRefusal(t, p.cli("artifacts", "put", filepath.Join(dir, "none")), exitUsage, "no such file")
	wantRefusal(t, p.cli("artifacts", "put", dir), exitUsage, "is a directory")
	wantRefusal(t, p.cli("artifacts", "put", in, "--retain", "-1s"), exitUsage, "--retain")
	wantOutcome(t, "two outputs", p.cli("artifacts", "get", "art_1", "-o", "json"), exitUsage, "", "give a FILE")
	if names, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(names) != 0 {
		t.Errorf("temporary files are left: %q, %v", names, err)
	}
}

// With artifact-url a large artifact is downloaded over HTTP, also from a path that is not the root.
func TestArtifactsAreDownloaded(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "/some/artifacts/"} {
		t.Run(path, func(t *testing.T) {
			address := freeAddress(t)
			p := demoServer(t, "--listen", address, "--artifact-url", "http://"+address+path)
			dir := t.TempDir()
			in, out := filepath.Join(dir, "in.txt"), filepath.Join(dir, "out.txt")
			content := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16)
			write(t, in, string(content))
			put := p.cli("artifacts", "put", in, "-o", "json")
			var o arcp.ArtifactObject
			if err := arcp.Unmarshal([]byte(put.stdout), &o); err != nil {
				t.Fatalf("put prints %s, %v", put, err)
			}
			wantOutcome(t, "get", p.cli("artifacts", "get", string(o.ArtifactID), out), exitOK, "is in "+out, "")
			if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, content) {
				t.Errorf("the file has %d bytes, %v", len(got), err)
			}
			wantOutcome(t, "the draft dialect has no links", p.cli("artifacts", "get", string(o.ArtifactID), out, "--dialect", "draft"), exitOK, "is in "+out, "")
			_, metrics := get(t, p.admin+"/metrics")
			for _, line := range []string{`arcp_artifact_links_total{result="issued"} 1`, `arcp_artifact_links_total{result="downloaded"} 1`} {
				if !strings.Contains(metrics, line+"\n") {
					t.Errorf("the metrics lack %s", line)
				}
			}
			if status, _ := get(t, "http://"+address+strings.TrimSuffix(path, "/")+"/AAAA"); status != http.StatusNotFound {
				t.Errorf("an unknown link has the status %d", status)
			}
		})
	}
}

// A file stays as it is if the content is not what the digest says.
func TestDamagedContentReplacesNoFile(t *testing.T) {
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		c.complete(env, `{"artifact_id":"art_1","uri":"u","media_type":"text/plain","size":5,"offset":0,"data":"amVsbG8=","more":false,
			"sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}`)
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, "damaged", r.cli("artifacts", "get", "art_1", file), exitFailed, "", "digest")
	got, err := os.ReadFile(file)
	if names, _ := os.ReadDir(dir); err != nil || string(got) != "before" || len(names) != 1 {
		t.Errorf("the file has %q, %v, and there are %v", got, err, names)
	}
}

func TestTransferBar(t *testing.T) {
	var text strings.Builder
	b := &transferBar{bar: &progressBar{w: &text}, total: 4 << 20}
	for range 16 {
		_, _ = b.Write(make([]byte, 256<<10))
	}
	b.clear()
	if n := strings.Count(text.String(), "\r"); n != 5 || !strings.Contains(text.String(), "] 2359296/4194304 bytes 56%") {
		t.Errorf("drawn %d times, want once a MiB: %q", n, text.String())
	}
}
