//go:build !race

// The race detector multiplies the memory of the server, so the test of its memory runs without it.

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp/client"
)

// A large artifact goes in and out of a server that does not hold it in memory.
func TestLargeArtifactNeedsLittleMemory(t *testing.T) {
	const (
		large     = 192 << 20
		maxGrowth = 64 << 20
	)
	server := startServer(t, binary(t), t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := client.Connect(ctx, server.url, client.Options{Auth: client.Auth{Token: crashToken}, AckEvery: 16})
	if err != nil {
		t.Fatal(err)
	}
	passThrough(ctx, t, c, 48<<20) // fills the caches of the store
	before := peakMemory(t, server.cmd.Process.Pid)
	passThrough(ctx, t, c, large)
	if grown := peakMemory(t, server.cmd.Process.Pid) - before; grown >= maxGrowth {
		t.Errorf("the peak of the memory has grown from %d MiB by %d MiB, want less than %d MiB", before>>20, grown>>20, maxGrowth>>20)
	}
	if err := c.Close(ctx, ""); err != nil {
		t.Error(err)
	}
}

// passThrough puts an artifact of random content, gets it, and releases it.
func passThrough(ctx context.Context, t *testing.T, c *client.Client, size int64) {
	t.Helper()
	sent := sha256.New()
	content := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent)
	o, err := c.Artifacts().Put(ctx, client.PutArtifactParams{MediaType: "application/octet-stream", Content: content})
	if err != nil || o.Size != uint64(size) {
		t.Fatalf("Put = %+v, %v", o, err)
	}
	r, err := c.Artifacts().Get(ctx, o.ArtifactID)
	if err != nil {
		t.Fatal(err)
	}
	got := sha256.New()
	if n, err := io.Copy(got, r); err != nil || n != size || hex.EncodeToString(got.Sum(nil)) != hex.EncodeToString(sent.Sum(nil)) {
		t.Fatalf("Get = %d bytes, %v", n, err)
	}
	if err := c.Artifacts().Release(o.ArtifactID); err != nil {
		t.Fatal(err)
	}
}

// peakMemory returns the largest resident memory that a process has had, in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("the memory of a process is read from /proc: %v", err)
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	line, _, _ := strings.Cut(after, "kB")
	kib, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		t.Fatalf("VmHWM: %v", err)
	}
	return kib << 10
}
