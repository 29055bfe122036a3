package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Artifacts stores and returns artifacts of the principal of a client.
type Artifacts struct{ c *Client }

// Artifacts returns the methods for artifacts.
func (c *Client) Artifacts() Artifacts { return Artifacts{c} }

// PutArtifactParams describes an artifact to store.
type PutArtifactParams struct {
	MediaType      string
	Content        []byte        // at most 4 MiB
	Retain         time.Duration // 0: the default of the runtime, which also has a maximum
	IdempotencyKey string        // a repeated put returns the same artifact; "": none
}

// Artifact is the content of an artifact.
type Artifact struct {
	MediaType string
	Content   []byte
}

var errDigest = errors.New("the content does not have the digest")

// Put stores an artifact of the principal, and returns its description when it is durable. A
// refusal is a *RemoteError.
func (a Artifacts) Put(ctx context.Context, p PutArtifactParams) (arcp.ArtifactObject, error) {
	digest := digestOf(p.Content)
	put := arcp.ArtifactPutPayload{MediaType: p.MediaType, Data: base64.StdEncoding.EncodeToString(p.Content), SHA256: digest}
	if p.Retain > 0 {
		put.RetainSeconds = new(seconds(p.Retain))
	}
	env := arcp.Frame(arcp.ArtifactPut, put)
	env.IdempotencyKey = p.IdempotencyKey
	got, err := a.c.request(ctx, env, arcp.ArtifactRef, nil)
	if err != nil {
		return arcp.ArtifactObject{}, err
	}
	ref, err := arcp.DecodePayload[arcp.ArtifactRefPayload](&got)
	if err == nil && ref.Artifact.SHA256 != "" && !strings.EqualFold(ref.Artifact.SHA256, digest) {
		err = errDigest
	}
	if err != nil {
		return arcp.ArtifactObject{}, &ProtocolError{string(got.Type), err}
	}
	return ref.Artifact, nil
}

// Fetch returns the content of an artifact of the principal that has at most 4 MiB. It compares
// the content with the digest that the runtime sends. A refusal is a *RemoteError.
func (a Artifacts) Fetch(ctx context.Context, id arcp.ArtifactID) (Artifact, error) {
	p, err := ask[arcp.ArtifactPutPayload](ctx, a.c, arcp.ArtifactFetch, arcp.ArtifactFetchPayload{ArtifactID: id}, arcp.ArtifactPut)
	if err != nil {
		return Artifact{}, err
	}
	content, err := base64.StdEncoding.DecodeString(p.Data)
	if err == nil && p.SHA256 != "" && !strings.EqualFold(p.SHA256, digestOf(content)) {
		err = errDigest
	}
	if err != nil {
		return Artifact{}, &ProtocolError{string(arcp.ArtifactPut), err}
	}
	return Artifact{p.MediaType, content}, nil
}

// Release lets the runtime delete an artifact of the principal. It does not wait: there is no
// answer. An unknown id is ignored.
func (a Artifacts) Release(id arcp.ArtifactID) error {
	return a.c.Send(arcp.Frame(arcp.ArtifactRelease, arcp.ArtifactReleasePayload{ArtifactID: id}))
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
