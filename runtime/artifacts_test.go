package runtime_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func TestClientStoresArtifacts(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		c, _ := f.client("alice", client.Handlers{})
		content := bytes.Repeat([]byte{0, 1, 2, 255}, 1<<20) // the most that a message may have
		put := client.PutArtifactParams{MediaType: "application/octet-stream", Content: content, Retain: time.Minute, IdempotencyKey: "k"}
		ref, err := c.Artifacts().Put(f.Context(), put)
		if err != nil || ref.Size != uint64(len(content)) || !ref.ExpiresAt.Equal(time.Now().Add(time.Minute)) {
			f.Fatalf("Put = %+v, %v", ref, err)
		}
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
		_, err = c.Artifacts().Put(f.Context(), client.PutArtifactParams{MediaType: "a/b", Content: append(content, 0)})
		if e := reported(err); e == nil || e.Code != arcp.CodeInvalidArgument {
			f.Errorf("Put of one byte too many = %v, want %s", err, arcp.CodeInvalidArgument)
		}
	})
}
