package runtime_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/arcpd/arcpd/arcp/client"
)

// encodings runs a benchmark with a client that has binary frames, and with one that has none.
func encodings(b *testing.B, run func(b *testing.B, c *client.Client)) {
	for name, without := range map[string]bool{"sidecar": false, "base64": true} {
		b.Run(name, func(b *testing.B) {
			s := start(b, memory(b), nil)
			c, err := client.Dial(b.Context(), s.url, client.Options{NoSidecar: without, AckEvery: 16, Auth: client.Auth{Token: "alice-" + token}})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(c.Abort)
			run(b, c)
		})
	}
}

// BenchmarkBinaryStream reads a binary stream of 64 chunks of 64 KiB.
func BenchmarkBinaryStream(b *testing.B) {
	encodings(b, func(b *testing.B, c *client.Client) {
		b.SetBytes(64 << 16)
		for b.Loop() {
			job, err := c.Invoke(b.Context(), client.InvokeParams{Tool: "demo.stream", Arguments: map[string]any{"kind": "binary", "chunks": 64, "bytes": 1 << 16}})
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, job.ReadStream(b.Context(), "")); err != nil || n != 64<<16 {
				b.Fatalf("%d bytes, %v", n, err)
			}
			if _, err := job.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkBinaryClientStream writes a binary stream of 64 chunks of 64 KiB to a job.
func BenchmarkBinaryClientStream(b *testing.B) {
	encodings(b, func(b *testing.B, c *client.Client) {
		content := binaryContent(64 << 16)
		b.SetBytes(64 << 16)
		for b.Loop() {
			writeToJob(b, c, content)
		}
	})
}

// BenchmarkArtifact puts an artifact of 4 MiB in one message, and fetches it.
func BenchmarkArtifact(b *testing.B) {
	encodings(b, func(b *testing.B, c *client.Client) {
		content := binaryContent(4 << 20)
		b.SetBytes(2 * 4 << 20)
		for b.Loop() {
			ref, err := c.Artifacts().Put(b.Context(), client.PutArtifactParams{MediaType: "image/png", Content: bytes.NewReader(content)})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.Artifacts().Fetch(b.Context(), ref.ArtifactID); err != nil {
				b.Fatal(err)
			}
			if err := c.Artifacts().Release(ref.ArtifactID); err != nil {
				b.Fatal(err)
			}
		}
	})
}
