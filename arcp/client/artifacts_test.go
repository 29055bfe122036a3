package client_test

import (
	"testing"

	"github.com/arcpd/arcpd/arcp/client"
)

// A runtime that stores or sends other content is found out.
func TestArtifactsAreComparedWithTheirDigest(t *testing.T) {
	scripted(t, bearer, `
		C put: artifact.put {"media_type":"text/plain","data":"aGVsbG8=","sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}
		S: artifact.ref corr=put {"artifact":{"artifact_id":"art_1","uri":"u","media_type":"text/plain","size":5,"sha256":"00"},"artifact_id":"art_1","uri":"u","media_type":"text/plain","size":5}
		C fetch: artifact.fetch {"artifact_id":"art_1"}
		S: artifact.put corr=fetch {"media_type":"text/plain","data":"aGVsbG9v","sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}
		C old: artifact.fetch {"artifact_id":"art_1"}
		S: artifact.put corr=old {"media_type":"text/plain","data":"aGVsbG8="}
		hang
	`, func(t *testing.T, c *client.Client, _ *fake) {
		_, err := c.Artifacts().Put(t.Context(), client.PutArtifactParams{MediaType: "text/plain", Content: []byte("hello")})
		wantAs[*client.ProtocolError](t, "another digest in the answer", err)
		_, err = c.Artifacts().Fetch(t.Context(), "art_1")
		wantAs[*client.ProtocolError](t, "other content than the digest says", err)
		a, err := c.Artifacts().Fetch(t.Context(), "art_1")
		want(t, "an answer without a digest", err, nil)
		want(t, "its content", string(a.Content), "hello")
	})
}
