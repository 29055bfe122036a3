package conn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/txn"
)

// artifactRoutes has the handlers of messages about artifacts (SPEC.md §5.17). They use the disk on
// another goroutine, in the order of the messages.
var artifactRoutes = map[arcp.Type]handler{
	arcp.ArtifactPut:     on(commandsOf, (*commands).putArtifact),
	arcp.ArtifactFetch:   on(commandsOf, (*commands).fetchArtifact),
	arcp.ArtifactRelease: on(commandsOf, (*commands).releaseArtifact),
}

// putArtifact handles artifact.put. The answer is artifact.ref.
func (cm *commands) putArtifact(_ time.Time, env *arcp.Envelope, p *arcp.ArtifactPutPayload) error {
	c := cm.c
	retain, err := artifact.RetentionOf(p.RetainSeconds)
	if err != nil {
		return errInvalid("%s", err.Message)
	}
	spec := artifact.Spec{
		Principal: c.principal.identity.Principal,
		Session:   c.id,
		MediaType: p.MediaType,
		SHA256:    p.SHA256,
		Key:       env.IdempotencyKey,
		Request:   env.ID,
		Retain:    retain,
	}
	data := p.Data
	c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		row, err := c.storeArtifact(ctx, spec, data)
		return func(now time.Time) {
			if err != nil {
				c.nack(now, env.ID, txn.Refusal(c.srv.opts.Logger, err, "put an artifact"))
				return
			}
			object := row.Object()
			c.reply(now, env.ID, arcp.ArtifactRef, arcp.ArtifactRefPayload{Artifact: object, ArtifactObject: object})
		}
	})
	return nil
}

// storeArtifact stores the content of artifact.put.
func (c *conn) storeArtifact(ctx context.Context, spec artifact.Spec, data string) (artifact.Row, error) {
	content, err := artifact.DecodeInline(data)
	if err != nil {
		return artifact.Row{}, err
	}
	return c.srv.opts.Artifacts.Put(ctx, spec, content)
}

// fetchArtifact handles artifact.fetch. The answer is artifact.put.
func (cm *commands) fetchArtifact(now time.Time, env *arcp.Envelope, p *arcp.ArtifactFetchPayload) error {
	c := cm.c
	if !p.ArtifactID.Valid() {
		c.refuseID(now, env, "artifact_id", arcp.ArtifactPrefix)
		return nil
	}
	principal := c.principal.identity.Principal
	c.tasks.backgroundInOrder(func(context.Context) func(time.Time) {
		answer, err := readArtifact(c.srv.opts.Artifacts, principal, p)
		return func(now time.Time) {
			if err != nil {
				c.nack(now, env.ID, txn.Refusal(c.srv.opts.Logger, err, "fetch an artifact"))
				return
			}
			c.send(now, arcp.Envelope{Type: arcp.ArtifactPut, CorrelationID: env.ID, Payload: answer})
		}
	})
	return nil
}

// readArtifact reads an artifact, or a part of it, and returns the payload of the answer.
func readArtifact(artifacts *artifact.Store, principal string, p *arcp.ArtifactFetchPayload) (arcp.Raw, error) {
	var row artifact.Row
	var content []byte
	var err error
	part := p.Offset > 0 || p.Length > 0
	if part {
		length := min(cmp.Or(p.Length, artifact.DefaultChunk), artifact.MaxChunk)
		row, content, err = artifacts.ReadChunk(principal, p.ArtifactID, int64(min(p.Offset, math.MaxInt64)), int(length))
	} else {
		row, content, err = artifacts.Inline(principal, p.ArtifactID)
	}
	if err != nil {
		return nil, err
	}
	answer := arcp.ArtifactPutPayload{MediaType: row.MediaType, SHA256: row.SHA256}
	if part {
		answer.Size = uint64(row.Size)
	}
	return withContent(&answer, content)
}

// withContent encodes a payload with content as its data. Base64 has no characters to escape.
func withContent(p *arcp.ArtifactPutPayload, content []byte) (arcp.Raw, error) {
	const empty = `"data":""`
	raw, err := arcp.Marshal(p)
	if err != nil {
		return nil, err
	}
	at := bytes.Index(raw, []byte(empty)) + len(empty) - 1 // the first one is the member: quotes in strings are escaped
	out := make([]byte, 0, len(raw)+base64.StdEncoding.EncodedLen(len(content)))
	out = artifact.AppendBase64(append(out, raw[:at]...), content)
	return append(out, raw[at:]...), nil
}

// releaseArtifact handles artifact.release, which has no answer.
func (cm *commands) releaseArtifact(now time.Time, env *arcp.Envelope, p *arcp.ArtifactReleasePayload) error {
	c := cm.c
	if !p.ArtifactID.Valid() {
		c.refuseID(now, env, "artifact_id", arcp.ArtifactPrefix)
		return nil
	}
	principal := c.principal.identity.Principal
	c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		if err := c.srv.opts.Artifacts.Release(ctx, principal, p.ArtifactID); err != nil {
			c.srv.opts.Logger.Error().Err(err).Str("artifact_id", string(p.ArtifactID)).Msg("release an artifact")
		}
		return func(time.Time) {}
	})
	return nil
}
