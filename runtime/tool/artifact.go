package tool

import (
	"context"
	"io"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Artifacts puts and opens artifacts: content of any size to which messages refer by an id.
type Artifacts struct{ host Host }

// Artifacts returns the methods that put and open artifacts.
func (j Job) Artifacts() Artifacts { return Artifacts(j) }

// NewArtifact describes an artifact to put.
type NewArtifact struct {
	MediaType string
	Content   io.Reader
	Retain    time.Duration // default 1 h, at most 7 days
}

// Put stores an artifact of the job's principal and emits artifact.ref. Both are durable when Put
// returns. A tool returns the description as a part of its result. The artifact outlives the job.
//
// An error of Content is returned unchanged. The others are INVALID_ARGUMENT for an invalid media type
// and for content above the limit of an artifact, and RESOURCE_EXHAUSTED if there is no space.
func (a Artifacts) Put(ctx context.Context, n NewArtifact) (arcp.ArtifactObject, error) {
	if n.Content == nil {
		return arcp.ArtifactObject{}, arcp.Errorf(arcp.CodeInvalidArgument, "an artifact needs content")
	}
	return a.host.PutArtifact(ctx, n)
}

// Open opens an artifact. The caller closes the content. A job without a parent may open the artifacts
// of its principal that its arguments name, and those that it has put; a child may open what its parent
// may open, and a parent what its children have put. The error is NOT_FOUND for other artifacts, and for
// one that was released; it is DATA_LOSS if the content is not there any more.
func (a Artifacts) Open(ctx context.Context, id arcp.ArtifactID) (arcp.ArtifactObject, io.ReadSeekCloser, error) {
	return a.host.OpenArtifact(ctx, id)
}
