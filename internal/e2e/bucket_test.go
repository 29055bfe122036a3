package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/conformance/interop"
)

// bucketOptions are the options of a server with its artifacts in a bucket.
func bucketOptions(t *testing.T, endpoint string) []string {
	t.Helper()
	t.Setenv("E2E_BUCKET_SECRET", interop.MotoSecretKey)
	return []string{"--artifact-endpoint", endpoint, "--artifact-bucket", "artifacts/arcp", "--artifact-region", "us-east-1",
		"--artifact-access-key", interop.MotoAccessKey, "--artifact-secret-key", "env:E2E_BUCKET_SECRET"}
}

func connectTo(ctx context.Context, t *testing.T, p *process) *client.Client {
	t.Helper()
	c, err := client.Connect(ctx, p.url, client.Options{Auth: client.Auth{Token: crashToken}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bucket counts what is in a bucket.
type bucket struct {
	*testing.T
	url string
}

// count returns how often a word is in the answer of the storage to a query.
func (b bucket) count(query, word string) int {
	b.Helper()
	resp, err := http.Get(b.url + query)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatalf("GET %s: status %d, %v", query, resp.StatusCode, err)
	}
	return bytes.Count(text, []byte(word))
}

func (b bucket) objects() int { return b.count("?list-type=2", "<Contents>") }
func (b bucket) uploads() int { return b.count("?uploads", "<UploadId>") }

// want waits until the bucket has these numbers of objects and of uploads.
func (b bucket) want(why string, objects, uploads int) {
	b.Helper()
	deadline := time.Now().Add(time.Minute)
	for b.objects() != objects || b.uploads() != uploads {
		if time.Now().After(deadline) {
			b.Fatalf("%s: the bucket has %d objects and %d uploads, want %d and %d", why, b.objects(), b.uploads(), objects, uploads)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// wantArtifact reads an artifact.
func wantArtifact(ctx context.Context, t *testing.T, c *client.Client, o arcp.ArtifactObject) {
	t.Helper()
	r, err := c.Artifacts().Get(ctx, o.ArtifactID)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if n, err := io.Copy(sum, r); err != nil || uint64(n) != o.Size || fmt.Sprintf("%x", sum.Sum(nil)) != o.SHA256 {
		t.Errorf("Get = %d bytes, %v; want %d", n, err, o.Size)
	}
}

// pausedReader has content of a size, and then waits until ctx ends.
type pausedReader struct {
	ctx  context.Context
	left int
}

func (r *pausedReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		<-r.ctx.Done()
		return 0, context.Cause(r.ctx)
	}
	n := min(len(p), r.left)
	r.left -= n
	return n, nil
}

// Artifacts in a bucket are there after kill -9, and what a put had written is not.
func TestArtifactsInABucket(t *testing.T) {
	ofOtherPrograms(t)
	const large = 20 << 20 // three parts
	endpoint := interop.Moto(t, "artifacts")
	b := bucket{t, endpoint + "/artifacts"}
	bin, data, options := binary(t), filepath.Join(t.TempDir(), "data"), bucketOptions(t, endpoint)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	p := startServer(t, bin, data, options...)
	c := connectTo(ctx, t, p)
	kept, err := c.Artifacts().Put(ctx, client.PutArtifactParams{MediaType: "application/octet-stream", Content: bytes.NewReader(make([]byte, large))})
	if err != nil {
		t.Fatal(err)
	}
	wantArtifact(ctx, t, c, kept)
	small, err := c.Artifacts().Put(ctx, client.PutArtifactParams{MediaType: "text/plain", Content: strings.NewReader("small")})
	if err != nil {
		t.Fatal(err)
	}
	b.want("after two puts", 2, 0)
	if err := c.Artifacts().Release(small.ArtifactID); err != nil {
		t.Fatal(err)
	}
	b.want("after a release", 1, 0)

	putting, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Artifacts().Put(putting, client.PutArtifactParams{MediaType: "application/octet-stream", Content: &pausedReader{putting, large}})
		ended <- err
	}()
	b.want("in the middle of a put", 1, 1)
	p.kill(t)
	stop()
	if err := <-ended; err == nil {
		t.Error("a put whose reader failed has succeeded")
	}
	_ = c.Close(ctx, "") // its server is gone
	b.want("after the kill", 1, 1)

	p = startServer(t, bin, data, options...)
	b.want("after the next start", 1, 0)
	c = connectTo(ctx, t, p)
	wantArtifact(ctx, t, c, kept)
	if err := c.Close(ctx, ""); err != nil {
		t.Error(err)
	}
	p.kill(t)
	backUpAndStart(ctx, t, bin, data, kept, options)
}

// backUpAndStart copies the data of a stopped server, and reads an artifact from a server that starts with
// the copy.
func backUpAndStart(ctx context.Context, t *testing.T, bin, data string, kept arcp.ArtifactObject, options []string) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	out, err := exec.CommandContext(ctx, bin, "backup", to, "--data", data).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "not copied: the content of artifacts, which is in bucket artifacts/arcp/") {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	p := startServer(t, bin, to, options...)
	c := connectTo(ctx, t, p)
	wantArtifact(ctx, t, c, kept)
	if err := c.Close(ctx, ""); err != nil {
		t.Error(err)
	}
	p.kill(t)
	out, err = exec.CommandContext(ctx, bin, "serve", "--data", to, "--listen", "127.0.0.1:0", "--admin", "", "--token", "alice="+crashToken).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed || !strings.Contains(string(out), "are in bucket artifacts/arcp/") {
		t.Errorf("a server that does not know the bucket: %v\n%s", err, out)
	}
}

// A server whose bucket does not answer starts and runs jobs. Only artifacts are unavailable.
func TestBucketThatDoesNotAnswer(t *testing.T) {
	ofOtherPrograms(t)
	bin := binary(t)
	p := startServer(t, bin, t.TempDir(), bucketOptions(t, "http://"+freeAddr(t))...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := connectTo(ctx, t, p)
	_, err := c.Artifacts().Put(ctx, client.PutArtifactParams{MediaType: "text/plain", Content: strings.NewReader("x")})
	if e, ok := errors.AsType[*client.RemoteError](err); !ok || e.Code != arcp.CodeUnavailable || !strings.Contains(e.Message, "the storage of artifacts") {
		t.Errorf("Put = %v, want %s", err, arcp.CodeUnavailable)
	}
	for _, args := range [][]string{{"invoke", "demo.echo", `{"text":"hello"}`}, {"doctor"}} {
		cmd := exec.CommandContext(ctx, bin, append(args, "--url", p.url, "--token", crashToken)...)
		out, err := cmd.CombinedOutput()
		want := "hello"
		if args[0] == "doctor" {
			want = "an artifact cannot be stored: UNAVAILABLE: "
		}
		if !strings.Contains(string(out), want) {
			t.Errorf("arcp %s: %v\n%s\nwant %q", args[0], err, out, want)
		}
	}
	if err := c.Close(ctx, ""); err != nil {
		t.Error(err)
	}
}
