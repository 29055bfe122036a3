package worker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/tool"
)

// onArtifact returns a relay that calls f for the frames about artifacts, one after another for each job.
// The answer has the returned type. A repeated frame is answered from the cache.
func onArtifact[P any](
	f func(questionRelay, context.Context, P) (arcp.Type, any, error),
) func(*dispatch, context.Context, *arcp.Envelope) error {
	return func(d *dispatch, ctx context.Context, env *arcp.Envelope) error {
		p, err := decode[P](env)
		if err != nil {
			return err
		}
		qr := questionRelay{d}
		return qr.once(env.ID, func() {
			err := d.contents.artifacts.do(d.pool.background, func() {
				t, answer, err := f(qr, ctx, p)
				qr.concludeArtifact(env.ID, t, answer, err)
			})
			if err != nil {
				qr.conclude(env.ID, nil, err)
			}
		})
	}
}

// concludeArtifact answers a frame about an artifact.
func (qr questionRelay) concludeArtifact(id arcp.MessageID, t arcp.Type, answer any, err error) {
	if err != nil {
		qr.conclude(id, nil, err)
		return
	}
	qr.reply(id, t, "", answer) // with a job_id artifact.ref is an event of the job
	qr.end(id)
}

// putArtifact relays artifact.put. With a stream_id it begins an upload.
func (d *dispatch) putArtifact(ctx context.Context, env *arcp.Envelope) error {
	if env.StreamID == "" {
		return onArtifact(questionRelay.putInline)(d, ctx, env)
	}
	return onContent(func(qr questionRelay, c *content, p arcp.ArtifactPutPayload) error {
		err := qr.openUpload(ctx, c, p)
		if err != nil {
			qr.contents.remove(c)
		}
		return err
	})(d, ctx, env)
}

// putInline stores an artifact of the job.
func (qr questionRelay) putInline(ctx context.Context, p arcp.ArtifactPutPayload) (arcp.Type, any, error) {
	retain, refused := artifact.RetentionOf(p.RetainSeconds)
	if refused != nil {
		return "", nil, refused
	}
	content, err := artifact.InlineContent(&p)
	if err != nil {
		return "", nil, err
	}
	digest := sha256.Sum256(content)
	if p.SHA256 != "" && !strings.EqualFold(p.SHA256, hex.EncodeToString(digest[:])) {
		return "", nil, arcp.Errorf(arcp.CodeInvalidArgument, "the content does not have the sha256 of artifact.put")
	}
	object, err := qr.job.Artifacts().Put(ctx, tool.NewArtifact{MediaType: p.MediaType, Content: bytes.NewReader(content), Retain: retain})
	return arcp.ArtifactRef, reference(object), err
}

func reference(object arcp.ArtifactObject) arcp.ArtifactRefPayload {
	return arcp.ArtifactRefPayload{Artifact: object, ArtifactObject: object}
}

// fetchArtifact reads an artifact that the job may read, or a part of it.
func (qr questionRelay) fetchArtifact(ctx context.Context, p arcp.ArtifactFetchPayload) (arcp.Type, any, error) {
	object, content, err := qr.job.Artifacts().Open(ctx, p.ArtifactID)
	if err != nil {
		return "", nil, err
	}
	defer content.Close()
	if p.Offset > 0 || p.Length > 0 {
		return fetchPart(object, content, p)
	}
	if object.Size > artifact.MaxInline {
		return "", nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the artifact has %d bytes, and a worker is given at most %d at once: fetch parts", object.Size, artifact.MaxInline)
	}
	data, err := io.ReadAll(content)
	return arcp.ArtifactPut, contentOf(object, data), err
}

// contentOf returns the payload of artifact.put with content in a binary frame. The connection puts it into the
// payload if it has no binary frames.
func contentOf(object arcp.ArtifactObject, data []byte) arcp.ArtifactPutPayload {
	return arcp.ArtifactPutPayload{
		MediaType: object.MediaType,
		SHA256:    object.SHA256,
		Encoding:  arcp.EncodingSidecar,
		Length:    uint64(len(data)),
		Sidecar:   data,
	}
}

// bytesOf returns the number of bytes of the content of a message.
func bytesOf(env *arcp.Envelope) int { return len(env.Payload) + len(env.Sidecar) }

// fetchPart reads at most artifact.MaxChunk bytes of an artifact.
func fetchPart(object arcp.ArtifactObject, content io.ReadSeeker, p arcp.ArtifactFetchPayload) (arcp.Type, any, error) {
	if p.Offset > object.Size {
		return "", nil, arcp.Errorf(arcp.CodeOutOfRange, "offset %d is behind the end: the artifact has %d bytes", p.Offset, object.Size)
	}
	data := make([]byte, min(cmp.Or(p.Length, artifact.DefaultChunk), artifact.MaxChunk, object.Size-p.Offset))
	_, err := content.Seek(int64(p.Offset), io.SeekStart)
	if err == nil {
		_, err = io.ReadFull(content, data)
	}
	part := contentOf(object, data)
	part.Size = object.Size
	return arcp.ArtifactPut, part, err
}
