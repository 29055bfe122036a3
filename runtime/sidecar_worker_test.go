package runtime_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/toolworker"
	"github.com/arcpd/arcpd/transport"
)

// countedConn counts the binary frames that are written, and may be broken.
type countedConn struct {
	transport.BinaryConn
	written *atomic.Int32
}

func (c countedConn) WriteBinary(frame []byte) error {
	c.written.Add(1)
	return c.BinaryConn.WriteBinary(frame)
}

// counted is a dialer of a server that counts the binary frames of its connections.
type counted struct {
	s       *server
	written atomic.Int32

	mu   sync.Mutex
	conn transport.Conn // the last one
}

func (d *counted) dial(ctx context.Context) (transport.Conn, error) {
	conn, err := transport.Dial(ctx, d.s.url, transport.DialOptions{})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = conn
	return countedConn{conn.(transport.BinaryConn), &d.written}, nil
}

// breakConnection ends the last connection.
func (d *counted) breakConnection() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.conn.Abort() // the client connects again
}

// A worker writes streams and artifacts of its jobs in binary frames, and reads artifacts so.
func TestWorkerSendsSidecars(t *testing.T) {
	content := binaryContent(5<<20 + 41)
	s := start(t, memory(t), nil)
	d := &counted{s: s}
	var fetched atomic.Int32
	worker, err := client.ConnectFunc(t.Context(), d.dial, client.Options{Auth: client.Auth{Token: "alice-" + token}, OnEnvelope: func(env *arcp.Envelope) bool {
		if env.Type == arcp.ArtifactPut && env.Sidecar != nil {
			fetched.Add(1)
		}
		return false
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.Abort)
	write := tool.MustNew(tool.Capability{Name: "write"}, func(ctx context.Context, job tool.Job, _ struct{}) ([]arcp.ArtifactID, error) {
		st, err := job.OpenStream(tool.StreamOptions{Kind: arcp.StreamBinary})
		if err != nil {
			return nil, err
		}
		if _, err := st.Write(content[:100_000]); err != nil {
			return nil, err
		}
		var ids []arcp.ArtifactID
		for _, size := range []int{0, 10, len(content)} {
			put, err := job.Artifacts().Put(ctx, tool.NewArtifact{MediaType: "image/png", Content: bytes.NewReader(content[:size])})
			if err != nil {
				return nil, err
			}
			_, r, err := job.Artifacts().Open(ctx, put.ArtifactID)
			if err != nil {
				return nil, err
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content[:size]) {
				return nil, errors.New("the job reads other content than it has put")
			}
			ids = append(ids, put.ArtifactID)
		}
		return ids, st.Close()
	})
	changed := make(chan struct{}, 1)
	user, err := client.Dial(t.Context(), s.url, client.Options{Auth: client.Auth{Token: "alice-" + token}, OnUnsolicited: func(env *arcp.Envelope) {
		if bytes.Contains(env.Payload, []byte("tools.changed")) {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Abort)
	go func() { _ = toolworker.Run(t.Context(), worker, toolworker.Config{}, write) }() // ends with the test
	<-changed
	job, err := user.Invoke(t.Context(), client.InvokeParams{Tool: "write"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(job.ReadStream(t.Context(), "")); err != nil || !bytes.Equal(got, content[:100_000]) {
		t.Errorf("the stream has %d bytes, %v", len(got), err)
	}
	res, err := job.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []arcp.ArtifactID
	if err := arcp.Unmarshal(res.Value, &ids); err != nil {
		t.Fatal(err)
	}
	for n, size := range []int{0, 10, len(content)} {
		r, err := user.Artifacts().Get(t.Context(), ids[n])
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content[:size]) {
			t.Errorf("the artifact of %d bytes has %d, %v", size, len(got), err)
		}
	}
	if n := fetched.Load(); n < 1+1+11 {
		t.Errorf("the worker has %d parts of artifacts in binary frames, want at least %d", n, 1+1+11)
	}
	if n := d.written.Load(); n < 2+2+11 { // chunks of the stream, small artifacts, and parts of the large one
		t.Errorf("the worker has sent %d binary frames, want at least %d", n, 2+2+11)
	}
}

// A client whose connections break while it writes a stream loses and repeats no content.
func TestSidecarsOverBrokenConnections(t *testing.T) {
	s := start(t, memory(t), nil)
	d := &counted{s: s}
	c, err := client.ConnectFunc(t.Context(), d.dial, client.Options{Auth: client.Auth{Token: "alice-" + token}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	job, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "demo.collect", Arguments: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := job.OpenStream(t.Context(), arcp.StreamOpenPayload{Kind: arcp.StreamBinary})
	if err != nil {
		t.Fatal(err)
	}
	content := binaryContent(20 << 16)
	for part := range 5 {
		written := make(chan error, 1)
		go func() {
			_, err := w.Write(content[part*4<<16 : (part+1)*4<<16])
			written <- err
		}()
		d.breakConnection() // at any moment of the write
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	res, err := job.Wait(t.Context())
	sum := sha256.Sum256(content)
	if err != nil || !strings.Contains(string(res.Value), hex.EncodeToString(sum[:])) {
		t.Errorf("the tool has read %s, %v", res.Value, err)
	}
}
