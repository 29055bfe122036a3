package runtime_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
)

// A client writes a stream to a tool that reads slowly, over a connection that breaks: the tool gets the
// content once.
func TestClientWritesStream(t *testing.T) {
	text := strings.Repeat("añ€😀", 30_000) // several chunks
	for _, kind := range []string{arcp.StreamText, arcp.StreamBinary} {
		inBubble(t, nil, func(f *fixture) {
			c, l := f.client("alice", client.Handlers{})
			defer c.Abort()
			job, err := c.Invoke(f.Context(), client.InvokeParams{Tool: "demo.collect", Arguments: map[string]any{"interval_ms": 1000}})
			if err != nil {
				t.Fatal(err)
			}
			w, err := job.OpenStream(f.Context(), arcp.StreamOpenPayload{Kind: kind, Name: "in"})
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(1500*time.Millisecond, func() { l.breakConnection(100 * time.Millisecond) })
			rest := text
			for _, size := range []int{1, 5, 3000, len(text) - 3006} { // runes are cut
				n, err := w.Write([]byte(rest[:size]))
				if err != nil || n != size {
					t.Fatalf("Write = %d, %v", n, err)
				}
				rest = rest[size:]
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			res, err := job.Wait(f.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Name   string `json:"name"`
				Bytes  int    `json:"bytes"`
				SHA256 string `json:"sha256"`
			}
			if err := arcp.Unmarshal(res.Value, &got); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256([]byte(text))
			if got.Name != "in" || got.Bytes != len(text) || got.SHA256 != hex.EncodeToString(sum[:]) {
				t.Errorf("%s: the tool has read %s", kind, res.Value)
			}
		})
	}
}

// The methods of a stream fail when the job has ended, and when the tool reads no streams.
func TestClientStreamErrors(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		c, _ := f.client("alice", client.Handlers{})
		defer c.Abort()
		job, err := c.Invoke(f.Context(), client.InvokeParams{Tool: "demo.sleep", Arguments: map[string]any{"ms": 1000}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = job.OpenStream(f.Context(), arcp.StreamOpenPayload{Kind: arcp.StreamText})
		wantCode(t, "a tool that reads no streams", err, arcp.CodeFailedPrecondition)
		job, err = c.Invoke(f.Context(), client.InvokeParams{Tool: "demo.collect", Arguments: map[string]any{}})
		if err != nil {
			t.Fatal(err)
		}
		w, err := job.OpenStream(f.Context(), arcp.StreamOpenPayload{Kind: arcp.StreamLog})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("x")); err == nil {
			t.Error("bytes were written to a stream of logs")
		}
		wantCode(t, "no object", w.WriteJSON("x"), arcp.CodeInvalidArgument)
		if err := w.WriteJSON(map[string]int{"n": 1}); err != nil {
			t.Error(err)
		}
		if err := w.CloseWithError(fmt.Errorf("no more")); err != nil {
			t.Error(err)
		}
		if _, err := job.Wait(context.Background()); err == nil || !strings.Contains(err.Error(), "no more") {
			t.Errorf("the job ended with %v", err)
		}
		wantCode(t, "a stream that has ended", w.WriteJSON(map[string]int{"n": 2}), arcp.CodeNotFound)
	})
}

// The writer of a stream that the tool closes gets the tool's error.
func TestToolClosesClientStream(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		closed := make(chan struct{})
		first, err := tool.New(tool.Capability{Name: "first", ReadsStreams: true}, func(ctx context.Context, job tool.Job, _ struct{}) (string, error) {
			st, err := job.AcceptStream(ctx)
			if err != nil {
				return "", err
			}
			chunk, err := st.Next()
			if err != nil {
				return "", err
			}
			st.CloseWithError(arcp.Errorf(arcp.CodeOutOfRange, "one chunk is enough"))
			close(closed)
			time.Sleep(time.Second)
			return string(chunk.Data), nil
		})
		if err == nil {
			err = f.rt.AddTool(first)
		}
		if err != nil {
			t.Fatal(err)
		}
		c, _ := f.client("alice", client.Handlers{})
		defer c.Abort()
		job, err := c.Invoke(f.Context(), client.InvokeParams{Tool: "first"})
		if err != nil {
			t.Fatal(err)
		}
		w, err := job.OpenStream(f.Context(), arcp.StreamOpenPayload{Kind: arcp.StreamText})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("one")); err != nil {
			t.Fatal(err)
		}
		<-closed
		for range 2 {
			_, err = w.Write([]byte("two"))
			wantCode(t, "the second chunk", err, arcp.CodeOutOfRange)
		}
		if res, err := job.Wait(f.Context()); err != nil || string(res.Value) != `"one"` {
			t.Errorf("the job ended with %s, %v", res.Value, err)
		}
	})
}
