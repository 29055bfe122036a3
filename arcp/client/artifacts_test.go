package client_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

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
		_, err := c.Artifacts().Put(t.Context(), client.PutArtifactParams{MediaType: "text/plain", Content: strings.NewReader("hello")})
		wantAs[*client.ProtocolError](t, "another digest in the answer", err)
		_, err = c.Artifacts().Fetch(t.Context(), "art_1")
		wantAs[*client.ProtocolError](t, "other content than the digest says", err)
		a, err := c.Artifacts().Fetch(t.Context(), "art_1")
		want(t, "an answer without a digest", err, nil)
		want(t, "its content", string(a.Content), "hello")
	})
}

// A runtime that answers the tools wrongly is found out.
func TestChunksOfArtifactsAreChecked(t *testing.T) {
	answer := func(value string) string {
		return "C call: tool.invoke\nS: job.accepted corr=call job=job_1 seq=1 {\"job_id\":\"job_1\"}\n" +
			"S: job.completed corr=call job=job_1 seq=2 {\"value\":" + value + "}\nhang"
	}
	get := func(t *testing.T, c *client.Client) (string, error) {
		r, err := c.Artifacts().Get(t.Context(), "art_1")
		if err != nil {
			return "", err
		}
		got, err := io.ReadAll(r)
		return string(got), err
	}
	const object = `"artifact_id":"art_1","uri":"u","media_type":"text/plain","size":5,"sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"`
	for why, value := range map[string]string{
		"other content":      `{` + object + `,"offset":0,"data":"aGVsbG9v","more":false}`,
		"the same length":    `{` + object + `,"offset":0,"data":"amVsbG8=","more":false}`,
		"less than there is": `{` + object + `,"offset":0,"data":"aGVs","more":true}`,
		"another offset":     `{` + object + `,"offset":1,"data":"aGVsbG8=","more":false}`,
		"no chunk":           `7`,
	} {
		scripted(t, bearer, answer(value), func(t *testing.T, c *client.Client, _ *fake) {
			_, err := get(t, c)
			wantAs[*client.ProtocolError](t, why, err)
		})
	}
	scripted(t, bearer, answer(`{`+object+`,"offset":0,"data":"aGVsbG8=","more":false}`), func(t *testing.T, c *client.Client, _ *fake) {
		got, err := get(t, c)
		want(t, "an artifact", err, nil)
		want(t, "its content", got, "hello")
	})

	large := make([]byte, 4<<20+1)
	for why, value := range map[string]string{
		"another offset": `{"upload_id":"art_1","offset":7}`,
		"no upload":      `{"offset":1048576}`,
	} {
		scripted(t, bearer, answer(value), func(t *testing.T, c *client.Client, _ *fake) {
			_, err := c.Artifacts().Put(t.Context(), client.PutArtifactParams{MediaType: "a/b", Content: bytes.NewReader(large)})
			wantAs[*client.ProtocolError](t, why, err)
		})
	}
	failed := errors.New("the file cannot be read")
	scripted(t, bearer, "hang", func(t *testing.T, c *client.Client, _ *fake) {
		_, err := c.Artifacts().Put(t.Context(), client.PutArtifactParams{MediaType: "a/b", Content: iotest.ErrReader(failed)})
		want(t, "the content fails", err, failed)
	})
}
