package runtime_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/pebble"
)

func TestClientStoresArtifacts(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		c, _ := f.client("alice", client.Handlers{})
		defer c.Abort()
		content := bytes.Repeat([]byte{0, 1, 2, 255}, 1<<20) // the most that a message may have
		put := client.PutArtifactParams{MediaType: "application/octet-stream", Content: bytes.NewReader(content), Retain: time.Minute, IdempotencyKey: "k"}
		ref, err := c.Artifacts().Put(f.Context(), put)
		if err != nil || ref.Size != uint64(len(content)) || !ref.ExpiresAt.Equal(time.Now().Add(time.Minute)) {
			f.Fatalf("Put = %+v, %v", ref, err)
		}
		put.Content = bytes.NewReader(content)
		if again, err := c.Artifacts().Put(f.Context(), put); err != nil || again.ArtifactID != ref.ArtifactID {
			f.Errorf("a repeated Put = %+v, %v; want %s", again, err, ref.ArtifactID)
		}
		got, err := c.Artifacts().Fetch(f.Context(), ref.ArtifactID)
		if err != nil || got.MediaType != put.MediaType || !bytes.Equal(got.Content, content) {
			f.Errorf("Fetch = %d bytes of %s, %v", len(got.Content), got.MediaType, err)
		}
		if err := c.Artifacts().Release(ref.ArtifactID); err != nil {
			f.Error(err)
		}
		_, err = c.Artifacts().Fetch(f.Context(), ref.ArtifactID)
		if e := reported(err); e == nil || e.Code != arcp.CodeNotFound {
			f.Errorf("Fetch after the release = %v, want %s", err, arcp.CodeNotFound)
		}
		put.Content = bytes.NewReader(append(content, 0))
		if _, err := c.Artifacts().Put(f.Context(), put); err == nil || reported(err) != nil {
			f.Errorf("a key with chunks = %v, want an error of the client", err)
		}
	})
}

// breakingReader breaks the connection of a client after some bytes.
type breakingReader struct {
	io.Reader
	link  *link
	after int
}

func (r *breakingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.after -= n; r.after <= 0 && r.link != nil {
		r.link.breakConnection(0)
		r.link = nil
	}
	return n, err
}

// Large content goes in and out in chunks, also over a lost connection and in both dialects.
func TestClientStoresLargeArtifacts(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 6<<20/16+1)
	for _, dialect := range []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft} {
		t.Run(dialect.String(), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				l := &link{f: f}
				c, err := client.ConnectFunc(f.Context(), l.dial, client.Options{Dialect: dialect, Auth: client.Auth{Token: "alice-" + token}})
				if err != nil {
					f.Fatal(err)
				}
				defer c.Abort() // it reconnects for as long as it lives
				ref, err := c.Artifacts().Put(f.Context(), client.PutArtifactParams{MediaType: "text/plain", Retain: time.Minute,
					Content: &breakingReader{bytes.NewReader(content), l, 5 << 20}})
				if err != nil || ref.Size != uint64(len(content)) || ref.ExpiresAt.After(time.Now().Add(time.Minute)) {
					f.Fatalf("Put = %+v, %v", ref, err)
				}
				r, err := c.Artifacts().Get(f.Context(), ref.ArtifactID)
				if err != nil {
					f.Fatal(err)
				}
				got, err := io.ReadAll(&breakingReader{r, l, 1 << 20})
				if err != nil || !bytes.Equal(got, content) || r.MediaType != "text/plain" {
					f.Errorf("Get = %d bytes of %s, %v", len(got), r.MediaType, err)
				}
				_, err = c.Artifacts().Get(f.Context(), "art_none")
				if e := reported(err); e == nil || e.Code != arcp.CodeNotFound {
					f.Errorf("Get of an unknown artifact = %v, want %s", err, arcp.CodeNotFound)
				}
			})
		})
	}
}

// The content of artifact.put is in the artifact, and not in the rows of the calls.
func TestCallsAreStoredWithoutContent(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		c, _ := f.client("alice", client.Handlers{})
		defer c.Abort()
		for _, args := range []string{`{"data":"aGVsbG8=","more":true}`, `{"data":"aGVsbG8=","media_type":"text"}`, `{"data":"aGVsbG8="}`, `{"data":"aGVsbG8=?"}`} {
			j, err := c.Invoke(f.Context(), client.InvokeParams{Tool: "artifact.put", Arguments: arcp.Raw(args)})
			if err != nil {
				f.Fatal(err)
			}
			_, err = j.Wait(f.Context())
			row, readErr := f.st.Job(f.Context(), j.ID())
			if readErr != nil || !row.State.Terminal() || bytes.Contains(row.Arguments, []byte("aGVsbG8=")) {
				f.Errorf("%s (%v) is stored as %s, %v", args, err, row.Arguments, readErr)
			}
		}
	})
}

// Clients of the draft dialect use the tools.
func TestDraftClientsUseArtifacts(t *testing.T) {
	for i := range draftLibraries[:largeLibraries()] {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				p := f.dialDraft(lib, "alice")
				content := bytes.Repeat([]byte("0123456789abcdef"), artifactChunk/16)
				data := base64.StdEncoding.EncodeToString(content)
				var progress arcp.UploadProgress
				p.result(&progress, "artifact.put", fmt.Sprintf(`{"data":%q,"more":true}`, data))
				var object arcp.ArtifactObject
				p.result(&object, "artifact.put", fmt.Sprintf(`{"upload_id":%q,"offset":%d,"data":%q}`, progress.UploadID, progress.Offset, data))
				var chunk arcp.ArtifactChunk
				p.result(&chunk, "artifact.get", fmt.Sprintf(`{"artifact_id":%q,"offset":%d}`, object.ArtifactID, len(content)))
				if object.Size != uint64(2*len(content)) || !bytes.Equal(chunk.Data, content[:256<<10]) || !chunk.More {
					t.Errorf("an artifact of %d bytes, read %d, more %v", object.Size, len(chunk.Data), chunk.More)
				}
			})
		})
	}
}

const artifactChunk = 1 << 20 // the largest chunk

// result runs a tool and decodes its result.
func (p *draftPeer) result(out any, agent, input string) {
	p.Helper()
	frame := p.run(agent, input)
	value := frame.Payload.Result
	if value == nil {
		value = frame.Payload.Output
	}
	if err := arcp.Unmarshal(value, out); err != nil {
		p.Fatalf("%s ends with %.300s: %v", agent, frame.raw, err)
	}
}

// Artifacts on disk are there after a restart, and a file without a row is not.
func TestArtifactsOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	content := filepath.Join(dir, "artifacts")
	orphan := filepath.Join(content, "art_orphan")
	process := func(name string, use func(t *testing.T, c *client.Client)) {
		t.Run(name, func(t *testing.T) {
			st, err := pebble.Open(filepath.Join(dir, "store"), pebble.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, st, func(c *runtime.Config) { c.Artifacts.Dir = content })
			c, err := client.Connect(t.Context(), s.url, client.Options{Auth: client.Auth{Token: "alice-" + token}})
			if err != nil {
				t.Fatal(err)
			}
			use(t, c)
			if err := c.Close(t.Context(), ""); err != nil {
				t.Error(err)
			}
		})
	}
	var ref arcp.ArtifactObject
	process("put", func(t *testing.T, c *client.Client) {
		var err error
		if ref, err = c.Artifacts().Put(t.Context(), client.PutArtifactParams{MediaType: "text/plain", Content: strings.NewReader("hello")}); err != nil {
			t.Fatal(err)
		}
	})
	if err := os.WriteFile(orphan, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	process("fetch", func(t *testing.T, c *client.Client) {
		a, err := c.Artifacts().Fetch(t.Context(), ref.ArtifactID)
		if err != nil || string(a.Content) != "hello" {
			t.Errorf("Fetch = %q, %v", a.Content, err)
		}
		if _, err := os.Stat(orphan); !os.IsNotExist(err) {
			t.Errorf("the file without a row: %v", err)
		}
	})
}

// Shutdown does not wait for a bucket that does not answer, and ends the requests to it.
func TestShutdownEndsRequestsToTheBucket(t *testing.T) {
	for name, put := range map[string]func(context.Context, *client.Client){ // the connection breaks before they are answered
		"message": func(ctx context.Context, c *client.Client) {
			_, _ = c.Artifacts().Put(ctx, client.PutArtifactParams{MediaType: "text/plain", Content: strings.NewReader("x")})
		},
		"tool": func(ctx context.Context, c *client.Client) {
			_, _ = c.Invoke(ctx, client.InvokeParams{Tool: "artifact.put", Arguments: arcp.Raw(`{"data":"eA=="}`)})
		},
	} {
		t.Run(name, func(t *testing.T) { testShutdownEndsRequest(t, put) })
	}
}

func testShutdownEndsRequest(t *testing.T, put func(context.Context, *client.Client)) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := start(t, memory(t), func(c *runtime.Config) {
		c.Artifacts.Bucket = &runtime.Bucket{Endpoint: "http://" + silent.Addr().String(), Region: "us-east-1", Name: "artifacts",
			AccessKey: "key", SecretKey: "secret"}
	})
	c := s.dial(t, "alice")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		put(t.Context(), c)
	}()
	request := acceptPut(t, silent)
	if err := request.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil { // less than the limit of the request
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, request); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the request has not ended with Shutdown")
	}
	c.Abort()
	<-ended
}

// acceptPut accepts connections until one has a request that writes an object. The list of objects is requested
// too.
func acceptPut(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	for {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		method := make([]byte, 3)
		if _, err := io.ReadFull(c, method); err != nil {
			t.Fatal(err)
		}
		if string(method) == http.MethodPut {
			return c
		}
	}
}
